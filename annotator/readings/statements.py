"""Statements of a source file, and a digest of what they say. Apart from anchors, because it knows languages and no
readings.

A statement's digest is sha256 over its leaf tokens as tree-sitter sees them. Comments, docstrings, layout, trailing
commas, quote style and parentheses that a formatter may add around a whole expression are dropped; what begins and
ends a block is kept. So formatting does not change a digest and meaning does. tree-sitter rather than libcst, because
one grammar then serves Python and C++ alike, does not depend on the Python that runs, and is what the index has
parsed already.
"""

from __future__ import annotations

import ast
import bisect
import hashlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tree_sitter import Node

from annotator.errors import PinError
from annotator.index.languages import decode, language_of, parse

_CONTAINERS = frozenset(
    {
        "module",
        "block",
        "translation_unit",
        "compound_statement",
        "declaration_list",
        "field_declaration_list",
        "case_statement",
        "preproc_if",
        "preproc_ifdef",
        "preproc_else",
        "linkage_specification",
    }
)
_CLAUSES = frozenset(
    {"decorator", "elif_clause", "else_clause", "except_clause", "except_group_clause", "finally_clause", "case_clause"}
)
_NO_STATEMENT = frozenset(("comment", "line_continuation"))
_BODIES = frozenset({"block", "compound_statement", "field_declaration_list", "declaration_list"})
_BARE = frozenset(
    {
        "assignment",
        "augmented_assignment",
        "return_statement",
        "expression_statement",
        "if_statement",
        "elif_clause",
        "while_statement",
        "assert_statement",
        "for_statement",
        "delete_statement",
        "for_in_clause",
        "raise_statement",
    }
)
"""Where parentheses around the whole expression say nothing (Python)."""

_DEFINING = {
    *("module", "block", "decorated_definition", "if_statement", "elif_clause", "else_clause", "try_statement"),
    *("except_clause", "finally_clause", "with_statement", "for_statement", "while_statement"),
}
"""Where definitions of Python may stand."""

Lines = tuple[int, int]


@dataclass(frozen=True)
class Statement:
    """A statement of a file: ``first`` and ``last`` line (1-based), ``head`` the last line before its body.

    ``digest`` is that of its head only, so that an edit inside a loop leaves the loop's own statement as it was.
    """

    first: int
    last: int
    head: int
    digest: str


@dataclass(frozen=True)
class Source:
    """A parsed file. ``starts`` holds the character offset of each line."""

    path: Path
    text: str
    root: Node = field(repr=False, compare=False)
    starts: tuple[int, ...] = field(repr=False, compare=False)

    @property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        return self.text.split("\n")

    def line_of(self, offset: int) -> int:
        """The line (1-based) of a character offset."""
        return bisect.bisect_right(self.starts, offset)

    def point(self, offset: int) -> tuple[int, int]:
        """Row and byte column (0-based, as tree-sitter counts) of a character offset."""
        row = self.line_of(offset) - 1
        return row, len(self.text[self.starts[row] : offset].encode())


def read(path: Path) -> Source:
    """The file, parsed; kept in memory while it does not change.

    Raises:
        PinError: the file is not there, or is of no language that is read here.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise PinError(
            path.name, expected="a file of a fetched pin", found="none", remedy="run annotator fetch"
        ) from error
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, _time: int, _size: int) -> Source:
    language = language_of(path.as_posix())
    if language is None:
        raise PinError(
            path.name, expected="Python, C++ or CUDA", found=f"a file that ends in {path.suffix or 'nothing'}"
        )
    text = decode(path.read_bytes()).replace("\r\n", "\n")
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return Source(path, text, parse(text.encode(), language).root_node, tuple(starts))


def definition_lines(source: Source, qualname: str, line: int, end: int) -> Lines:
    """First and last line of a definition, decorators and template heads included.

    Found by name, nearest to ``line``: so it holds in a file that has shifted since it was indexed. What is no Python
    function or class is the statement at ``line``; a module (no ``qualname``) is the whole file.
    """
    if not qualname:
        return 1, len(source.starts)
    nodes = [node for node, name in _definitions(source.root) if name == qualname]
    if not nodes:
        return _statement_lines(source, line, end)
    node = _decorated(min(nodes, key=lambda n: abs(n.start_point[0] + 1 - line)))
    return node.start_point[0] + 1, node.end_point[0] + 1


def _statement_lines(source: Source, line: int, end: int) -> Lines:
    line = min(line, len(source.starts))
    text = source.lines[line - 1]
    found = statement_at(source, source.starts[line - 1] + len(text) - len(text.lstrip()))
    return (line, max(line, end)) if found is None else (min(line, found.first), max(found.last, end))


def _definitions(node: Node, prefix: str = "") -> Iterator[tuple[Node, str]]:
    for child in node.children:
        name = _name(child)
        qualname = f"{prefix}{name}"
        if name:
            yield child, qualname
        if name or child.type in _DEFINING:
            yield from _definitions(child, f"{qualname}." if name else prefix)


def _name(node: Node) -> str:
    if node.type not in ("function_definition", "class_definition"):
        return ""
    name = node.child_by_field_name("name")
    return name.text.decode() if name is not None and name.text else ""


def _decorated(node: Node) -> Node:
    parent = node.parent
    return parent if parent is not None and parent.type in ("decorated_definition", "template_declaration") else node


def statement_at(source: Source, offset: int) -> Statement | None:
    """The smallest statement that holds the character at ``offset``; None in a comment or between statements."""
    point = source.point(offset)
    node: Node | None = source.root.descendant_for_point_range(point, point)
    if node is not None and node.type in _NO_STATEMENT:
        return None
    while node is not None and not _is_statement(node):
        node = node.parent
    return None if node is None else _statement(node)


def statements(source: Source, lines: Lines) -> list[Statement]:
    """All statements that begin within the lines, the nested ones too, in order."""
    first, last = lines
    return [
        _statement(n) for n in _walk(source.root, lines) if _is_statement(n) and first <= n.start_point[0] + 1 <= last
    ]


def _walk(node: Node, lines: Lines) -> Iterator[Node]:
    """Nodes that overlap the lines, depth first; without recursion, because generated files nest deeply."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node.end_point[0] + 1 >= lines[0] and node.start_point[0] + 1 <= lines[1]:
            yield node
            stack.extend(reversed(node.children))


