"""Operators that one file registers with PyTorch's dispatcher: schemas, implementations, fakes, derivatives.

Pure, like the rest of extraction: bytes in, rows out; what a row's ``target`` means is found when someone asks
(``operators``). C++ is read by its text, because the macros that register are no declarations to a grammar; Python by
its tree. Only names that stand in the source as literals are found; one that a program makes up is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from annotator.index.languages import grammar

if TYPE_CHECKING:
    from tree_sitter import Node, Query, Tree


class Operator(NamedTuple):
    """One registration, less its file.

    ``namespace`` is as the source writes it: in C++ maybe a macro; in Python empty where it hangs on the ``library``
    object that the row names. ``role``: ``schema implementation fake derivative decomposition``, or ``library`` for
    the making of such an object, whose name is then ``name``. ``key``: dispatch key as written. ``target``: the
    expression of the function, to be looked up in ``scope`` (Python: the qualname of the function around).
    ``condition``: the preprocessor's condition around it.
    """

    namespace: str
    name: str
    overload: str
    role: str
    key: str
    line: int
    column: int
    schema: str
    target: str
    scope: str
    library: str
    condition: str


CPP_WORDS = frozenset(
    f"{stable}TORCH_LIBRARY{what}{expand}".encode()
    for stable in ("", "STABLE_")
    for what in ("", "_FRAGMENT", "_IMPL")
    for expand in ("", "_EXPAND")
)
PYTHON_WORDS = frozenset(
    (b"custom_op", b"triton_op", b"direct_register_custom_op", b"Library", b"register_fake", b"_register_fake",
     b"register_autograd", b"register_kernel", b"register_meta", b"register_decomposition", b"impl_abstract",
     b"define", b"impl")
)  # fmt: skip
"""A file without any of these words registers nothing."""


def operators(tree: Tree, source: bytes, language: str, words: set[bytes]) -> list[Operator]:
    """All registrations of a file in which some words occur, in the order of the source."""
    if language == "python":
        return sorted(_Python(source).read(tree), key=_place) if words & PYTHON_WORDS else []
    return sorted(_Cpp(source).read(), key=_place) if words & CPP_WORDS else []


def _place(row: Operator) -> tuple[int, int]:
    return row.line, row.column


def split_name(text: str) -> tuple[str, str, str]:
    """Namespace, name and overload of ``ns::name.overload``."""
    namespace, _, rest = text.rpartition("::")
    name, _, overload = rest.partition(".")
    return namespace.strip(), name.strip(), "" if overload == "default" else overload.strip()


# C++

BLOCK = re.compile(rb"\b(?:STABLE_)?TORCH_LIBRARY(_FRAGMENT|_IMPL)?(?:_EXPAND)?\s*\(")
LITERAL = re.compile(rb'R"(\w*)\((.*?)\)\1"|"((?:\\.|[^"\\])*)"', re.S)
FUNCTION = re.compile(rb"(?:&\s*|^\s*)([A-Za-z_][\w:]*(?:<[\w:, ]*>)?)\s*\)*\s*$")
WRAPPED = re.compile(rb"^\s*(?:TORCH_BOX|TORCH_FN)\s*\(\s*&?\s*([A-Za-z_][\w:]*)")
KEY = re.compile(rb"(?:torch::k|c10::k|c10::DispatchKey::|DispatchKey::|at::k)(\w+)")
OPENING, CLOSING = b"([{", b")]}"
NEAR, FAR, DEEP = 500, 5000, 50
"""Bytes that the arguments of a block and of a registration may take, and how deep they nest: else each would be read
to the end of the file."""


class _Cpp:
    """Reads a C++ file by its text, with comments and strings hidden where structure is looked for."""

    def __init__(self, source: bytes) -> None:
        from annotator.index.blanking import TEXT, spaces

        self.source = source
        self.masked = TEXT.sub(spaces, source)
        self.code = TEXT.sub(lambda match: match[0] if match[0][:1] in b"\"'" else spaces(match), source)
        self.conditions = list(_conditions(self.masked))

    def read(self) -> Iterator[Operator]:
        blocks = list(BLOCK.finditer(self.masked))
        ends = [*(match.start() for match in blocks[1:]), len(self.masked)]
        for match, end in zip(blocks, ends, strict=False):
            line = self.masked[self.masked.rfind(b"\n", 0, match.start()) + 1 : match.start()]
            if line.lstrip().startswith(b"#"):
                continue
            arguments, after = self.arguments(match.end(), NEAR)
            body = re.compile(rb"\s*\{").match(self.masked, after)
            if body is None or len(arguments) < 2:
                continue
            names = [b" ".join(self.masked[a:b].split()).decode() for a, b in arguments]
            key = names[1] if match[1] == b"_IMPL" and len(names) > 2 else ""
            yield from self.block(names[0], key, names[-1], body.end(), self.closing(body.end(), end))

    def block(self, namespace: str, key: str, variable: str, begin: int, end: int) -> Iterator[Operator]:
        """The registrations between the braces of one macro."""
        calls = re.compile(rb"\b" + re.escape(variable).encode() + rb"\s*\.\s*(def|impl)\s*\(")
        for match in calls.finditer(self.masked, begin, end):
            arguments, _ = self.arguments(match.end())
            schema = self.literal(*arguments[0]) if arguments else ""
            name = schema.partition("(")[0].strip()
            if not name:
                continue
            own, short, overload = split_name(name)
            row = self.row(own or namespace, short, overload, match.start(1))
            if match[1] == b"def":
                yield row._replace(role="schema", schema=schema if "(" in schema else "")
            if match[1] == b"impl" or len(arguments) > 1:
                found, target = self.implementation(arguments[1:])
                yield row._replace(role="implementation", key=found or key, target=target)

    def row(self, namespace: str, name: str, overload: str, at: int) -> Operator:
        start = self.source.rfind(b"\n", 0, at) + 1
        line, column = self.source.count(b"\n", 0, at) + 1, len(self.source[start:at].decode("utf-8", "replace"))
        condition = next((text for begin, end, text in self.conditions if begin <= at < end), "")
        return Operator(namespace, name, overload, "", "", line, column, "", "", "", "", condition)

    def implementation(self, arguments: list[tuple[int, int]]) -> tuple[str, str]:
        """Dispatch key, if it is an argument, and the function; a lambda has no name."""
        key = target = ""
        for begin, end in arguments:
            text = self.masked[begin:end]
            if (found := KEY.search(text)) and not key:
                key = found[1].decode()
                text = text[found.end() :].lstrip(b", ") if b"dispatch" in text else b"" if found.end() else text
            if match := WRAPPED.match(text) or FUNCTION.search(text):
                target = match[1].decode()
        return key, target

    def literal(self, begin: int, end: int) -> str:
        """The text of the string literals of an argument, put together."""
        parts = [
            (match[2] if match[2] is not None else match[3]).decode("utf-8", "replace")
            for match in LITERAL.finditer(self.code, begin, end)
        ]
        return " ".join("".join(parts).split())

    def arguments(self, begin: int, far: int = FAR) -> tuple[list[tuple[int, int]], int]:
        """Spans of the arguments after an opening parenthesis, and where that closes."""
        spans, depth, start = [], 0, begin
        for match in re.compile(rb"[()\[\]{},]").finditer(self.masked, begin, begin + far):
            mark = match[0]
            if depth == DEEP:
                break
            if mark in OPENING:
                depth += 1
            elif mark == b"," and not depth:
                spans.append((start, match.start()))
                start = match.end()
            elif mark in CLOSING:
                if not depth:
                    return [*spans, (start, match.start())], match.end()
                depth -= 1
        return spans, len(self.masked)

    def closing(self, begin: int, end: int) -> int:
        """Where the brace opened before ``begin`` closes, at most ``end``."""
        depth = 0
        for match in re.compile(rb"[{}]").finditer(self.masked, begin, end):
            depth += 1 if match[0] == b"{" else -1
            if depth < 0:
                return match.start()
        return end


def _conditions(masked: bytes) -> Iterator[tuple[int, int, str]]:
    """Spans under a preprocessor's condition, the innermost first where they nest."""
    from annotator.index.blanking import CONDITION

    open_ones: list[tuple[int, str]] = []
    for match in CONDITION.finditer(masked):
        word, text = match[1], " ".join(match[0].replace(b"\\\n", b" ").decode("utf-8", "replace").split())
        if word.startswith(b"if"):
            open_ones.append((match.end(), text))
        elif open_ones:
            begin, before = open_ones.pop()
            yield begin, match.start(), before
            if word != b"endif":
                open_ones.append((match.end(), f"#else of {before}" if word == b"else" else text))


