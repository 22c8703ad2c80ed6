"""One Python file of a pin as a syntax tree beside what the index knows of it: links, classes of expressions.

For questions that begin with a string or a key, which postings lead to a few files; only these are parsed. Apart from
``linking`` because here nodes are the starting point and links are asked for one by one.
"""

from __future__ import annotations

import re
from bisect import bisect
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from annotator.index.evaluating import Evaluator
from annotator.index.flow import reaching
from annotator.index.languages import normal, parse
from annotator.index.values import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tree_sitter import Node, Point

    from annotator.index.lookup import Index
    from annotator.index.model import Definition, Link, Raw
    from annotator.index.names import Source
    from annotator.index.values import Value

FUNCTIONS = ("function_definition", "lambda")
DEFINITIONS = ("function_definition", "class_definition")
PARAMETERS = (
    "parameters", "lambda_parameters", "default_parameter", "typed_default_parameter", "typed_parameter",
    "list_splat_pattern", "dictionary_splat_pattern",
)  # fmt: skip
TARGETS = ("pattern_list", "tuple_pattern", "list_pattern")
BINDING = {
    "assignment": "left", "augmented_assignment": "left", "named_expression": "name", "for_statement": "left",
    "for_in_clause": "left", "as_pattern": "alias", "function_definition": "name", "class_definition": "name",
}  # fmt: skip
AROUND = ("class", "function", "method")


@dataclass(frozen=True)
class Binding:
    """One place that binds a name.

    ``kind``: ``assignment``, ``parameter``, or the kind of the node (``for_statement`` …). ``node`` is the statement or
    the parameter, ``value`` what is bound, ``part`` which one of the targets it is unpacked to (-1: deeper).
    """

    kind: str
    node: Node
    value: Node | None
    part: int | None


