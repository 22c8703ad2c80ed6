"""What each identifier of a C++ or CUDA file leads to, as far as names tell.

No preprocessor, no overload resolution and no types: a name is looked up in the namespaces and classes around it, and
leads somewhere only if just one qualified name fits. Such a link is ``inferred``, never ``exact``.
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from annotator.index.languages import grammar, normal, parse
from annotator.index.linking import Raw

if TYPE_CHECKING:
    from tree_sitter import Node, Query

WANTED = """
[(identifier) (type_identifier) (field_identifier) (namespace_identifier)] @name
(namespace_definition name: (_) body: (_)) @space
(function_definition) @function (lambda_expression) @function
(_ declarator: (identifier) @local)
"""
QUALIFIER = re.compile(rb"((?:[A-Za-z_]\w*\s*(?:<[^<>;{}]*>)?\s*::\s*)+)$")
STANDARD = {
    "size_t", "ptrdiff_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
    "uintptr_t", "intptr_t", "nullptr_t",
}  # fmt: skip
HELD = {"torch": ("at", "c10"), "at": ("c10",)}
"""Namespaces that hold the names of others by ``using namespace``."""

BY_NAME = "by its qualified name; overloads are not told apart"


class Found(NamedTuple):
    """A definition that may be meant."""

    file: int
    ordinal: int
    name: str
    qualname: str
    hint: str
    pin: str
    line: int
    column: int


@cache
def query() -> Query:
    """The compiled query."""
    from tree_sitter import Query

    return Query(grammar("cpp"), WANTED)


def links(connection: sqlite3.Connection, number: int, pin: str, data: bytes) -> list[Raw]:
    """A link for each identifier, in the order of the source."""
    from tree_sitter import QueryCursor

    source = normal(data)
    captured = QueryCursor(query()).captures(parse(data, "cpp").root_node)
    tokens = sorted({node.start_byte: node for node in captured.get("name", ()) if not node.is_missing}.items())
    file = File(source, captured)
    names = {source[node.start_byte : node.end_byte].decode("utf-8", "replace") for _, node in tokens}
    known = candidates(connection, names, number, pin)
    lines = [] if source.isascii() else source.split(b"\n")
    result = []
    for begin, node in tokens:
        row, column = node.start_point
        if lines and column:
            column = len(lines[row][:column].decode("utf-8", "replace"))
        name = source[begin : node.end_byte].decode("utf-8", "replace")
        result.append(link(file, node, name, row + 1, column, known.get(name, []), number))
    return result


def candidates(connection: sqlite3.Connection, names: Iterable[str], number: int, pin: str) -> dict[str, list[Found]]:
    """C++ definitions of the given names, this file's first, then this pin's; bodies before declarations."""
    found: dict[str, list[Found]] = {}
    ordered = sorted(names)
    for start in range(0, len(ordered), 500):
        part = ordered[start : start + 500]
        statement = (
            "SELECT d.file, d.ordinal, d.name, d.qualname, d.hint, f.pin, d.line, d.column FROM definitions d "
            f"JOIN files f ON f.id = d.file WHERE f.language != 'python' AND d.name IN ({','.join('?' * len(part))})"
        )
        for row in connection.execute(statement, part):
            found.setdefault(row[2], []).append(Found(*row))
    for rows in found.values():
        rows.sort(key=lambda one: (one.file != number, one.pin != pin, one.hint != "body", one.file, one.ordinal))
    return found


class File:
    """Scopes of one file: namespaces, and functions with what they declare."""

    def __init__(self, source: bytes, captured: dict[str, list[Node]]) -> None:
        self.source = source
        self.spaces = sorted((node.start_byte, node.end_byte, self.space(node)) for node in captured.get("space", ()))
        self.functions = sorted((node.start_byte, node.end_byte) for node in captured.get("function", ()))
        self.starts = [begin for begin, _ in self.functions]
        self.locals: dict[int, set[bytes]] = {}
        for node in captured.get("local", ()):
            parent = node.parent
            if parent is not None and parent.type != "function_declarator":
                for begin in self.functions_around(node.start_byte):
                    self.locals.setdefault(begin, set()).add(source[node.start_byte : node.end_byte])

    def space(self, node: Node) -> str:
        """Name of a namespace."""
        name = node.child_by_field_name("name")
        return self.source[name.start_byte : name.end_byte].decode("utf-8", "replace") if name is not None else ""

    def functions_around(self, at: int) -> Iterator[int]:
        """Starts of the functions (at most the nearest 40 before) around an offset."""
        last = bisect_right(self.starts, at)
        for begin, end in self.functions[max(0, last - 40) : last]:
            if begin <= at < end:
                yield begin

    def is_local(self, at: int, name: bytes) -> bool:
        """Whether a function around declares the name."""
        return any(name in self.locals.get(begin, ()) for begin in self.functions_around(at))

    def around(self, at: int) -> str:
        """Qualified name of the namespaces around an offset."""
        return "::".join(name for begin, end, name in self.spaces if begin <= at < end)

    def qualifier(self, at: int) -> str:
        """What stands before a name with ``::``, without template arguments."""
        match = QUALIFIER.search(self.source, max(0, at - 200), at)
        text = re.sub(r"<[^<>]*>|\s", "", match[1].decode("utf-8", "replace")) if match else ""
        return text.removesuffix("::")


def link(file: File, node: Node, name: str, line: int, column: int, known: list[Found], number: int) -> Raw:
    """The link of one identifier."""
    end, begin = column + len(name), node.start_byte
    for one in known:
        if (one.file, one.line, one.column) == (number, line, column):
            return Raw(line, column, end, name, one.file, one.ordinal, "", "exact", "")
    parent = node.parent
    member = node.type == "field_identifier" and parent is not None and parent.type == "field_expression"
    if member and not file.source[max(0, begin - 16) : begin].rstrip().endswith(b"this->"):
        return Raw(line, column, end, name, 0, -1, "", "unresolved", "the class of the object is not plain")
    before = file.qualifier(begin)
    if not before and not member and file.is_local(begin, name.encode()):
        return Raw(line, column, end, name, 0, -1, "", "exact", "local")
    if before.split("::")[0] == "std" or name == "std" or (not before and name in STANDARD):
        external = f"{before or 'std'}::{name}" if name != "std" else "std"
        return Raw(line, column, end, name, 0, -1, external, "inferred", "the standard library is not read")
    chosen = choose(known, scopes(file.around(begin)), before, name)
    if chosen is not None:
        return Raw(line, column, end, name, chosen.file, chosen.ordinal, "", "inferred", BY_NAME)
    why = f"none of {len(known)} definitions of the name fits" if known else "nothing in the sources defines this name"
    return Raw(line, column, end, name, 0, -1, "", "unresolved", why)


def scopes(around: str) -> list[str]:
    """Scopes to look in, from the inside out."""
    parts = around.split("::") if around else []
    return ["::".join(parts[:count]) for count in range(len(parts), -1, -1)]


def choose(known: list[Found], inside: list[str], before: str, name: str) -> Found | None:
    """The definition that a name means: the first scope from the inside out in which the qualified name is defined."""
    forms = [f"{before}::{name}" if before else name]
    head, _, rest = before.partition("::")
    forms += ["::".join(filter(None, (other, rest, name))) for other in HELD.get(head, ())]
    for form in forms:
        for scope in inside:
            wanted = f"{scope}::{form}" if scope else form
            for one in known:
                if one.qualname == wanted:
                    return one
    return None