# Python

CALLS = """
(call function: [(identifier) @name (attribute attribute: (identifier) @name)]) @call
(decorator (attribute object: (identifier) @owner attribute: (identifier) @bare))
"""
STRING = re.compile(r"[A-Za-z_][\w:]*(?:\.\w+)?")
SCHEMA = re.compile(r"\s*(?:[\w:]+(?:\.\w+)?)?\s*\(.*->", re.S)
PACKET = re.compile(r"\b(?:torch\.ops\.(\w+)|(aten|prims))\.(\w+)(?:\.(\w+))?")
BY_NAME = {
    "register_fake": "fake", "impl_abstract": "fake", "_register_fake": "fake", "register_autograd": "derivative",
    "register_kernel": "implementation",
}  # fmt: skip
ALL = "*"
"""The overload of what is registered for every overload of an operator."""

BY_PACKET = {"register_decomposition": "decomposition", "register_meta": "fake"}


@cache
def query() -> Query:
    """Calls with the last name of what is called."""
    from tree_sitter import Query

    return Query(grammar("python"), CALLS)


class _Python:
    """Reads the calls of a Python file that register something."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.known: dict[str, tuple[str, str, str]] = {}

    def read(self, tree: Tree) -> Iterator[Operator]:
        from tree_sitter import QueryCursor

        methods = {"direct_register_custom_op": self.direct, "custom_op": self.custom, "triton_op": self.custom,
                   "Library": self.library, "define": self.define, "impl": self.impl}  # fmt: skip
        found = [captured for _, captured in QueryCursor(query()).matches(tree.root_node)]
        for captured in sorted(found, key=lambda one: next(iter(one.values()))[0].start_byte):
            if "bare" in captured:
                yield from self.bare(captured["owner"][0], self.text(captured["bare"][0]))
                continue
            word = self.text(captured["name"][0])
            call = _Call(self, captured["call"][0])
            if word in methods:
                yield from methods[word](call)
            elif word in BY_NAME:
                yield from self.by_name(call, BY_NAME[word])
            elif word in BY_PACKET:
                yield from self.by_packet(call, BY_PACKET[word])

    def text(self, node: Node | None) -> str:
        return " ".join(self.source[node.start_byte : node.end_byte].decode("utf-8", "replace").split()) if node else ""

    def string(self, node: Node | None) -> str:
        """The text of string literals; empty for anything else, and where something is put into them."""
        if node is None or node.type not in ("string", "concatenated_string"):
            return ""
        parts = node.named_children if node.type == "concatenated_string" else [node]
        if any(kid.type == "interpolation" for part in parts for kid in part.named_children):
            return ""
        kids = (kid for part in parts for kid in part.named_children if kid.type == "string_content")
        return " ".join(
            "".join(self.source[k.start_byte : k.end_byte].decode("utf-8", "replace") for k in kids).split()
        )

    def direct(self, call: _Call) -> Iterator[Operator]:
        """vLLM's helper: defines, implements and fakes in one call, in its own library unless another is given."""
        name = self.string(call.get(0, "op_name"))
        library = self.text(call.get(4, "target_lib")) or "vllm_lib"
        target = self.text(call.get(1, "op_func"))
        if not STRING.fullmatch(name) or not target:
            return
        row = call.row(name, library)._replace(target=target)
        key = self.string(call.get(5, "dispatch_key")) or self.text(call.get(5, "dispatch_key"))
        yield row._replace(role="schema")
        yield row._replace(role="implementation", key=key or "the platform's")
        fake = self.text(call.get(3, "fake_impl"))
        if fake not in ("", "None"):
            yield row._replace(role="fake", target=fake)

    def custom(self, call: _Call) -> Iterator[Operator]:
        """``@torch.library.custom_op("ns::name")``: the schema is that of the function, unless it is given."""
        name, target = self.string(call.get(0, "name")), call.decorated() or self.text(call.get(1, "fn"))
        if "::" not in name or not STRING.fullmatch(name):
            return
        row = call.row(name)._replace(target=target)
        self.known[target] = split_name(name)
        devices = call.keyword("device_types")
        yield row._replace(role="schema", schema=self.string(call.keyword("schema")))
        yield row._replace(role="implementation", key=self.string(devices) or self.text(devices))

    def library(self, call: _Call) -> Iterator[Operator]:
        """``lib = Library("ns", "FRAGMENT")``."""
        above = call.node.parent
        namespace = self.string(call.get(0, "ns"))
        if namespace and above is not None and above.type == "assignment":
            name = self.text(above.child_by_field_name("left"))
            key = self.string(call.get(2, "dispatch_key"))
            yield call.row("")._replace(namespace=namespace, name=name, role="library", key=key)

    def define(self, call: _Call) -> Iterator[Operator]:
        """``lib.define("name(…) -> …")`` or ``torch.library.define("ns::name", "(…) -> …")``."""
        first, second = self.string(call.get(0, "qualname")), self.string(call.get(1, "schema"))
        if SCHEMA.match(first):
            name = first.partition("(")[0].strip()
            yield call.row(name, call.owner())._replace(role="schema", schema=first)
        elif "::" in first and SCHEMA.match(second):
            yield call.row(first)._replace(role="schema", schema=f"{first.rpartition('::')[2]}{second}")

    def impl(self, call: _Call) -> Iterator[Operator]:
        """``lib.impl(name, function, key)``, ``@impl(lib, name, key)``, ``torch.library.impl("ns::name", key, f)``."""
        first, decorated = call.get(0, ""), call.decorated()
        name, owner = self.named(first), call.owner()
        if name and (owner.rpartition(".")[2] == "library" or (decorated and not owner)):
            key = self.string(call.get(1, "types")) or self.text(call.get(1, "types"))
            target = decorated or self.text(call.get(2, "func"))
            yield call.row(name)._replace(role="implementation", key=key, target=target)
        elif name and owner:
            key = self.string(call.get(2, "dispatch_key"))
            target = decorated or self.text(call.get(1, "fn"))
            yield call.row(name, owner)._replace(role="implementation", key=key, target=target)
        elif decorated and first is not None and (name := self.named(call.get(1, "name"))):
            key = self.string(call.get(2, "dispatch_key"))
            yield call.row(name, self.text(first))._replace(role="implementation", key=key, target=decorated)

    def named(self, node: Node | None) -> str:
        """The operator that an argument names: by a string, or as ``aten.add.Tensor``."""
        if text := self.string(node):
            return text if STRING.fullmatch(text) else ""
        match = PACKET.fullmatch(self.text(node))
        return f"{match[1] or match[2]}::{match[3]}" + (f".{match[4]}" if match[4] else "") if match else ""

    def by_name(self, call: _Call, role: str) -> Iterator[Operator]:
        """``@register_fake("ns::name")``, or ``@op.register_fake`` with arguments on what ``custom_op`` made here."""
        name, decorated, owner = self.named(call.get(0, "op")), call.decorated(), call.owner()
        known = self.known.get(owner)
        kernel = role == "implementation"
        if known and (not name or kernel):
            first = self.text(call.get(0, "fn"))
            row = call.row(f"{known[0]}::{known[1]}")._replace(role=role)
            key = self.string(call.get(0, "device_types")) if kernel else ""
            yield row._replace(key=key, target=decorated or ("" if kernel else first))
        elif name:
            key = self.string(call.get(1, "device_types")) if kernel else ""
            target = decorated or self.text(call.get(2 if kernel else 1, "func"))
            library = "" if "::" in name or owner in ("torch.library", "library") else owner
            if "::" in name or library:
                yield call.row(name, library)._replace(role=role, key=key, target=target)

    def bare(self, owner: Node, word: str) -> Iterator[Operator]:
        """``@op.register_fake`` without arguments, on what ``custom_op`` made here."""
        known, role = self.known.get(self.text(owner)), BY_NAME.get(word)
        call = _Call(self, owner.parent) if owner.parent is not None else None
        if known and role and call is not None:
            yield call.row(f"{known[0]}::{known[1]}")._replace(role=role, target=call.decorated())

    def by_packet(self, call: _Call, role: str) -> Iterator[Operator]:
        """``@register_meta([aten.add.Tensor, …])``."""
        target = call.decorated()
        if target:
            for match in PACKET.finditer(self.text(call.get(0, "aten_op"))):
                overload = "" if match[4] == "default" else match[4] or ALL
                row = call.row(f"{match[1] or match[2]}::{match[3]}")
                yield row._replace(role=role, overload=overload, target=target)


