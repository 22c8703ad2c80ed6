"""What stands behind a name: ``@register("grpo")``, ``REGISTRY["grpo"] = f``, ``{Mode.X: f}``, an enum, an entry point.

The key may be a string, a member of an enumeration or an operator (``aten.squeeze``). Postings tell the files in which
it occurs; only these are parsed. What a key is handed to must call itself a registration (its name has ``register``),
else it is no registry that a reader could be sent to; the entries of a dictionary count where the dictionary has a
name. Groups of entry points are read where code asks for them, entry points where a distribution declares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from annotator.errors import near_matches
from annotator.index.lookup import ASIDE
from annotator.index.model import Definition, Link, Registration
from annotator.index.parsed import Parsed, defined, files_with, parse_each, walk

if TYPE_CHECKING:
    from tree_sitter import Node

    from annotator.index.lookup import Index

ENUM = re.compile(r"\(.*(Enum|Flag)\b.*\)")
REGISTERS = re.compile(r"(^|[._])register(?!ed)", re.IGNORECASE)
LOADS = re.compile(r"(^|[._])(entry_points|iter_entry_points|load_plugins_by_group)$")
LISTS = re.compile(r"(?i:regist|mapping|_map$)|^[A-Z0-9_]+$")
DOTTED = re.compile(r"[A-Za-z_][\w.]*")
HANDED = re.compile(rb"regist\w*\s*\([^()]*$", re.IGNORECASE)
KEPT = re.compile(rb"\s*(:|\]\s*=[^=])")
GIVEN, NEAR = re.compile(rb"=\s*\(?\s*$"), re.compile(rb"regist|entry_points|load_plugins", re.IGNORECASE)
KINDS = ("class", "function", "method")
KEYS = ("list", "tuple", "set", "keyword_argument")
OUTER = 3
"""How many calls around a key may stand between it and a decorator that registers."""


def registered(index: Index, name: str, pin: str | None = None) -> list[Registration]:
    """Where ``name`` is registered, in all pins or in one; what leads somewhere comes first."""
    found: list[Registration] = []
    for file in files_with(index, f'"{name}', pin=pin):
        if _may_hold(index, file, name):
            for parsed in parse_each(index, [file]):
                found += _File(parsed).by_string(name)
    if DOTTED.fullmatch(name):
        found += _by_name(index, name, pin)
    for each in index.pins():
        if pin in (None, each):
            found += _entry_points(index, each, name)
    return sorted(dict.fromkeys(found), key=_order)


def _order(one: Registration) -> tuple[object, ...]:
    """Sort key: what leads nowhere last, and tests; what only mentions the key in an argument after what it means."""
    nowhere = one.target is None and one.how != "group"
    mentioned = one.how == "decorator" and bool(one.role)
    return nowhere, bool(ASIDE.search(one.path)), mentioned, one.pin, one.path, one.line, one.column


def near(index: Index, name: str) -> tuple[str, ...]:
    """Strings of the sources that begin alike and are spelt much like a name."""
    span = (f'"{name[:1]}', f'"{name[:1]}\U0010ffff', len(name))
    known = "SELECT DISTINCT name FROM postings WHERE name >= ? AND name < ? AND abs(length(name) - 1 - ?) <= 2"
    return near_matches(name, (text[1:] for (text,) in index.connection.execute(known, span)), limit=6)


def _by_name(index: Index, name: str, pin: str | None) -> list[Registration]:
    """Registrations under a key that is no string: an operator, a member of an enumeration, the thing's own name."""
    found: list[Registration] = []
    last = name.rpartition(".")[2]
    named = [one for one in index.find(last, pin=pin, limit=200, loose=False) if one.name == last]
    own = {(one.pin, one.path) for one in named if any(_is_bare(mark) for mark in one.decorators)}
    members = {
        (one.pin, one.path) for one in named if one.kind == "attribute" and one.signature.startswith(f"{last} =")
    }
    for file in files_with(index, last, pin=pin):
        if file in own or file in members or _may_register(index, file, last):
            for parsed in parse_each(index, [file]):
                found += _File(parsed).by_name(name)
    return found


def _may_hold(index: Index, file: tuple[str, str], name: str) -> bool:
    """Whether the text of a file hands such a string to a registration, keeps something under it, or assigns it."""
    data = index.resolver.read(*file)
    for match in re.finditer(rb"[\"']%s[\"']" % re.escape(name.encode()), data):
        before = data[max(0, match.start() - 300) : match.start()]
        if KEPT.match(data, match.end()) or GIVEN.search(before) or NEAR.search(before):
            return True
    return False


