"""What reads a configuration key, file by file: by the class of the object, else by names alone.

A read is ``exact`` where the class of the object is known and has the field. It is ``inferred`` where an object is
called configuration, arguments or the like and the chain of names ends like the key, or where the object is called like
the section. Apart from ``configuration``, which says where a key is declared, because this needs syntax trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from annotator.index.parsed import Parsed, arguments, defined, files_with, parse_each
from annotator.index.values import is_class

if TYPE_CHECKING:
    from tree_sitter import Node

    from annotator.index.composition import Key
    from annotator.index.lookup import Index
    from annotator.index.model import Definition
    from annotator.index.values import Value

    Place = tuple[str, str, int, int]

HOLDER = re.compile(r"^(?:(?P<stem>\w*)_)?(config|configs|cfg|conf|args|arguments|options|settings|hparams)$")
GENERIC = frozenset(("", "self", "base", "global", "training", "train", "script", "trainer", "full", "omega", "new"))
READERS = frozenset(("get", "pop", "setdefault", "getattr", "hasattr", "setattr", "open_dict"))
ATTRIBUTE = re.compile(rb"\.\s*$")
OWN = re.compile(rb"\bself\.\s*$")
CALLED, KEYWORD, QUOTED = re.compile(rb"\s*\("), re.compile(rb"\s*=[^=]"), re.compile(rb"[\"']\s*(?:[\]),]|in\b)")
HANDS_ON = ("argument_list", "call", "subscript", "parenthesized_expression", "conditional_expression")
"""What a read may stand in and still be what an assignment keeps; of calls only some."""

TYPES = frozenset(("float", "int", "bool", "str", "list", "tuple", "dict", "set", "deepcopy"))

SELECTS = re.compile(r"(^|\.)OmegaConf\.(select|update)$")


@dataclass(frozen=True, slots=True)
class Read:
    """One place of the code, or of a YAML file, that takes a key's value.

    ``how`` may also be ``set``, or ``copy``: a read of the attribute that keeps it.
    """

    key: str
    how: str
    pin: str
    path: str
    line: int
    column: int
    text: str
    within: str
    certainty: str
    reason: str


@dataclass(frozen=True)
class Wanted:
    """What is asked for: the last name of a key, the full keys that a pin's applications have, and the fields."""

    name: str
    keys: dict[str, list[Key]]
    fields: dict[Place, Definition]

    @cached_property
    def owners(self) -> list[str]:
        """The classes that have the field, by their qualified names."""
        return list(dict.fromkeys(field.qualname.rpartition(".")[0] for field in self.fields.values()))

    @cached_property
    def _classes(self) -> re.Pattern[bytes] | None:
        names = sorted({owner.rpartition(".")[2] for owner in self.owners})
        return re.compile(rf"\b({'|'.join(names)})\b".encode()) if names else None

    def names_class(self, source: bytes) -> bool:
        """Whether a file names one of the classes."""
        return self._classes is not None and self._classes.search(source) is not None


def reads(index: Index, wanted: Wanted) -> Iterator[Read]:
    """The reads of a key in all files of its pins, file by file."""
    tails = {".".join(key[at:]) for keys in wanted.keys.values() for key in keys for at in range(len(key))}
    words = (wanted.name, *(f'"{tail}' for tail in {wanted.name, *tails}))
    word = re.compile(rb"\b%s\b" % wanted.name.encode())
    for pin in sorted(set(wanted.keys) | {field.pin for field in wanted.fields.values()}):
        for file in files_with(index, *words, pin=pin):
            data = index.resolver.read(*file)
            typed = wanted.names_class(data)
            if any(_may_read(data, match, typed) for match in word.finditer(data)):
                for parsed in parse_each(index, [file]):
                    yield from Reader(wanted, parsed).reads()