class Parsed:
    """One file with its tree; links and values only when they are needed."""

    def __init__(self, index: Index, pin: str, path: str) -> None:
        self.index, self.pin, self.path = index, pin, path
        self.data = index.resolver.read(pin, path)
        self.source, self.tree = normal(self.data), parse(self.data, "python")
        self._pieces: dict[tuple[int, int], _Piece] = {}

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of the source."""
        return self.source.split(b"\n")

    @cached_property
    def _raw(self) -> dict[tuple[int, int], Raw]:
        row = self.index.resolver.file(self.pin, self.path)
        return {(link.line, link.column): link for link in self.index.resolver.raw_links(row, self.data)}

    @cached_property
    def definitions(self) -> list[Definition]:
        """What the file defines, in the order of the source."""
        return self.index.definitions(self.pin, self.path)

    @cached_property
    def number(self) -> int:
        """The file's number in the store."""
        return self.index.resolver.file(self.pin, self.path)[0]

    def text(self, node: Node | None) -> str:
        """The source of a node, on one line."""
        return " ".join(self.source[node.start_byte : node.end_byte].decode("utf-8", "replace").split()) if node else ""

    def place(self, node: Node) -> tuple[int, int]:
        """Line and column of a node, in characters."""
        row, column = node.start_point
        if column and not self.source.isascii():
            column = len(self.lines[row][:column].decode("utf-8", "replace"))
        return row + 1, column

    def line(self, node: Node) -> str:
        """The line on which a node begins."""
        return self.lines[node.start_point.row].decode("utf-8", "replace").strip()

    def link(self, node: Node | None) -> Link | None:
        """The link of an identifier; of an attribute that of its last name."""
        if node is not None and node.type == "attribute":
            node = node.child_by_field_name("attribute")
        raw = self._raw.get(self.place(node)) if node is not None else None
        return self.index.resolver.link(raw) if raw is not None else None

    def within(self, node: Node) -> str:
        """The symbol of the definition around a node."""
        here = node.start_point.row + 1
        around = [item for item in self.definitions if item.kind in AROUND and item.line <= here <= item.end_line]
        return around[-1].symbol if around else f"{self.pin}:{self.definitions[0].module if self.definitions else ''}"

    @cached_property
    def file(self) -> Source:
        """The file as the store has it."""
        return self.index.resolver.program.source(self.number)

    def scope(self, node: Node) -> str:
        """The qualified name of the definition around a node."""
        names = []
        above = node.parent
        while above is not None:
            if above.type in DEFINITIONS and node != above.child_by_field_name("name"):
                names.append(self.text(above.child_by_field_name("name")))
            node, above = above, above.parent
        return ".".join(reversed(names))

    def means(self, dotted: str, node: Node | None) -> Value:
        """What a dotted name means where a node stands, by definitions and imports alone."""
        scope = self.scope(node) if node is not None else ""
        return self.index.resolver.program.dotted(self.file, scope, dotted)

    def value(self, node: Node) -> Value:
        """What an expression stands for, as far as it is plain."""
        piece = self._piece(node)
        number = piece.number(node)
        return piece.evaluator.value(number) if number is not None else unknown("no such expression")

    def bindings(self, name: Node) -> list[Binding]:
        """The bindings of a local name that may reach a place; none if the name is not local."""
        piece = self._piece(name)
        number = piece.number(name)
        ways = piece.ways(number) if number is not None else []
        nodes = [self.tree.root_node.descendant_for_point_range(*piece.points(way)) for way in ways]
        return [found for node in nodes if node is not None and (found := binding_of(node)) is not None]

    def _piece(self, node: Node) -> _Piece:
        """What has to be read to evaluate an expression: the outermost function around it, else its statement."""
        top, above = node, node.parent
        while above is not None and not (above.type == "module" or _is_body(above)):
            top, above = above, above.parent
        outer = above
        while outer is not None:
            if outer.type == "function_definition":
                top = outer
            outer = outer.parent
        key = (top.start_byte, top.end_byte)
        if key not in self._pieces:
            first, last = top.start_point.row, top.end_point.row
            self._pieces[key] = _Piece(self, first, self.lines[first : last + 1], self.scope(top))
        return self._pieces[key]

    def node_at(self, line: int, column: int) -> Node | None:
        """The smallest node at a place given in characters."""
        text = self.lines[line - 1].decode("utf-8", "replace")
        point = (line - 1, len(text[:column].encode()))
        return self.tree.root_node.descendant_for_point_range(point, point)

    def literal(self, node: Node | None) -> str | None:
        """The text of a plain string; ``None`` for an f-string and for all else."""
        if node is None or node.type != "string" or any(kid.type == "interpolation" for kid in node.named_children):
            return None
        return "".join(self.text(kid) for kid in node.named_children if kid.type == "string_content")

    def words(self, word: str, within: Node | None = None) -> Iterator[Node]:
        """The smallest nodes that begin where a word stands, in the order of the source."""
        start, end = (within.start_byte, within.end_byte) if within is not None else (0, len(self.source))
        for match in re.compile(rb"\b" + re.escape(word.encode()) + rb"\b").finditer(self.source, start, end):
            node = self.tree.root_node.descendant_for_byte_range(*match.span())
            if node is not None:
                yield node

    def strings(self, wanted: Iterable[str]) -> Iterator[Node]:
        """The plain strings that are one of those wanted."""
        for text in wanted:
            for match in re.finditer(rb"[\"']" + re.escape(text.encode()) + rb"[\"']", self.source):
                node = self.tree.root_node.descendant_for_byte_range(match.start() + 1, match.end() - 1)
                above = node.parent if node is not None and node.type == "string_content" else None
                if above is not None and self.literal(above) == text:
                    yield above


def defined(value: Value | None) -> Definition | None:
    """The definition that a value leads to, if it leads to one."""
    if value is None or value.file is None or value.entry is None:
        return None
    return value.file.definition(value.entry)


def walk(root: Node, *kinds: str) -> Iterator[Node]:
    """Nodes of some kinds, in the order of the source, whatever the depth."""
    from tree_sitter import Query, QueryCursor

    from annotator.index.languages import grammar

    patterns = " ".join(f"({kind}) @n" for kind in kinds)
    found = QueryCursor(Query(grammar("python"), patterns)).captures(root).get("n", [])
    yield from sorted(found, key=lambda node: (node.start_byte, -node.end_byte))


