"""What is taken from one file: tables of source and what it defines, imports and names."""

from __future__ import annotations

import pytest

from annotator.index.extraction import extract
from annotator.index.languages import decode, language_of, module_of, parse

PYTHON = [
    ("def f(a, b=1) -> int:\n    return a\n", [("f", "function", 1, 4, 2, "def f(a, b=1) -> int")]),
    ("async def f():\n    pass\n", [("f", "function", 1, 10, 2, "async def f()")]),
    ("def f(\n    a,\n    b,\n):\n    pass\n", [("f", "function", 1, 4, 5, "def f(a, b)")]),
    (
        "class A(B, metaclass=M):\n    x: int = 1\n    def m(self):\n        self.y = 2\n        def inner(): pass\n",
        [
            ("A", "class", 1, 6, 5, "class A(B, metaclass=M)"),
            ("A.x", "attribute", 2, 4, 2, "x: int = 1"),
            ("A.m", "method", 3, 8, 5, "def m(self)"),
            ("A.y", "attribute", 4, 13, 4, "self.y = 2"),
            ("A.m.inner", "function", 5, 12, 5, "def inner()"),
        ],
    ),
    (
        "LIMIT = 3\nother = 4\n",
        [("LIMIT", "constant", 1, 0, 1, "LIMIT = 3"), ("other", "variable", 2, 0, 2, "other = 4")],
    ),
    ("a, b = 1, 2\n", [("a", "variable", 1, 0, 1, "a, b = 1, 2"), ("b", "variable", 1, 3, 1, "a, b = 1, 2")]),
    ("type V = list[int]\n", [("V", "alias", 1, 5, 1, "type V = list[int]")]),
    (
        "if X:\n    def f(): pass\nelse:\n    def f(): pass\n",
        [("f", "function", 2, 8, 2, "def f()"), ("f", "function", 4, 8, 4, "def f()")],
    ),
    (
        "def f(\n    a: list[\n        int\n    ],\n    b=(1, 2),\n):\n    pass\n",
        [("f", "function", 1, 4, 7, "def f(a: list[int], b=(1, 2))")],
    ),
    ("def f():\n    local = 1\n", [("f", "function", 1, 4, 2, "def f()")]),
    (
        "class A:\n    def m(this):\n        other.y = 2\n",
        [("A", "class", 1, 6, 3, "class A"), ("A.m", "method", 2, 8, 3, "def m(this)")],
    ),
    ("ö = 'ü'; ä = 1\n", [("ö", "variable", 1, 0, 1, "ö = 'ü'"), ("ä", "variable", 1, 9, 1, "ä = 1")]),
    ("", []),
]


@pytest.mark.parametrize(("source", "expected"), PYTHON)
def test_python_definitions(source: str, expected: list[tuple[object, ...]]) -> None:
    rows = extract(source.encode(), "python").rows
    assert [(r.qualname, r.kind, r.line, r.column, r.end_line, r.signature) for r in rows] == expected


def test_docstring_and_decorators() -> None:
    source = '@first\n@second(1)\ndef f():\n    """Does a thing. And more.\n\n    Long."""\n'
    (row,) = extract(source.encode(), "python").rows
    assert (row.doc, row.decorators.split("\n")) == ("Does a thing.", ["first", "second(1)"])
    assert extract(b"def f():\n    x = 'no docstring'\n", "python").rows[0].doc == ""


IMPORTS = [
    ("import a.b", [("a", "a.b", "", 0, 0)]),
    ("import a.b as c", [("c", "a.b", "", 0, 0)]),
    ("from a import b as c, d", [("c", "a", "b", 0, 0), ("d", "a", "d", 0, 0)]),
    ("from . import b", [("b", "", "b", 1, 0)]),
    ("from ..x.y import (b,\n    c)", [("b", "x.y", "b", 2, 0), ("c", "x.y", "c", 2, 0)]),
    ("from a import *", [("*", "a", "*", 0, 0)]),
    ("if X:\n    import a", [("a", "a", "", 0, 1)]),
    ("try:\n    from a import b\nexcept ImportError:\n    b = None", [("b", "a", "b", 0, 1)]),
]


@pytest.mark.parametrize(("source", "expected"), IMPORTS)
def test_imports(source: str, expected: list[tuple[object, ...]]) -> None:
    found = extract(source.encode(), "python").imports
    assert [(i.name, i.module, i.member, i.level, i.conditional) for i in found] == expected