class Reader:
    """The reads of a key in one file."""

    def __init__(self, wanted: Wanted, parsed: Parsed) -> None:
        self.wanted, self.parsed, self.name = wanted, parsed, wanted.name
        self.keys = wanted.keys.get(parsed.pin, [])
        self.typed = wanted.names_class(parsed.source)

    def reads(self) -> Iterator[Read]:
        """All of them, in the order of the source."""
        for node in self.parsed.words(self.name):
            above = node.parent
            if above is None:
                continue
            if node.type == "string_content":
                text = self.parsed.literal(above)
                if text is not None and text.rpartition(".")[2] == self.name:
                    yield from self.string(above, text)
            elif above.type == "attribute" and above.child_by_field_name("attribute") == node:
                yield from self.attribute(above)
            elif above.type == "keyword_argument" and above.child_by_field_name("name") == node and self.typed:
                yield from self.keyword(above)

    def attribute(self, node: Node) -> Iterator[Read]:
        """``config.clip_ratio``: by the class of the object, else by the names before it."""
        before = node.child_by_field_name("object")
        if before is None or _is_called(node):
            return
        how = "set" if _is_assigned(node) else "attribute"
        yield from self.taken(node, before, (), how)

    def keyword(self, node: Node) -> Iterator[Read]:
        """``GRPOConfig(beta=0.1)`` sets a field."""
        call = node.parent.parent if node.parent is not None else None
        function = call.child_by_field_name("function") if call is not None else None
        value = self.parsed.value(function) if function is not None else None
        if value is not None and is_class(value) and (read := self.by_class(node, value, "set")):
            yield read

    def taken(self, node: Node, before: Node, inner: tuple[str, ...], how: str) -> Iterator[Read]:
        """A read from an object, and those of the attribute that keeps what was read."""
        for read in self.from_object(node, before, inner, how):
            yield read
            if how != "set":
                yield from self.kept(node, read)

    def kept(self, node: Node, read: Read) -> Iterator[Read]:
        """Reads of ``self.x`` in the class where ``self.x = config.x`` keeps a value."""
        value, above = node, node.parent
        while above is not None and self.hands_on(above):
            value, above = above, above.parent
        left = above.child_by_field_name("left") if above is not None and above.type == "assignment" else None
        text = self.parsed.text(left)
        if above is None or above.child_by_field_name("right") != value or not re.fullmatch(r"self\.\w+", text):
            return
        owner = above
        while owner.parent is not None and owner.type != "class_definition":
            owner = owner.parent
        for word in self.parsed.words(text.removeprefix("self."), owner):
            use = word.parent
            if use is not None and self.parsed.text(use) == text and use != left and not _is_assigned(use):
                yield self.made(read.key, "copy", use, "inferred", f"kept as {text} on line {read.line}")

    def hands_on(self, node: Node) -> bool:
        """Whether what an expression stands in has its value, or its value as another type."""
        function = self.parsed.text(node.child_by_field_name("function")).rpartition(".")[2]
        return node.type in HANDS_ON and (node.type != "call" or function in READERS or function in TYPES)

    def from_object(self, node: Node, before: Node, inner: tuple[str, ...], how: str) -> Iterator[Read]:
        """A read from an object: by its class where that is plain, else by names."""
        program = self.parsed.index.resolver.program
        value = self.parsed.value(before)
        for name in inner:
            value = program.result(program.attribute(value, name))
        for one in value.items if value.kind == "union" else (value,):
            plain = one.kind == "instance" or is_class(one)
            if plain and (read := self.by_class(node, one, how)) is not None:
                yield read if one is value else replace(read, certainty="inferred", reason=value.why)
                return
        if value.kind not in ("instance", "union", "entry", "module"):
            yield from self.named(node, before, inner, how)

    def string(self, string: Node, text: str) -> Iterator[Read]:
        """``config["x"]``, ``config.get("x")``, ``getattr(config, "x")``, ``OmegaConf.select(config, "a.x")``."""
        before, above, how = None, string.parent, "item"
        if above is None:
            return
        if above.type == "subscript":
            before = above.child_by_field_name("value")
            how = "set" if _is_assigned(above) else how
        elif above.type == "comparison_operator" and "in" in [kid.type for kid in above.children]:
            before = above.named_children[-1] if above.named_children[0] == string else None
        elif above.type == "argument_list" and above.parent is not None and above.parent.type == "call":
            before, how = self.handed(string, above.parent)
        if before is not None and before != string:
            *inner, _ = text.split(".")
            yield from self.taken(string, before, tuple(inner), how)

    def handed(self, string: Node, call: Node) -> tuple[Node | None, str]:
        """The object that a call asks for a key."""
        function, given = call.child_by_field_name("function"), arguments(call)
        text = self.parsed.text(function)
        if SELECTS.search(text) or text in ("getattr", "hasattr", "setattr"):
            return (given[0] if len(given) > 1 and given[1] == string else None), text.rpartition(".")[2]
        method = text.rpartition(".")[2]
        if function is not None and function.type == "attribute" and method in READERS and given[:1] == [string]:
            return function.child_by_field_name("object"), method
        return None, ""

    def by_class(self, node: Node, value: Value, how: str) -> Read | None:
        """The read of a field of a class or of its object; ``None`` if it is not one of those asked for."""
        member = self.parsed.index.resolver.program.attribute(value, self.name)
        found = defined(member)
        field = self.wanted.fields.get(place_of(found)) if found is not None else None
        if field is None:
            return None
        certainty = "exact" if member.sure else "inferred"
        return self.made(field.qualname, how, node, certainty, member.why or "by the class of the object")

    def named(self, node: Node, before: Node, inner: tuple[str, ...], how: str) -> Iterator[Read]:
        """A read by names alone: of an object that is called configuration, by a chain that ends like the key."""
        chain, through = self.chain(before)
        holders = [at for at, part in enumerate(chain) if HOLDER.search(part)]
        if not holders:
            section = next((key for key in self.keys if chain and key[-len(chain) - 1 : -1] == (*chain,)), None)
            if section is not None and not inner:
                yield self.made(".".join(section), how, node, "inferred", f"it is called like the section {chain[-1]}")
            return
        if how == "set" and node.type == "string" and chain[holders[-1]] == "args":
            return  # a dictionary of arguments that is being filled
        held, rest = chain[holders[-1]], (*chain[holders[-1] + 1 :], *inner)
        match = HOLDER.search(held)
        stem = (match["stem"] or "").strip("_") if match else ""
        key = self.fitting(stem, rest)
        if key is None:
            return
        reason = f"by name: {'.'.join((held, *rest, self.name))}"
        yield self.made(key, how, node, "inferred", reason + (f" through {through}" if through else ""))

    def fitting(self, stem: str, rest: tuple[str, ...]) -> str | None:
        """The key that a chain may read: the names after the holder end it, the holder's own name is part of it."""
        for key in self.keys:
            above = key[:-1]
            if rest and above[-len(rest) :] != rest:
                continue
            if stem in GENERIC or any(alike(stem, part) for part in above[: len(above) - len(rest)]):
                return ".".join(key)
        owner = next(
            (owner for owner in self.wanted.owners if not rest and (stem in GENERIC or alike(stem, owner))), None
        )
        return f"{owner}.{self.name}" if owner else None

    def chain(self, node: Node) -> tuple[list[str], str]:
        """The names of an expression from its head on, a local variable of the function followed once."""
        names = self.spelt(node)
        if not names or any(HOLDER.search(name) for name in names):
            return names, ""
        right = self.assigned(node)
        return ([*self.spelt(right), *names[1:]], names[0]) if right is not None else (names, "")

    def assigned(self, node: Node) -> Node | None:
        """What the variable at the head of an expression is assigned, if that is done once."""
        while node.type != "identifier" and node.named_children:
            node = node.named_children[0]
        bound = self.parsed.bindings(node) if node.type == "identifier" else []
        return bound[0].value if len(bound) == 1 and bound[0].part is None else None

    def spelt(self, node: Node | None) -> list[str]:
        """Names of ``a.b["c"].get("d")``; empty if it is anything else."""
        if node is None:
            return []
        if node.type == "identifier":
            return [self.parsed.text(node)]
        if node.type == "attribute":
            head = self.spelt(node.child_by_field_name("object"))
            return [*head, self.parsed.text(node.child_by_field_name("attribute"))] if head else []
        if node.type == "subscript":
            key = self.parsed.literal(node.child_by_field_name("subscript"))
            head = self.spelt(node.child_by_field_name("value"))
            return [*head, key] if head and key else []
        if node.type == "call":
            function, given = node.child_by_field_name("function"), arguments(node)
            name, by = self.parsed.text(function), 1 if self.parsed.text(function) == "getattr" else 0
            key = self.parsed.literal(given[by]) if len(given) > by else None
            if key and function is not None and (by or name.endswith(".get")):
                head = self.spelt(given[0] if by else function.child_by_field_name("object"))
                return [*head, key] if head else []
        if node.type in ("boolean_operator", "parenthesized_expression"):
            return self.spelt(node.named_children[0])
        return []

    def made(self, key: str, how: str, node: Node, certainty: str, reason: str) -> Read:
        """A read at a place of this file."""
        at = node.child_by_field_name("attribute") if node.type == "attribute" else node
        where = (self.parsed.pin, self.parsed.path, *self.parsed.place(at or node))
        text = self.parsed.lines[where[2] - 1].decode("utf-8", "replace").strip()
        return Read(key, how, *where, text, self.parsed.within(node), certainty, reason)


def _may_read(data: bytes, match: re.Match[bytes], typed: bool) -> bool:
    """Whether the text around a word may read it as a key; ``typed``: its file names a class with that field."""
    before, after = data[max(0, match.start() - 80) : match.start()], data[match.end() : match.end() + 20]
    if ATTRIBUTE.search(before):
        return not CALLED.match(after) and (typed or not OWN.search(before))
    return bool(QUOTED.match(after)) or (typed and bool(KEYWORD.match(after)))


def alike(stem: str, name: str, *, whole: bool = False) -> bool:
    """Whether a variable's name may stand for a section or a class: ``actor`` for ``FSDPActorConfig``."""
    first, second = (part.replace("_", "").lower() for part in (stem, name))
    return first == second if whole else bool(first) and (first in second or second in first)


def place_of(item: Definition) -> Place:
    """Where a definition is."""
    return item.pin, item.path, item.line, item.column


def _is_assigned(node: Node) -> bool:
    above = node.parent
    kinds = ("assignment", "augmented_assignment")
    return above is not None and above.type in kinds and above.child_by_field_name("left") == node


def _is_called(node: Node) -> bool:
    above = node.parent
    return above is not None and above.type == "call" and above.child_by_field_name("function") == node