def _may_register(index: Index, file: tuple[str, str], last: str) -> bool:
    """Whether the text of a file hands an attribute of that name to a registration, or keeps something under it."""
    data = index.resolver.read(*file)
    for match in re.finditer(rb"\.%s\b|\b%s\s*=" % (last.encode(), last.encode()), data):
        before = data[max(0, match.start() - 300) : match.start()]
        if HANDED.search(before) or (match[0][:1] == b"." and KEPT.match(data, match.end())):
            return True
        if match[0][:1] != b"." and re.search(
            rb"(?:regist|mapping)\w*[^\n]*=\s*\w+\(\s*[^()]*$", data[: match.start()][-4000:], re.I
        ):
            return True
    return False


def _is_bare(mark: str) -> bool:
    """Whether a decorator registers what it decorates under its own name."""
    return bool(REGISTERS.search(mark.partition("(")[0])) and (mark.partition("(")[2] in ("", ")"))


def _entry_points(index: Index, pin: str, name: str) -> Iterator[Registration]:
    """Entry points of a distribution that have the name, or are of the group, as its metadata declares them."""
    tree = index.workspace.tree(pin)
    for file in sorted(tree.glob("*.dist-info/entry_points.txt")) if tree.is_dir() else ():
        group = ""
        for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
            if line.startswith("["):
                group = line.strip().strip("[]")
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals or name not in (key, group):
                continue
            dotted = value.partition("[")[0].strip().replace(":", ".")
            target = index.resolver.exported(pin, dotted)
            where = (pin, str(file.relative_to(tree)), number, 0)
            certainty = "exact" if target else "unresolved"
            yield Registration(key, "entry point", group, *where, line.strip(), target, certainty)