class _Piece:
    """Some lines of a file, evaluated apart from the rest: what ``bodies`` does, with nodes of the whole file."""

    def __init__(self, parsed: Parsed, first: int, lines: list[bytes], within: str) -> None:
        margin = len(lines[0]) - len(lines[0].lstrip())
        cuts = [margin if not line[:margin].strip() else 0 for line in lines]
        kept = [line[cut:] for line, cut in zip(lines, cuts, strict=True)]
        self.first, self.cuts = first, cuts
        self.starts = [0, *accumulate(len(line) + 1 for line in kept)]
        self.evaluator = Evaluator(parsed.index.resolver.program, parsed.file, b"\n".join(kept), within)
        flat = self.evaluator.flat
        self.numbers = {span: number for number, span in enumerate(zip(flat.starts, flat.ends, strict=True))}

    def offset(self, point: Point) -> int:
        """The byte of the piece at a place of the file."""
        row = point.row - self.first
        return self.starts[row] + point.column - self.cuts[row]

    def number(self, node: Node) -> int | None:
        """The number of a node among those of the piece."""
        return self.numbers.get((self.offset(node.start_point), self.offset(node.end_point)))

    def ways(self, number: int) -> list[int]:
        """Numbers of the identifiers that bind a local name and may reach one of its uses."""
        evaluator = self.evaluator
        name, scope = evaluator.text(number), evaluator.scopes[number]
        _, binder = evaluator.named(name, scope)
        if binder is None or binder.kind not in ("function", "lambda"):
            return []
        ways = binder.names.get(name, [])
        if len(ways) > 1 and evaluator.function(scope) is binder:
            ways = reaching(evaluator.flat, ways, number) or ways
        return sorted(way.at for way in ways)

    def points(self, number: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where a node of the piece begins and ends in the file."""
        flat = self.evaluator.flat
        found = []
        for offset in (flat.starts[number], flat.ends[number]):
            row = bisect(self.starts, offset) - 1
            found.append((row + self.first, offset - self.starts[row] + self.cuts[row]))
        return found[0], found[1]


def binding_of(name: Node) -> Binding | None:
    """The binding that an identifier is, if it is one."""
    node, above, part = name, name.parent, None
    if above is not None and above.type in PARAMETERS:
        while above is not None and above.type in PARAMETERS and above.type not in ("parameters", "lambda_parameters"):
            node, above = above, above.parent
        return Binding("parameter", node, None, None)
    while above is not None and above.type in TARGETS:
        part = above.named_children.index(node) if part is None else -1
        node, above = above, above.parent
    field = BINDING.get(above.type) if above is not None else None
    if above is None or field is None or above.child_by_field_name(field) != node:
        return None
    value = above.child_by_field_name("right") or above.child_by_field_name("value")
    return Binding("assignment" if above.type in ("assignment", "named_expression") else above.type, above, value, part)


def _is_body(node: Node) -> bool:
    """Whether a node is the body of a class."""
    return node.type == "block" and node.parent is not None and node.parent.type == "class_definition"


def function_around(node: Node) -> Node | None:
    """The function or lambda around a node."""
    above = node.parent
    while above is not None and above.type not in FUNCTIONS:
        above = above.parent
    return above


def arguments(call: Node) -> list[Node]:
    """The positional arguments of a call, then the values of its keywords are not among them."""
    given = call.child_by_field_name("arguments")
    kinds = ("keyword_argument", "dictionary_splat", "list_splat", "comment")
    return [node for node in given.named_children if node.type not in kinds] if given is not None else []


def keyword(parsed: Parsed, call: Node, name: str) -> Node | None:
    """The value of a keyword of a call."""
    given = call.child_by_field_name("arguments")
    for node in given.named_children if given is not None else ():
        if node.type == "keyword_argument" and parsed.text(node.child_by_field_name("name")) == name:
            return node.child_by_field_name("value")
    return None


def parse_each(index: Index, files: Iterable[tuple[str, str]]) -> Iterator[Parsed]:
    """Files as trees; one that cannot be read any more is passed over."""
    from annotator.errors import IndexFileError

    for pin, path in files:
        try:
            yield Parsed(index, pin, path)
        except IndexFileError:
            continue


def files_with(index: Index, *words: str, pin: str | None = None) -> list[tuple[str, str]]:
    """Pin and path of the Python files in which one of the words occurs; a literal begins with a quote."""
    numbers = sorted(set().union(*(index.resolver.posted(word) for word in words)))
    rows: list[tuple[str, str]] = []
    for start in range(0, len(numbers), 500):
        part = numbers[start : start + 500]
        marks = ",".join("?" * len(part))
        query = f"SELECT pin, path FROM files WHERE language='python' AND id IN ({marks})"
        rows += index.connection.execute(query, part)
    return sorted((found, path) for found, path in rows if pin in (None, found))