def _is_statement(node: Node) -> bool:
    if node.type in _CLAUSES:
        return True
    parent = node.parent
    return (
        parent is not None
        and node.is_named
        and parent.type in _CONTAINERS
        and node.type not in _NO_STATEMENT
        and node.type not in _BODIES
    )


def _statement(node: Node) -> Statement:
    last = _last_row(node) + 1
    inner = node.child_by_field_name("definition") or node  # of decorators and what they decorate
    body = inner.child_by_field_name("body") or inner.child_by_field_name("consequence")
    body = body or next((child for child in inner.children if child.type in _BODIES), None)
    head = last if body is None else max(node.start_point[0] + 1, _head_row(inner, body) + 1)
    return Statement(node.start_point[0] + 1, last, head, _hash(_tokens(node, (node.start_point[0] + 1, head))))


def _last_row(node: Node) -> int:
    """The last row with text: C++ preprocessor nodes end at column 0 of the row after."""
    row, column = node.end_point
    return row - 1 if column == 0 and row > node.start_point[0] else row


def _head_row(node: Node, body: Node) -> int:
    before = [child for child in node.children if child.end_byte <= body.start_byte and child.type != "comment"]
    return before[-1].end_point[0] if before else node.start_point[0]


def digest(source: Source, lines: Lines) -> str:
    """The digest of what begins within the lines."""
    return _hash(_tokens(source.root, lines))


def _hash(tokens: Iterator[str]) -> str:
    return hashlib.sha256("\x00".join(tokens).encode()).hexdigest()


def _tokens(node: Node, lines: Lines) -> Iterator[str]:
    """Leaf tokens within the lines, with marks where Python's blocks and simple statements begin and end."""
    stack: list[Node | str] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif item.end_point[0] + 1 >= lines[0] and item.start_point[0] + 1 <= lines[1]:
            inside = lines[0] <= item.start_point[0] + 1
            if item.type == "string" or not item.children:
                if inside and (token := _token(item)):
                    yield token
                continue
            if item.type in _NO_STATEMENT or _is_docstring(item):
                continue
            stack.extend(reversed(_parts(item, inside and item.end_point[0] + 1 <= lines[1], lines[0])))


def _parts(node: Node, whole: bool, first: int) -> list[Node | str]:
    above = node.parent
    if whole and node.type == "block" and above is not None and above.start_point[0] + 1 >= first:
        return ["\x01{", *node.children, "\x01}"]
    if whole and above is not None and above.type in ("block", "module"):
        return [*node.children, "\x01;"]
    return list(node.children)


def _is_docstring(node: Node) -> bool:
    return node.type == "expression_statement" and node.named_child_count == 1 and node.children[0].type == "string"


def _token(node: Node) -> str:
    text = node.text.decode() if node.text else ""
    if node.type in _NO_STATEMENT or _is_silent(node):
        return ""
    if node.type == "string":
        return _string(node, text)
    if node.type in ("integer", "float"):
        return text.lower()
    return text


def _is_silent(node: Node) -> bool:
    """Commas, semicolons and parentheses that layout may add or drop."""
    parent = node.parent
    if parent is None or node.is_named:
        return False
    if node.type == ",":
        return _is_trailing(node, parent)
    if node.type in ("(", ")"):
        return _is_bare(parent)
    return node.type == ";" and parent.type in ("block", "module")


def _is_trailing(comma: Node, parent: Node) -> bool:
    after = comma.next_sibling
    while after is not None and after.type == "comment":
        after = after.next_sibling
    closes = after is None if parent.type == "expression_list" else after is not None and after.type in (")", "]", "}")
    if parent.type == "subscript":
        return False  # x[1,] takes a tuple, x[1] does not
    alone = parent.type in ("tuple", "tuple_pattern", "expression_list") and _elements(parent) == 1
    return closes and not alone


def _elements(node: Node) -> int:
    return sum(child.type != "comment" for child in node.named_children)


def _is_bare(node: Node) -> bool:
    if node.type in ("import_from_statement", "with_clause"):
        return True
    above = node.parent
    bare = node.type in ("parenthesized_expression", "tuple", "tuple_pattern") and _elements(node) > 0
    return bare and above is not None and above.type in _BARE


def _string(node: Node, text: str) -> str:
    """A Python string without regard to its quotes: its value, or for an f-string its parts with plain quotes."""
    if not any(child.type == "interpolation" for child in node.children):
        return _value(text)
    prefix, body = re.match(r"([A-Za-z]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    quote = body[:3] if body[:3] in ('"""', "'''") else body[:1]
    inner = body[len(quote) : -len(quote)]
    return prefix.lower() + '"' + inner.replace("\\'", "'").replace('\\"', '"') + '"'


def _value(text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape is upstream's affair
        try:
            return repr(ast.literal_eval(text))
        except (ValueError, SyntaxError, MemoryError):
            return text
