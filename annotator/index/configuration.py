"""Where a configuration key is declared and which code reads it: ``actor.clip_ratio``, ``GRPOConfig.beta``.

A key is declared by Hydra's YAML files (``composition``), by the dataclass that a section becomes through its
``_target_``, by the fields of configuration classes, and by a command line option. What reads it is found by ``reads``;
here its reads are sorted, and YAML that takes its value is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from annotator.errors import near_matches
from annotator.index.composition import Setting, refers, settings
from annotator.index.lookup import ASIDE
from annotator.index.model import Definition
from annotator.index.parsed import Parsed, defined, parse_each, walk
from annotator.index.reads import Read, Wanted, alike, place_of, reads

if TYPE_CHECKING:
    from annotator.index.composition import Key
    from annotator.index.lookup import Index
    from annotator.index.values import Value

CLASSES = re.compile(r"(Config|Configuration|Args|Arguments|Options|Settings)$")
MARKS = re.compile(r"(^|\.)(config$|config\(|\w*dataclass)")


@dataclass(frozen=True, slots=True)
class Declared:
    """One place that declares a key.

    Attributes:
        key: its full name in a composed configuration, or ``Class.field``.
        how: ``yaml``, ``section``, ``mount`` (a defaults list puts a file there), ``field``, ``option`` (``--name``).
        text: the value as it is written, or the field's line.
        note: in which application and under which choice it holds, and whether it is overridden.
        target: the field that a YAML key becomes, the class of a section, the field that a default is taken from.
        refers: what an interpolation leads to, as ``key path:line value``.
    """

    key: str
    how: str
    pin: str
    path: str
    line: int
    column: int
    text: str
    certainty: str
    reason: str
    note: str = ""
    target: Definition | None = None
    refers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configured:
    """The answer: declarations, those in effect first, and reads, exact ones first, then the closest files."""

    declared: tuple[Declared, ...]
    reads: tuple[Read, ...]


def configured(index: Index, key: str, pin: str | None = None) -> Configured:
    """Where a full or partial key is declared and read; both are empty for an unknown one."""
    question = _Question(index, key, pin)
    return Configured(tuple(question.declarations()), tuple(question.reads()))


def near(index: Index, key: str, pin: str | None = None) -> tuple[str, ...]:
    """Keys that are spelt much like one that does not exist."""
    parts = _parts(key)
    known = {setting.key[-1]: setting.dotted for each in _pins(index, pin) for setting in settings(index, each)}
    span = (parts[-1][:2], parts[-1][:2] + "\U0010ffff", len(parts[-1]))
    query = "SELECT DISTINCT name FROM definitions WHERE name >= ? AND name < ? AND abs(length(name) - ?) <= 3"
    others = [name for (name,) in index.connection.execute(query + " AND kind='attribute'", span)]
    fields = {name for name in near_matches(parts[-1], others, 6) if _fields(index, (name,), pin)}
    found = near_matches(parts[-1], {*known, *fields})
    return tuple(known.get(name, name) for name in found)


class _Question:
    """One key asked for: the settings and fields that it names."""

    def __init__(self, index: Index, key: str, pin: str | None) -> None:
        self.index, self.pin, self.parts = index, pin, _parts(key)
        self.composed = {each: settings(index, each) for each in _pins(index, pin)}
        self.targets = {each: _targets(composed) for each, composed in self.composed.items()}
        self.fields = {place_of(field): field for field in _fields(index, self.parts, pin)}
        self.found: list[tuple[str, Setting]] = []
        for each, composed in self.composed.items():
            named = _named(composed, self.parts) or self._of_fields(each, composed)
            self.found += [(each, setting) for setting in _once(named)]
        for each, setting in self.found:
            if (field := self.field(each, setting)) is not None:
                self.fields.setdefault(place_of(field), field)

    def _of_fields(self, pin: str, composed: list[Setting]) -> list[Setting]:
        """Settings that become one of the fields: ``ActorConfig.clip_ratio`` asked for, the YAML key found."""
        if not self.fields:
            return []
        same = [setting for setting in composed if setting.key[-1] == self.parts[-1]]
        return [setting for setting in same if (field := self.field(pin, setting)) and place_of(field) in self.fields]

    def target(self, pin: str, section: Key, choice: str) -> Definition | None:
        """The class that a section becomes: that of its ``_target_``, else that of the field which holds it."""
        dotted = self.targets[pin].get((section, choice)) or self.targets[pin].get((section, ""))
        if dotted or not section:
            return self.index.resolver.exported(pin, dotted) if dotted else None
        held = self.member(self.target(pin, section[:-1], choice), section[-1])
        value = self.index.resolver.program.result(held) if held is not None else None
        return defined(value) if value is not None and value.kind == "instance" else None

    def field(self, pin: str, setting: Setting) -> Definition | None:
        """The field that a setting becomes."""
        return defined(self.member(self.target(pin, setting.key[:-1], setting.choice), setting.key[-1]))

    def member(self, owner: Definition | None, name: str) -> Value | None:
        """A member of a class, inherited ones too."""
        if owner is None or owner.kind != "class":
            return None
        program = self.index.resolver.program
        value = program.owner(program.source(self.index.resolver.file(owner.pin, owner.path)[0]), owner.qualname)
        return program.attribute(value, name) if value is not None else None

    # Declarations

    def declarations(self) -> Iterator[Declared]:
        """Where the key is declared: in YAML, in classes, on the command line."""
        order = sorted(self.found, key=lambda one: (bool(one[1].choice), one[1].overridden, one[1].kind == "mount"))
        for pin, setting in order:
            yield self._of_setting(pin, setting)
        for field in sorted(self.fields.values(), key=lambda one: (bool(ASIDE.search(one.path)), one.symbol)):
            yield self._of_field(field)
        yield from self._options()

    def _of_setting(self, pin: str, setting: Setting) -> Declared:
        how = "yaml" if setting.kind == "value" else setting.kind
        target, reason = self.field(pin, setting), "by the place of its file in the composed configuration"
        if setting.kind != "value":
            target = self.target(pin, setting.key, setting.choice) or target
        elif setting.key[-1] == "_target_":
            target = self.index.resolver.exported(pin, setting.value)
        notes = [f"in {setting.primary}"] if setting.primary != setting.path else []
        notes += [f"if {setting.choice}"] if setting.choice else []
        notes += ["overridden"] if setting.overridden else []
        where = (pin, setting.path, setting.line, setting.column)
        refers_to = tuple(self._followed(pin, setting))
        return Declared(
            setting.dotted, how, *where, setting.value, "exact", reason, ", ".join(notes), target, refers_to
        )

    def _followed(self, pin: str, setting: Setting) -> Iterator[str]:
        """What the interpolations of a value lead to, hop by hop."""
        waiting, seen = refers(setting), {setting.key}
        while waiting and len(seen) < 8:
            key = waiting.pop(0)
            if key in seen:
                continue
            seen.add(key)
            same = [one for one in self.composed[pin] if one.key == key and not one.overridden]
            there = next((one for one in same if one.primary == setting.primary), next(iter(same), None))
            if there is None:
                yield f"{'.'.join(key)} is not declared"
            else:
                yield f"{there.dotted} {there.path}:{there.line} {there.value}".rstrip()
                waiting += refers(there)

    def _of_field(self, field: Definition) -> Declared:
        plain = re.search(r"= [A-Za-z_]\w*\.[\w.]+$", field.signature)
        parsed = next(parse_each(self.index, [(field.pin, field.path)]), None) if plain else None
        target = _default(parsed, field) if parsed is not None else None
        where = (field.pin, field.path, field.line, field.column)
        return Declared(field.qualname, "field", *where, field.signature, "exact", "", "", target)

    def _options(self) -> Iterator[Declared]:
        """Options of a command line that are spelt like the key, in the files of its fields."""
        option = f"--{self.parts[-1].replace('_', '-')}"
        files = sorted({(field.pin, field.path) for field in self.fields.values()})
        spelt = [file for file in files if option.encode() in self.index.resolver.read(*file)]
        for parsed in parse_each(self.index, spelt):
            for string in parsed.strings([option]):
                where = (parsed.pin, parsed.path, *parsed.place(string))
                yield Declared(option, "option", *where, parsed.line(string), "inferred", "by its spelling")

    # Reads

    def reads(self) -> list[Read]:
        """Where the key is read: in code, and by interpolations."""
        if not self.found and not self.fields:
            return []
        keys: dict[str, list[Key]] = {}
        for pin, setting in self.found:
            keys.setdefault(pin, []).append(setting.key)
        found = list(reads(self.index, Wanted(self.parts[-1], keys, self.fields)))
        found += self._interpolations()
        homes = [field.path for field in self.fields.values()] + [setting.path for _, setting in self.found]
        once = {(read.pin, read.path, read.line, read.key, read.how): read for read in reversed(found)}
        return sorted(once.values(), key=lambda read: _distance(read, homes))

    def _interpolations(self) -> Iterator[Read]:
        """YAML values that take theirs from the key."""
        keys = {(pin, setting.key) for pin, setting in self.found}
        for pin, composed in self.composed.items():
            for setting in _once(composed):
                if "${" in setting.value and any((pin, key) in keys for key in refers(setting)):
                    key = next(key for key in refers(setting) if (pin, key) in keys)
                    where = (pin, setting.path, setting.line, setting.column)
                    text = f"{setting.key[-1]}: {setting.value}"
                    yield Read(".".join(key), "interpolation", *where, text, setting.dotted, "exact", "")


def _parts(key: str) -> tuple[str, ...]:
    """The parts of a key; an option of the command line is spelt as the field that it sets."""
    plain = key.strip().lstrip("-+~").split("=")[0]
    if key.startswith("--") or "." not in plain:
        plain = plain.replace("-", "_")
    return tuple(part for part in plain.split(".") if part) or ("",)


def _pins(index: Index, pin: str | None) -> list[str]:
    return [each for each in index.pins() if pin in (None, each)]


def _named(composed: list[Setting], parts: tuple[str, ...]) -> list[Setting]:
    """Settings that a key names: in full, else by its end, else with gaps."""
    same_end = [setting for setting in composed if setting.key[-1] == parts[-1]]
    for fits in (
        lambda key: key == parts,
        lambda key: key[-len(parts) :] == parts,
        lambda key: _in_order(parts, key),
    ):
        if found := [setting for setting in same_end if fits(setting.key)]:
            return found
    return [setting for setting in composed if setting.kind == "value" and setting.value == ".".join(parts)]


def _in_order(parts: tuple[str, ...], key: Key) -> bool:
    """Whether all parts occur in a key in that order."""
    rest = iter(key)
    return all(part in rest for part in parts)


def _once(found: Iterable[Setting]) -> list[Setting]:
    """Each place of a key once: without a choice if there is such, in the application that comes first."""
    kept: dict[tuple[object, ...], Setting] = {}
    for setting in found:
        place = (setting.key, setting.path, setting.line)
        if place not in kept or (kept[place].choice and not setting.choice):
            kept[place] = setting
    return list(kept.values())


def _targets(composed: list[Setting]) -> dict[tuple[Key, str], str]:
    """The ``_target_`` of each section by choice, as the first application has it."""
    found: dict[tuple[Key, str], str] = {}
    for setting in composed:
        if setting.key[-1] == "_target_" and setting.kind == "value" and not setting.overridden:
            found.setdefault((setting.key[:-1], setting.choice), setting.value)
    return found


def _fields(index: Index, parts: tuple[str, ...], pin: str | None) -> list[Definition]:
    """Fields of configuration classes that a key names by itself, or after a class or what is called like one."""
    name, owner = parts[-1], parts[-2] if len(parts) > 1 else ""
    if not name.isidentifier() or len(parts) > 2:
        return []
    found = [one for one in index.find(name, pin=pin, kind="attribute", limit=400, loose=False) if one.name == name]
    return [
        field
        for field in found
        if field.signature.startswith(f"{name}:")
        and (not owner or alike(owner, field.qualname.rpartition(".")[0].rpartition(".")[2], whole=True))
        and _configures(index, field)
    ]


def _configures(index: Index, field: Definition) -> bool:
    """Whether the class of a field is one of configuration: by its name or its decorators."""
    owner = field.qualname.rpartition(".")[0]
    if CLASSES.search(owner):
        return True
    around = index.definitions(field.pin, field.path)
    marks = next((item.decorators for item in around if item.qualname == owner and item.kind == "class"), ())
    return any(MARKS.search(mark) for mark in marks)


def _default(parsed: Parsed, field: Definition) -> Definition | None:
    """The field of another class that a field takes its default from."""
    for assignment in walk(parsed.tree.root_node, "assignment"):
        right = assignment.child_by_field_name("right")
        if assignment.start_point.row + 1 == field.line and right is not None:
            return defined(parsed.means(parsed.text(right), assignment))
    return None


def _shared(first: str, second: str) -> int:
    """How many folders two paths begin with in common."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first.split("/"), second.split("/"), strict=False))
    )


def _distance(read: Read, homes: list[str]) -> tuple[object, ...]:
    """Sort key: exact first, code before tests, then by how much of the path is shared with a declaration."""
    shared = max((_shared(read.path, home) for home in homes), default=0)
    order = ("exact", "inferred", "unresolved").index(read.certainty)
    aside = bool(ASIDE.search(read.path))
    return order, read.how == "interpolation", aside, -shared, read.pin, read.path, read.line, read.column
