"""Digests: layout does not change them, meaning does. And what a statement is."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotator.errors import PinError
from annotator.readings import statements


def digest(folder: Path, text: str, suffix: str = ".py") -> str:
    file = folder / f"{abs(hash(text))}{suffix}"
    file.write_text(text)
    source = statements.read(file)
    return statements.digest(source, (1, len(source.starts)))


SAME = [
    ("x = f(a, b)", "x = f(\n    a,\n    b,\n)"),
    ("x = f(a, b)  # why", "# how\nx = f(a,b)"),
    ("x = 'it'", 'x = "it"'),
    ("x = 'it\\'s'", 'x = "it\'s"'),
    ("x = f'a{b}c'", 'x = f"a{b}c"'),
    ("x = a + b", "x = (\n    a\n    + b\n)"),
    ("x = a + b", "x = a \\\n    + b"),
    ("return_ = [1, 2]", "return_ = [\n    1,  # one\n    2,  # two\n]"),
    ("x = a, b", "x = (a, b,)"),
    ("for a, b in c:\n    pass", "for (a, b) in c:\n  pass"),
    ("if a and b:\n    f()", "if (\n    a\n    and b\n):\n    f()"),
    ("from a import b, c", "from a import (\n    b,\n    c,\n)"),
    ("a = 1; b = 2", "a = 1\nb = 2"),
    ("def f():\n    return 1", 'def f():\n    """Doc."""\n    return 1'),
    ("x = 0XFF", "x = 0xff"),
    ("x = '\\d'", 'x = "\\d"'),
    ("def f(a, *, b): ...", "def f(\n    a,\n    *,\n    b,\n): ..."),
]

DIFFERENT = [
    ("x = f(a, b)", "x = f(b, a)"),
    ("x = f(a)", "y = f(a)"),
    ("x = 'a b'", "x = 'a  b'"),
    ("x = 'a'", "x = b'a'"),
    ("x = 'a'", "x = a"),
    ("x = f'a{b}'", "x = 'a{b}'"),
    ("x = (a + b) * c", "x = a + b * c"),
    ("x = (a,)", "x = (a)"),
    ("x = a,", "x = a"),
    ("x = y[1,]", "x = y[1]"),
    ("x = ()", "x = []"),
    ("if a:\n    b()\nc()", "if a:\n    b()\n    c()"),
    ("a\n-b", "a - b"),
    ("x = 1.0", "x = 10"),
    ("x = a - b", "x = a + b"),
    ("return_(a.std())", "return_(a.std(ddof=1))"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_layout_does_not_change_a_digest(tmp_path: Path, one: str, other: str) -> None:
    assert digest(tmp_path, one) == digest(tmp_path, other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_meaning_changes_a_digest(tmp_path: Path, one: str, other: str) -> None:
    assert digest(tmp_path, one) != digest(tmp_path, other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int f(int a) { return a; }", "int f(int a)\n{\n  // why\n  return a;\n}", True),
        ("int f(int a) { return a; }", "int f(int a) { return a + 1; }", False),
        ("int x[] = {1, 2};", "int x[] = {\n  1,\n  2,\n};", True),
        ("auto s = 'a';", 'auto s = "a";', False),
    ],
)
def test_cpp_too(tmp_path: Path, one: str, other: str, same: bool) -> None:
    assert (digest(tmp_path, one, ".cpp") == digest(tmp_path, other, ".cpp")) is same


CODE = """\
@wrap
def f(
    a,
):
    if a:
        b = [
            1,
        ]
    elif c:
        d()
    else:
        e()
    # comment
    for i in g: h()
    with k: pass
"""


@pytest.mark.parametrize(
    ("words", "first", "last", "head"),
    [
        ("1,", 6, 8, 8),
        ("if a", 5, 12, 5),
        ("elif c", 9, 10, 9),
        ("d()", 10, 10, 10),
        ("else:", 11, 12, 11),
        ("for i", 14, 14, 14),
        ("a,\n", 1, 15, 4),
        ("@wrap", 1, 1, 1),
    ],
)
def test_the_statement_at_a_place(tmp_path: Path, words: str, first: int, last: int, head: int) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    found = statements.statement_at(statements.read(file), CODE.index(words))
    assert found is not None
    assert (found.first, found.last, found.head) == (first, last, head)


def test_no_statement_in_a_comment(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    assert statements.statement_at(statements.read(file), CODE.index("comment")) is None


@pytest.mark.parametrize(
    ("qualname", "line", "expected"),
    [("f", 2, (1, 15)), ("f", 9, (1, 15)), ("", 1, (1, 16)), ("unknown", 6, (6, 8))],
)
def test_lines_of_a_definition(tmp_path: Path, qualname: str, line: int, expected: tuple[int, int]) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE)
    assert statements.definition_lines(statements.read(file), qualname, line, line) == expected


@pytest.mark.parametrize(("name", "words"), [("none.py", "run annotator fetch"), ("notes.txt", "expected Python")])
def test_files_that_cannot_be_read(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises(PinError, match=words):
        statements.read(tmp_path / name)


def test_a_deep_file_does_not_exhaust_the_stack(tmp_path: Path) -> None:
    assert digest(tmp_path, "x = " + "[" * 1500 + "]" * 1500)


CPP = """\
namespace n {
template <class T>
T twice(
    T a) {
  return a + a;
}
struct S {
  int size() const { return 1; }
};
}
"""


@pytest.mark.parametrize(("line", "end", "expected"), [(3, 6, (2, 6)), (7, 9, (7, 9)), (8, 8, (8, 8))])
def test_lines_of_a_cpp_definition(tmp_path: Path, line: int, end: int, expected: tuple[int, int]) -> None:
    file = tmp_path / "code.cpp"
    file.write_text(CPP)
    assert statements.definition_lines(statements.read(file), "n::x", line, end) == expected