def test_names_are_those_of_code_and_key_like_literals() -> None:
    source = b"'''prose words'''\nx = f('grpo', \"two words\")  # remark\ny = f'{inner} outer'\n"
    assert extract(source, "python").names == {b"x", b"f", b'"grpo', b"y", b"inner"}


CPP = [
    ("namespace a { namespace b {\nint f(int x);\n} }", [("a::b::f", "function", 2)]),
    (
        "namespace a::b { struct S { int x; void m() const; }; }",
        [("a::b::S", "struct", 1), ("a::b::S::x", "attribute", 1), ("a::b::S::m", "method", 1)],
    ),
    ("class TORCH_API Foo : public Bar {\n public:\n  Foo();\n};", [("Foo", "class", 1), ("Foo::Foo", "method", 3)]),
    ("void Foo::run() {}", [("Foo::run", "method", 1)]),
    ("template <typename T> T twice(T x) { return x + x; }", [("twice", "function", 1)]),
    ("#define TWICE(x) ((x) + (x))\n", [("TWICE", "macro", 1)]),
    ("using A = int;\ntypedef long B;", [("A", "typedef", 1), ("B", "typedef", 2)]),
    ("enum class E { one, two };", [("E", "enum", 1), ("E::one", "constant", 1), ("E::two", "constant", 1)]),
    ("#if X\nint f();\n#else\nint g();\n#endif\n", [("f", "function", 2), ("g", "function", 4)]),
    ("class Later;", []),
]


@pytest.mark.parametrize(("source", "expected"), CPP)
def test_cpp_definitions(source: str, expected: list[tuple[object, ...]]) -> None:
    assert [(r.qualname, r.kind, r.line) for r in extract(source.encode(), "cpp").rows] == expected


def test_cuda_kernel_is_a_function() -> None:
    rows = extract(b"__global__ void kernel(float* x) { }\n", "cuda").rows
    assert [(r.qualname, r.kind, r.column) for r in rows] == [("kernel", "function", 16)]


HOSTILE = [
    b"print 'python two'\nexec code in scope\n",
    b"{% if x %}\ndef f(): pass\n{% endif %}\n",
    b"\xff\xfe\x00",
    "# -*- coding: latin-1 -*-\nx = 'ä'\n".encode("latin-1"),
    "x = 'ä'\n".encode("latin-1"),
    b"\xef\xbb\xbfdef f(): pass\n",
    b"def f():\r\n    pass\r\n",
    b"x = 1\n\x0c\ndef f(): pass\n",
    b"class A:\n\tdef f(self):\n\t\tpass\n",
    b"x = " + b"(" * 2000 + b")" * 2000,
    b"x = " + b"a." * 5000 + b"b",
    b"if x:\n" + b"".join(b" " * n + b"if x:\n" for n in range(1, 300)),
    b"def f(: pass\nclass :\nimport\nfrom import x\n@\n",
    b"# coding: no-such-codec\nx = 1\n",
    b"",
    b"\n" * 1000,
    b"\x00" * 100,
]


@pytest.mark.parametrize("language", ["python", "cpp", "cuda"])
@pytest.mark.parametrize("data", HOSTILE)
def test_no_input_defeats_extraction(data: bytes, language: str) -> None:
    found = extract(data, language)
    assert found.lines >= 0
    assert all(row.line >= 1 and row.column >= 0 for row in found.rows)


@pytest.mark.parametrize(
    ("data", "column"),
    [(b"\xef\xbb\xbfx = 1\n", 0), ("a = 'ä'; x = 1\n".encode("latin-1"), 9), ("a = 'ä'; x = 1\n".encode(), 9)],
)
def test_columns_count_characters(data: bytes, column: int) -> None:
    (row,) = [row for row in extract(data, "python").rows if row.name == "x"]
    assert row.column == column


def test_languages_and_modules() -> None:
    assert [language_of(p) for p in ("a.py", "a.pyi", "a.cu", "a.cuh", "a.h", "a.txt", "py")] == [
        "python",
        "python",
        "cuda",
        "cuda",
        "cpp",
        None,
        None,
    ]
    assert [module_of(p) for p in ("a/b.py", "a/__init__.py", "a/b.pyi", "setup.py", "a/b.h")] == [
        "a.b",
        "a",
        "a.b",
        "setup",
        "",
    ]
    assert decode(b"# coding: latin-1\n\xe4") == "# coding: latin-1\nä"
    assert parse(b"def f(): pass", "python").root_node.type == "module"