class _Call:
    """One call: its arguments, what it decorates, where it stands."""

    def __init__(self, reader: _Python, node: Node) -> None:
        self.reader, self.node = reader, node
        arguments = node.child_by_field_name("arguments")
        kids = [kid for kid in arguments.named_children if kid.type != "comment"] if arguments is not None else []
        self.plain = [kid for kid in kids if kid.type != "keyword_argument"]
        self.words = {
            reader.text(kid.child_by_field_name("name")): kid.child_by_field_name("value")
            for kid in kids
            if kid.type == "keyword_argument"
        }

    def get(self, at: int, word: str) -> Node | None:
        """An argument by its place or its keyword."""
        return self.words[word] if word in self.words else self.plain[at] if at < len(self.plain) else None

    def keyword(self, word: str) -> Node | None:
        return self.words.get(word)

    def owner(self) -> str:
        """What the called attribute hangs on."""
        function = self.node.child_by_field_name("function")
        return self.reader.text(function.child_by_field_name("object")) if function is not None else ""

    def decorated(self) -> str:
        """The name of the function that the call decorates."""
        above = self.node.parent
        if above is None or above.type != "decorator" or above.parent is None:
            return ""
        definition = above.parent.child_by_field_name("definition")
        return self.reader.text(definition.child_by_field_name("name")) if definition is not None else ""

    def scope(self) -> str:
        """Qualname of the definitions around."""
        names: list[str] = []
        node = self.node.parent
        while node is not None:
            if node.type in ("function_definition", "class_definition"):
                names.append(self.reader.text(node.child_by_field_name("name")))
            node = node.parent
        return ".".join(reversed(names))

    def row(self, name: str, library: str = "") -> Operator:
        """A row at the place of the call."""
        row, column = self.node.start_point
        start = self.node.start_byte - column
        column = len(self.reader.source[start : self.node.start_byte].decode("utf-8", "replace"))
        return Operator(*split_name(name), "", "", row + 1, column, "", "", self.scope(), library, "")