class _File:
    """One file in which a key occurs."""

    def __init__(self, parsed: Parsed) -> None:
        self.parsed, self.index = parsed, parsed.index

    def text(self, node: Node | None) -> str:
        """The source of a node, on one line."""
        return self.parsed.text(node)

    # Keys

    def by_string(self, name: str) -> Iterator[Registration]:
        """The places of this file at which a name is registered as a string."""
        for string in self.parsed.strings([name]):
            yield from self.around(name, string)

    def by_name(self, name: str) -> Iterator[Registration]:
        """The places at which an attribute, a member of an enumeration or a thing's own name is the key."""
        last = name.rpartition(".")[2]
        for node in self.parsed.words(last):
            above = node.parent
            if above is None or node.type != "identifier":
                continue
            if above.type == "attribute" and above.child_by_field_name("attribute") == node:
                if f".{self.text(above)}".endswith(f".{name}"):
                    yield from self.around(name, above)
            elif above.type == "assignment" and above.child_by_field_name("left") == node and "." not in name:
                yield from self.valued(name, above)
            elif above.type == "keyword_argument" and above.child_by_field_name("name") == node:
                yield from self.keyed(name, above)
            elif above.type in ("function_definition", "class_definition") and "." not in name:
                yield from self.own(name, above)

    def around(self, name: str, key: Node) -> Iterator[Registration]:
        """What the surroundings of a key make of it."""
        node, parent, role = key, key.parent, ""
        while parent is not None and parent.type in KEYS:
            if parent.type == "keyword_argument":
                role = self.text(parent.child_by_field_name("name"))
            node, parent = parent, parent.parent
        if parent is None:
            return
        if parent.type == "pair" and parent.child_by_field_name("key") == key:
            yield from self.entry(name, key, parent)
        elif parent.type == "subscript" and _is_target(parent) and parent.child_by_field_name("subscript") == key:
            above = parent.parent
            link = self.leading(above.child_by_field_name("right") if above is not None else None)
            registry = self.text(parent.child_by_field_name("value"))
            if link is not None or LISTS.search(registry):
                yield self.made(name, "entry", registry, key, link)
        elif parent.type == "assignment" and parent.child_by_field_name("right") == node:
            yield from self.member(name, parent)
            yield from self.group(name, parent)
        elif parent.type == "argument_list" and parent.parent is not None:
            yield from self.handed(name, key, parent, parent.parent, role)

    def entry(self, name: str, key: Node, pair: Node) -> Iterator[Registration]:
        """An entry of a dictionary with a name; one for each function of an entry that holds several by name."""
        above = pair.parent and pair.parent.parent
        if above is None or above.type != "assignment":
            return
        registry, value = self.text(above.child_by_field_name("left")), pair.child_by_field_name("value")
        if value is None or value.type != "dictionary":
            link = self.leading(value)
            if link is not None or LISTS.search(registry):
                yield self.made(name, "entry", registry, key, link)
            return
        for inner in value.named_children:
            part, link = inner.child_by_field_name("key"), self.leading(inner.child_by_field_name("value"))
            if part is not None and link is not None:
                yield self.made(name, "entry", registry, inner, link, self.parsed.literal(part) or self.text(part))

    def handed(self, name: str, key: Node, arguments: Node, call: Node, role: str) -> Iterator[Registration]:
        """A decorator that registers what it decorates, or a call that registers another argument."""
        registry = self.text(call.child_by_field_name("function"))
        if LOADS.search(registry):
            yield self.made(name, "group", registry, key, None)
            return
        decorator, outer = self.decorator(call)
        if decorator is not None:
            yield self.made(name, "decorator", outer, key, self.decorated(decorator), role)
            return
        if not REGISTERS.search(registry) or (key.type != "string" and arguments.named_children[:1] != [key]):
            return
        others = [node for node in arguments.named_children if node != key and key not in node.named_children]
        target = next((link for node in others if (link := self.leading(node))), None) or self.spelt(others)
        yield self.made(name, "call", registry, key, target)

    def decorator(self, call: Node) -> tuple[Node | None, str]:
        """The decorator that a call is, or is an argument of, if that registers; and what it registers with."""
        node: Node | None = call
        for _ in range(OUTER):
            if node is None or node.type != "call":
                break
            registry = self.text(node.child_by_field_name("function"))
            if node.parent is not None and node.parent.type == "decorator":
                return (node.parent, registry) if REGISTERS.search(registry) else (None, "")
            node = node.parent
            while node is not None and node.type in ("argument_list", *KEYS):
                node = node.parent
        return None, ""

    def member(self, name: str, assignment: Node) -> Iterator[Registration]:
        """A member of an enumeration with that value, by the decorators that it is handed to."""
        definition = self.in_enum(assignment)
        for use in self.index.uses(definition) if definition is not None else ():
            if use.text.startswith("@"):
                for parsed in parse_each(self.index, [(use.pin, use.path)]):
                    yield from _File(parsed).by_member(name, use.line, use.column)

    def by_member(self, name: str, line: int, column: int) -> Iterator[Registration]:
        """The registration that a member of an enumeration is part of, where it is used."""
        node = self.parsed.node_at(line, column)
        while node is not None and node.type in ("identifier", "attribute", *KEYS):
            node = node.parent
        call = node.parent if node is not None and node.type == "argument_list" else None
        if call is not None and call.parent is not None and call.parent.type == "decorator":
            registry = self.text(call.child_by_field_name("function"))
            if REGISTERS.search(registry):
                yield self.made(name, "member", registry, call, self.decorated(call.parent))

    def valued(self, name: str, assignment: Node) -> Iterator[Registration]:
        """A member of an enumeration whose value says what to import."""
        definition, value = self.in_enum(assignment), assignment.child_by_field_name("right")
        if definition is not None and value is not None:
            link = self.named(value)
            if link is not None:
                owner = definition.qualname.rpartition(".")[0]
                yield self.made(name, "member", owner, assignment, link)

    def in_enum(self, assignment: Node) -> Definition | None:
        """The member of an enumeration that an assignment defines."""
        place = assignment.child_by_field_name("left")
        here = place.start_point.row + 1 if place is not None else 0
        around = {item.qualname: item for item in self.parsed.definitions}
        for definition in around.values():
            owner = around.get(definition.qualname.rpartition(".")[0])
            if definition.line == here and owner is not None and ENUM.search(owner.signature):
                return definition
        return None

    def keyed(self, name: str, argument: Node) -> Iterator[Registration]:
        """An entry that a keyword makes in a registry that is built by a call: ``REGISTRY = Lazy(name="Class")``."""
        call = argument.parent.parent if argument.parent is not None else None
        above = call.parent if call is not None else None
        registry = self.text(above.child_by_field_name("left")) if above is not None else ""
        value = argument.child_by_field_name("value")
        if call is not None and above is not None and above.type == "assignment" and LISTS.search(registry):
            link = self.leading(value) or self.alone(value)
            if link is not None:
                yield self.made(name, "entry", registry, argument, link)

    def own(self, name: str, definition: Node) -> Iterator[Registration]:
        """What a decorator without a name registers under its own."""
        above = definition.parent
        for mark in above.named_children if above is not None and above.type == "decorated_definition" else ():
            text = self.text(mark).lstrip("@ ")
            if mark.type == "decorator" and _is_bare(text):
                yield self.made(name, "decorator", text, mark, self.decorated(mark))

    def group(self, name: str, assignment: Node) -> Iterator[Registration]:
        """Where the entry points of a group are asked for, by a constant that holds its name."""
        left = assignment.child_by_field_name("left")
        constant = self.text(left)
        if not constant.isupper() or "." not in name:
            return
        files = files_with(self.index, constant, pin=self.parsed.pin)
        for parsed in parse_each(self.index, files):
            for node in parsed.words(constant):
                call = _call_around(node)
                function = parsed.text(call.child_by_field_name("function")) if call is not None else ""
                if LOADS.search(function):
                    yield _File(parsed).made(name, "group", function, node, None)

    # Targets

    def decorated(self, decorator: Node) -> Link | None:
        """A link to the definition under a decorator."""
        above = decorator.parent
        definition = above.child_by_field_name("definition") if above is not None else None
        name = definition.child_by_field_name("name") if definition is not None else None
        place = self.parsed.place(name) if name is not None else (0, 0)
        found = next((one for one in self.parsed.definitions if (one.line, one.column) == place), None)
        return Link(*place, place[1], found.name, found, None, "exact") if found is not None else None

    def leading(self, node: Node | None) -> Link | None:
        """The first class or function that an expression names, else what its strings name."""
        if node is None:
            return None
        for name in [node] if node.type == "identifier" else list(walk(node, "identifier")):
            above = name.parent
            part = above is not None and above.type == "attribute" and above.child_by_field_name("attribute") == name
            value = self.parsed.value(above if part and above is not None else name)
            found = defined(value)
            if value.kind == "entry" and found is not None and found.kind in KINDS:
                line, column = self.parsed.place(name)
                certainty = "exact" if value.sure else "inferred"
                return Link(line, column, column + len(found.name), found.name, found, None, certainty, value.why)
        return self.named(node)

    def named(self, node: Node) -> Link | None:
        """What strings name that a program imports by: ``"package.module.Class"``, or ``("module", "Class")``."""
        while node.type == "parenthesized_expression" and node.named_children:
            node = node.named_children[0]
        if node.type == "concatenated_string":
            return self.spelt([node], "")
        return self.spelt([node] if node.type == "string" else node.named_children)

    def spelt(self, nodes: list[Node], between: str = ".") -> Link | None:
        """What the first strings of some nodes spell together."""
        strings = [node for node in nodes if node.type == "string"]
        if not between:
            strings, nodes = [kid for node in nodes for kid in node.named_children], nodes[:1]
        texts = [self.parsed.literal(string) or "" for string in strings[:2] if strings]
        module, _, name = (between or "").join(texts).rpartition(".")
        if not module:
            return None
        found = [one for one in self.index.find(name, pin=self.parsed.pin, loose=False) if one.name == name]
        fits = [one for one in found if one.kind in KINDS and f".{one.module}".endswith(f".{module}")]
        return self.inferred(strings[0], name, fits)

    def alone(self, node: Node | None) -> Link | None:
        """The only class of the pin that a string names."""
        name = self.parsed.literal(node) or ""
        found = self.index.find(name, pin=self.parsed.pin, kind="class", loose=False) if name.isidentifier() else []
        return self.inferred(node, name, [one for one in found if one.name == name]) if node is not None else None

    def inferred(self, node: Node, name: str, fits: list[Definition]) -> Link | None:
        """A link by a text, where it names one thing."""
        line, column = self.parsed.place(node)
        where = (line, column, column)
        return Link(*where, name, fits[0], None, "inferred", "by the text of its name") if len(fits) == 1 else None

    def made(self, name: str, how: str, registry: str, place: Node, link: Link | None, role: str = "") -> Registration:
        """A registration at a place of this file."""
        where = (self.parsed.pin, self.parsed.path, *self.parsed.place(place))
        target = link.target if link is not None else None
        certainty = link.certainty if link is not None else "exact" if how == "group" else "unresolved"
        return Registration(name, how, registry, *where, self.parsed.line(place), target, certainty, role)


def _is_target(subscript: Node) -> bool:
    """Whether something is assigned to an item."""
    above = subscript.parent
    return above is not None and above.type == "assignment" and above.child_by_field_name("left") == subscript


def _call_around(node: Node) -> Node | None:
    """The call that a name is an argument of."""
    above = node.parent
    while above is not None and above.type in ("attribute", "keyword_argument"):
        above = above.parent
    return above.parent if above is not None and above.type == "argument_list" else None
