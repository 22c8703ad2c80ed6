"""What stands behind a name in a string: ``@register("grpo")``, ``REGISTRY["grpo"] = f``, ``{"grpo": f}``, an enum.

Postings tell the files in which the string occurs; only these are parsed. What a string is handed to must call itself
a registration (its name has ``register``), else it is no registry that a reader could be sent to; the entries of a
dictionary count where the dictionary has a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from annotator.errors import IndexFileError, near_matches
from annotator.index.languages import grammar, normal, parse
from annotator.index.model import Definition, Link, Registration

if TYPE_CHECKING:
    from tree_sitter import Node, Query

    from annotator.index.lookup import Index

ENUM = re.compile(r"\(.*(Enum|Flag)\b.*\)")
REGISTERS = re.compile(r"(^|[._])register(?!ed)", re.IGNORECASE)
KINDS = ("class", "function", "method")


@cache
def query() -> Query:
    """Strings without interpolation."""
    from tree_sitter import Query

    return Query(grammar("python"), "(string (string_content) @content) @string")


def registered(index: Index, name: str, pin: str | None = None) -> list[Registration]:
    """Where ``name`` is registered, in all pins or in one, in the order of pins and files."""
    found: list[Registration] = []
    for each, path in _files(index, name):
        if pin is None or each == pin:
            try:
                found += _File(index, each, path).registrations(name)
            except IndexFileError:
                continue
    return list(dict.fromkeys(found))


def near(index: Index, name: str) -> tuple[str, ...]:
    """Strings of the sources that begin alike and are spelt much like a name."""
    span = (f'"{name[:1]}', f'"{name[:1]}\U0010ffff', len(name))
    known = "SELECT DISTINCT name FROM postings WHERE name >= ? AND name < ? AND abs(length(name) - 1 - ?) <= 2"
    return near_matches(name, (text[1:] for (text,) in index.connection.execute(known, span)), limit=6)


def _files(index: Index, name: str) -> list[tuple[str, str]]:
    """Pin and path of the Python files with such a string."""
    statement = "SELECT pin, path FROM files WHERE id=? AND language='python'"
    rows = (index.connection.execute(statement, (number,)).fetchone() for number in index.resolver.posted(f'"{name}'))
    return sorted(row for row in rows if row)


class _File:
    """One file with its tree and its links, the links only when they are needed."""

    def __init__(self, index: Index, pin: str, path: str) -> None:
        self.index, self.pin, self.path = index, pin, path
        data = index.resolver.read(pin, path)
        self.source, self.tree = normal(data), parse(data, "python")

    def text(self, node: Node | None) -> str:
        """The source of a node, on one line."""
        return " ".join(self.source[node.start_byte : node.end_byte].decode("utf-8", "replace").split()) if node else ""

    def registrations(self, name: str) -> Iterator[Registration]:
        """The places of this file at which a name is registered."""
        from tree_sitter import QueryCursor

        captured = QueryCursor(query()).captures(self.tree.root_node)
        for string in captured.get("string", ()):
            if [self.text(kid) for kid in string.named_children if kid.type == "string_content"] == [name]:
                yield from self.around(name, string)

    def around(self, name: str, string: Node) -> Iterator[Registration]:
        """What the surroundings of a string make of it."""
        node, parent = string, string.parent
        while parent is not None and parent.type in ("list", "tuple", "set", "keyword_argument"):
            node, parent = parent, parent.parent
        if parent is None:
            return
        if parent.type == "pair" and parent.child_by_field_name("key") == string:
            yield from self.entry(name, string, parent)
        elif parent.type == "subscript" and _is_target(parent):
            registry, value = (
                parent.child_by_field_name("value"),
                parent.parent and parent.parent.child_by_field_name("right"),
            )
            yield self.made(name, "entry", self.text(registry), string, self.leading(value))
        elif parent.type == "assignment" and parent.child_by_field_name("right") == node:
            yield from self.member(name, parent)
        elif parent.type == "argument_list" and parent.parent is not None:
            yield from self.handed(name, string, parent, parent.parent)

    def entry(self, name: str, string: Node, pair: Node) -> Iterator[Registration]:
        """An entry of a dictionary with a name."""
        above = pair.parent and pair.parent.parent
        if above is not None and above.type == "assignment":
            registry = self.text(above.child_by_field_name("left"))
            yield self.made(name, "entry", registry, string, self.leading(pair.child_by_field_name("value")))

    def handed(self, name: str, string: Node, arguments: Node, call: Node) -> Iterator[Registration]:
        """A decorator that registers what it decorates, or a call that registers another argument."""
        registry = self.text(call.child_by_field_name("function"))
        if not REGISTERS.search(registry):
            return
        if call.parent is not None and call.parent.type == "decorator":
            yield self.made(name, "decorator", registry, string, self.decorated(call.parent))
            return
        others = [node for node in arguments.named_children if node != string]
        target = next((link for node in others if (link := self.leading(node))), None)
        yield self.made(name, "call", registry, string, target)

    def member(self, name: str, assignment: Node) -> Iterator[Registration]:
        """A member of an enumeration, by the decorators that it is handed to."""
        place = assignment.child_by_field_name("left")
        here = place and place.start_point.row + 1
        around = {item.qualname: item for item in self.index.definitions(self.pin, self.path)}
        for definition in around.values():
            owner = around.get(definition.qualname.rpartition(".")[0])
            if definition.line != here or owner is None or not ENUM.search(owner.signature):
                continue
            for use in self.index.uses(definition):
                if use.text.startswith("@"):
                    yield from _File(self.index, use.pin, use.path).by_member(name, use.line, use.column)

    def by_member(self, name: str, line: int, column: int) -> Iterator[Registration]:
        """The registration that a member of an enumeration is part of, where it is used."""
        node = self.node_at(line, column)
        while node is not None and node.type in ("identifier", "attribute", "list", "tuple", "keyword_argument"):
            node = node.parent
        call = node.parent if node is not None and node.type == "argument_list" else None
        if call is None or call.parent is None or call.parent.type != "decorator":
            return
        registry = self.text(call.child_by_field_name("function"))
        if REGISTERS.search(registry):
            yield self.made(name, "member", registry, call, self.decorated(call.parent))

    def node_at(self, line: int, column: int) -> Node | None:
        """The smallest node at a place given in characters."""
        text = self.source.split(b"\n")[line - 1].decode("utf-8", "replace")
        point = (line - 1, len(text[:column].encode()))
        return self.tree.root_node.descendant_for_point_range(point, point)

    def decorated(self, decorator: Node) -> Link | None:
        """A link to the definition under a decorator."""
        above = decorator.parent
        definition = above.child_by_field_name("definition") if above is not None else None
        name = definition.child_by_field_name("name") if definition is not None else None
        return self.leading(name)

    def leading(self, node: Node | None) -> Link | None:
        """The first link of an expression that leads to a class or a function, else what its strings name."""
        if node is None:
            return None
        first, last = node.start_point.row + 1, node.end_point.row + 1
        for link in self.index.links(self.pin, self.path):
            plain = first <= link.line <= last and link.target is not None and link.target.kind in KINDS
            if plain and self.holds(node, link):
                return link
        return self.named(node)

    def named(self, node: Node) -> Link | None:
        """What strings name that a program imports by: ``"package.module.Class"``, or ``("module", "Class")``."""
        strings = [node] if node.type == "string" else [kid for kid in node.named_children if kid.type == "string"]
        parts = ".".join(self.text(string).strip("\"'") for string in strings[:2])
        module, _, name = parts.rpartition(".")
        if not module:
            return None
        found = [d for d in self.index.find(name, pin=self.pin, loose=False) if d.name == name and d.kind in KINDS]
        fits = [d for d in found if f".{d.module}".endswith(f".{module}")]
        row, column = node.start_point
        where = (row + 1, column, column)
        return Link(*where, name, fits[0], None, "inferred", "by the text of its name") if len(fits) == 1 else None

    def holds(self, node: Node, link: Link) -> bool:
        """Whether an identifier stands within a node."""
        found = self.node_at(link.line, link.column)
        return found is not None and node.start_byte <= found.start_byte and found.end_byte <= node.end_byte

    def made(self, name: str, how: str, registry: str, place: Node, link: Link | None) -> Registration:
        """A registration at a place of this file."""
        row, column = place.start_point
        line = self.source.split(b"\n")[row]
        target: Definition | None = link.target if link else None
        where = (self.pin, self.path, row + 1, len(line[:column].decode("utf-8", "replace")))
        text = line.decode("utf-8", "replace").strip()
        return Registration(name, how, registry, *where, text, target, link.certainty if link else "unresolved")


def _is_target(subscript: Node) -> bool:
    """Whether something is assigned to an item."""
    above = subscript.parent
    return above is not None and above.type == "assignment" and above.child_by_field_name("left") == subscript
