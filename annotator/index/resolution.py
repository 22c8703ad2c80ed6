"""What a name means across files: imports, re-exports, stars, inheritance, and classes that are plain from annotations.

Everything here works on the store alone; no other file is parsed to resolve one. The rule is to say ``unresolved``
rather than to link falsely: where several bindings lead to different places, none is exact.
"""

from __future__ import annotations

import builtins
import re
import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from annotator.index.model import Definition

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__path__", "__annotations__", "reveal_type", "WindowsError"}
OBJECT = frozenset(dir(object)) | {"__dict__", "__module__"}
CLASS_ATTRIBUTES = frozenset(dir(type)) | {"__annotations__"}
NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
WRAPPER = re.compile(
    r"(?:typing\.|typing_extensions\.|t\.)?(Optional|Annotated|ClassVar|Final|Required|NotRequired|InitVar)\s*\[(.*)\]\s*$",
    re.S,
)
MAX_CLASSES = 60


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression stands for, as far as it is plain.

    ``kind``: ``entry`` (a definition), ``instance`` (of the class ``entry``), ``super`` (the bases of the class
    ``entry``), ``module`` (``name`` in ``pin``), ``external`` and ``external instance`` (``name``), ``unknown``.
    ``sure`` is false once a step was inferred rather than followed; ``why`` is the reason of an unknown or unsure one.
    """

    kind: str
    file: Source | None = None
    entry: Entry | None = None
    name: str = ""
    pin: str = ""
    sure: bool = True
    why: str = ""

    def unsure(self, why: str) -> Value:
        """The same, marked as inferred."""
        return replace(self, sure=False, why=self.why or why)


def unknown(why: str) -> Value:
    """A value of which nothing is known, and why."""
    return Value("unknown", why=why, sure=False)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A definition as the store has it."""

    ordinal: int
    name: str
    qualname: str
    kind: str
    line: int
    column: int
    end_line: int
    signature: str
    doc: str
    decorators: str
    hint: str


class Source:
    """One Python file of the store, with what it defines and imports, loaded when first asked for."""

    def __init__(
        self, connection: sqlite3.Connection, number: int, pin: str, path: str, module: str, language: str
    ) -> None:
        self.number, self.pin, self.path, self.module, self.language = number, pin, path, module, language
        self.package = path.rpartition("/")[2].startswith("__init__.")
        self.entries: dict[str, list[Entry]] = {}
        query = f"SELECT {', '.join(Entry.__slots__)} FROM definitions WHERE file=? ORDER BY ordinal"
        for row in connection.execute(query, (number,)):
            self.entries.setdefault(row[2], []).append(Entry(*row))
        self.imports: dict[str, dict[str, list[tuple[str, str, int]]]] = {}
        self.stars: list[tuple[str, int]] = []
        query = "SELECT name, module, member, level, scope FROM imports WHERE file=? ORDER BY ordinal"
        for name, origin, member, level, scope in connection.execute(query, (number,)):
            if name == "*":
                self.stars.append((origin, level))
            else:
                self.imports.setdefault(scope, {}).setdefault(name, []).append((origin, member, level))

    def absolute(self, origin: str, level: int) -> str:
        """The absolute name of a module that an import statement of this file names."""
        if not level:
            return origin
        parts = self.module.split(".")
        kept = parts[: len(parts) - level + self.package] if level - self.package <= len(parts) else []
        return ".".join([*kept, origin] if origin else kept)

    def definition(self, entry: Entry) -> Definition:
        """The definition that an entry is."""
        marks = tuple(entry.decorators.split("\n")) if entry.decorators else ()
        return Definition(
            self.pin, self.path, self.module, entry.qualname, entry.name, entry.kind, entry.line, entry.column,
            entry.end_line, entry.signature, entry.doc, self.language, marks,
        )  # fmt: skip


class Program:
    """All files of the store as one program: finds modules, members, classes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.sources: dict[int, Source] = {}
        self.numbers: dict[tuple[str, str], list[int]] = {}
        self.existing: dict[tuple[str, str], bool] = {}
        self.globals: dict[tuple[int, str], Value | None] = {}
        self.linear: dict[tuple[int, int], tuple[list[tuple[Source, Entry]], list[str]]] = {}
        self.active: set[tuple[object, ...]] = set()
        self.tops: dict[str, list[str]] = {}
        query = "SELECT DISTINCT substr(module, 1, instr(module || '.', '.') - 1), pin FROM files WHERE module != ''"
        for top, pin in connection.execute(query):
            self.tops.setdefault(top, []).append(pin)

    def exists(self, pin: str, module: str) -> bool:
        """Whether a pin has a module or a package of that name."""
        key = (pin, module)
        if key not in self.existing:
            query = "SELECT 1 FROM files WHERE module >= ? AND module < ? AND +pin = ? LIMIT 1"
            spans = ((module, module + "\0"), (module + ".", module + "/"))
            self.existing[key] = any(self.connection.execute(query, (*span, pin)).fetchone() for span in spans)
        return self.existing[key]

    def source(self, number: int) -> Source:
        """One file, loaded once."""
        if number not in self.sources:
            query = "SELECT id, pin, path, module, language FROM files WHERE id=?"
            self.sources[number] = Source(self.connection, *self.connection.execute(query, (number,)).fetchone())
        return self.sources[number]

    def files_of(self, pin: str, module: str) -> list[Source]:
        """Files of a module: the source first, then its stub."""
        key = (pin, module)
        if key not in self.numbers:
            query = "SELECT id FROM files WHERE module=? AND pin=? ORDER BY path LIKE '%.pyi', id"
            self.numbers[key] = [number for (number,) in self.connection.execute(query, (module, pin))]
        return [self.source(number) for number in self.numbers[key]]

    def module(self, dotted: str, pin: str) -> Value:
        """A module by its absolute name, seen from ``pin``: that pin first, then the one named like it, then any."""
        top = dotted.partition(".")[0]
        pins = self.tops.get(top)
        if not pins:
            return Value("external", name=dotted) if dotted else unknown("an import beyond the top package")
        chosen = pin if pin in pins else top if top in pins else pins[0]
        if self.exists(chosen, dotted):
            return Value("module", name=dotted, pin=chosen)
        return unknown(f"the sources of {chosen} have no module {dotted}")

    def imported(self, file: Source, origin: str, member: str, level: int, bound: str) -> Value:
        """What an import statement of ``file`` binds to the name ``bound``."""
        dotted = file.absolute(origin, level)
        if not member:
            top = dotted.partition(".")[0]
            return self.module(top if bound == top else dotted, file.pin)
        module = self.module(dotted, file.pin)
        if module.kind == "external":
            beside = self.beside(file, dotted) if not level else None
            if beside is None:
                return replace(module, name=f"{dotted}.{member}")
            module = beside
        if module.kind == "module":
            return self.member(module, member, file) or unknown(
                f"module {dotted} binds no {member} that the sources show"
            )
        return module

    def beside(self, file: Source, dotted: str) -> Value | None:
        """A module in the same folder, as scripts import their neighbours."""
        folder = file.module.rpartition(".")[0]
        name = f"{folder}.{dotted}"
        found = folder and not file.package and self.exists(file.pin, name)
        return Value("module", name=name, pin=file.pin, sure=False, why="a neighbouring file") if found else None

    def member(self, module: Value, name: str, asking: Source | None = None) -> Value | None:
        """What ``name`` is in a module: bound there, else a submodule, else by a star import, else in its stub."""
        for file in self.files_of(module.pin, module.name):
            if file is not asking and (found := self.global_name(file, name)):
                return found
        if self.exists(module.pin, f"{module.name}.{name}"):
            return Value("module", name=f"{module.name}.{name}", pin=module.pin)
        return None

    def global_name(self, file: Source, name: str) -> Value | None:
        """What a name means at the level of a module, or ``None`` if nothing there binds it."""
        key = (file.number, name)
        if key in self.globals:
            return self.globals[key]
        mark = ("global", *key)
        if mark in self.active:
            return None
        self.active.add(mark)
        try:
            value = self.bound(file, "", name) or self.starred(file, name)
        finally:
            self.active.discard(mark)
        self.globals[key] = value
        return value

    def bound(self, file: Source, scope: str, name: str) -> Value | None:
        """What the store says that ``name`` is bound to, directly in a scope."""
        entries = file.entries.get(f"{scope}.{name}" if scope else name, []) if name else []
        imports = file.imports.get(scope, {}).get(name, [])
        if not imports:
            return self.pick(file, entries) if entries else None
        values = [self.imported(file, *one, name) for one in imports]
        known = [value for value in values if value.kind != "unknown"] or values
        places = {place(value) for value in known}
        first = next((value for value in known if value.kind in ("entry", "module")), known[0])
        solid = [entry for entry in entries if entry.hint != "= None"]
        if len(places) == 1 and not solid:
            return first
        return first.unsure(f"one of {len(places) + len(solid)} bindings of the name")

    def pick(self, file: Source, entries: list[Entry]) -> Value:
        """Of several definitions of a name: no overload, no setter; else the first, unsure."""
        if len(entries) == 1:
            return Value("entry", file, entries[0])
        real = [entry for entry in entries if "overload" not in entry.decorators] or entries[:1]
        getters = [entry for entry in real if not re.search(r"\.(setter|deleter|register|getter)\b", entry.decorators)]
        chosen = getters or real
        solid = [entry for entry in chosen if entry.kind in ("class", "function", "method")] or chosen
        value = Value("entry", file, solid[0])
        return value if len(solid) == 1 else value.unsure(f"one of {len(solid)} definitions of the name")

    def starred(self, file: Source, name: str) -> Value | None:
        """What a star import binds."""
        if name.startswith("_") and name != "_C":
            return None
        for origin, level in reversed(file.stars):
            module = self.module(file.absolute(origin, level), file.pin)
            if module.kind == "module" and (found := self.member(module, name, file)):
                return found
        return None

    def name_in(self, file: Source, scope: str, name: str) -> Value | None:
        """What a name means in a scope given by its qualname, by definitions and imports alone."""
        first = True
        while scope:
            owner = file.entries.get(scope)
            if (first or (owner and owner[0].kind != "class")) and (found := self.bound(file, scope, name)):
                return found
            scope, first = scope.rpartition(".")[0], False
        if found := self.global_name(file, name):
            return found
        return Value("external", name=f"builtins.{name}") if name in BUILTINS else None

    def dotted(self, file: Source, scope: str, text: str) -> Value:
        """What a dotted expression means in a scope."""
        head, *rest = text.split(".")
        value = self.name_in(file, scope, head)
        for name in rest:
            if value is None:
                break
            value = self.attribute(value, name)
        return value or unknown(f"nothing binds {head}")

    def annotation(self, file: Source, scope: str, text: str, owner: Value | None = None) -> Value:
        """An object of the type that an annotation names; a union counts only if all but ``None`` is one class."""
        text = text.strip().strip("\"'").strip()
        if match := WRAPPER.match(text):
            return self.annotation(file, scope, (top_level(match[1], ",") or [""])[0], owner)
        if match := re.match(r"(?:typing\.)?Union\s*\[(.*)\]\s*$", text, re.S):
            parts = top_level(match[1], ",")
        else:
            parts = top_level(text, "|")
        parts = [part for part in parts if part not in ("None", "")]
        if len(parts) > 1:
            return unknown("its annotation names several classes")
        head = NAME.match(parts[0]) if parts else None
        if not head:
            return unknown("its annotation names no class")
        if parts[0] != text:
            return self.annotation(file, scope, parts[0], owner)
        if head[0].rpartition(".")[2] == "Self":
            return owner or unknown("Self outside a class")
        if head[0] in ("type", "Type", "typing.Type") and "[" in text:
            inner = self.annotation(file, scope, text[text.index("[") + 1 : -1], owner)
            return (
                Value("entry", inner.file, inner.entry, sure=False)
                if inner.kind == "instance"
                else unknown("a class that is not plain")
            )
        return self.instance(self.dotted(file, scope, head[0]))

    def instance(self, value: Value) -> Value:
        """An object of a class."""
        if value.kind == "entry" and value.entry is not None:
            if value.entry.kind == "class":
                return replace(value, kind="instance")
            if value.entry.kind in ("variable", "constant", "alias", "attribute") and value.entry.hint.startswith("= "):
                alias = self.meaning(value)
                return (
                    replace(alias, kind="instance", sure=False)
                    if alias.kind == "entry" and is_class(alias)
                    else unknown("an alias that is not plain")
                )
            return unknown("its annotation is not a class")
        if value.kind == "external":
            typing = value.name.startswith(("typing.", "typing_extensions.", "builtins.None", "types.NoneType"))
            return unknown(f"its annotation is {value.name}") if typing else replace(value, kind="external instance")
        return value if value.kind == "unknown" else unknown("its annotation is not a class")

    def meaning(self, value: Value) -> Value:
        """The object that a definition holds: itself if class or function, else what its hint says."""
        entry, file = value.entry, value.file
        if (
            value.kind != "entry"
            or entry is None
            or file is None
            or entry.kind in ("class", "function", "method", "module")
        ):
            return value
        mark = ("meaning", file.number, entry.ordinal)
        if mark in self.active or len(self.active) > 200:
            return unknown("it is defined by itself")
        self.active.add(mark)
        try:
            return self.hinted(file, entry)
        finally:
            self.active.discard(mark)

    def hinted(self, file: Source, entry: Entry) -> Value:
        """What the hint of a variable or attribute says."""
        scope = entry.qualname.rpartition(".")[0]
        if entry.hint.startswith(": "):
            owner = self.owner(file, scope)
            return self.annotation(file, scope, entry.hint[2:], owner)
        if entry.hint.startswith("@"):
            return self.held(file, entry, scope)
        if not entry.hint.startswith("= ") or entry.hint == "= None":
            return unknown(f"the class of {entry.name} is not plain")
        text = entry.hint[2:]
        if text.split(".")[0].removesuffix("()") == entry.name:
            scope = ""
        value = self.dotted(file, scope, text.removesuffix("()"))
        value = self.call(value) if text.endswith("()") else self.meaning(value)
        return value.unsure("by its assignment")

    def held(self, file: Source, entry: Entry, scope: str) -> Value:
        """What an attribute holds that was taken from an annotated parameter or from ``self``."""
        annotation, _, rest = entry.hint[1:].partition("\t")
        value = self.annotation(file, scope, annotation, self.owner(file, scope))
        for name in rest.removesuffix("()").split("."):
            value = self.attribute(value, name)
        value = self.call(value) if rest.endswith("()") else self.result(value)
        return value.unsure("by its assignment")

    def owner(self, file: Source, qualname: str) -> Value | None:
        """An object of the class of that qualname."""
        entries = file.entries.get(qualname)
        return Value("instance", file, entries[0]) if entries and entries[0].kind == "class" else None

    def call(self, value: Value) -> Value:
        """What calling a value gives."""
        value = self.meaning(value)
        entry, file = value.entry, value.file
        if value.kind == "entry" and entry is not None and file is not None:
            if entry.kind == "class":
                return replace(value, kind="instance")
            scope = entry.qualname.rpartition(".")[0]
            if entry.hint:
                return self.annotation(file, scope, entry.hint, self.owner(file, scope)).unsure(
                    "by the annotation of what is called"
                )
            return unknown(f"what {entry.name} returns is not annotated")
        if value.kind == "external":
            last = value.name.rpartition(".")[2]
            made = last[:1].isupper() or last in (
                "dict",
                "list",
                "set",
                "tuple",
                "str",
                "bytes",
                "frozenset",
                "defaultdict",
                "deque",
            )
            return (
                replace(value, kind="external instance", sure=False) if made else unknown(f"the result of {value.name}")
            )
        return value if value.kind == "unknown" else unknown("the result of a call on an object")

    def attribute(self, value: Value, name: str) -> Value:
        """What ``value.name`` is; an unknown one says why."""
        if value.kind == "module":
            return self.member(value, name) or unknown(f"module {value.name} binds no {name} that the sources show")
        if value.kind in ("external", "external instance"):
            sure = value.sure and value.kind == "external"
            why = value.why if sure else value.why or "a member of what an external call or a literal makes"
            return Value("external", name=f"{value.name}.{name}", sure=sure, why=why)
        if value.kind == "entry" and value.entry is not None and value.entry.kind not in ("class", "module"):
            value = self.result(value)
            return (
                self.attribute(value, name)
                if value.kind != "entry" or is_class(value)
                else unknown("an attribute of a function")
            )
        if value.entry is None or value.file is None:
            return value if value.kind == "unknown" else unknown("the class of the object is not plain")
        found = self.class_member(value.file, value.entry, name, value.kind == "super", value.kind == "entry")
        return found if value.sure or found.kind == "unknown" else found.unsure(value.why)

    def result(self, value: Value) -> Value:
        """The object that reading a definition gives: what a property returns, what a variable holds."""
        entry = value.entry
        if entry is not None and entry.kind == "method" and re.search(r"(^|\n|\.|_)property\b", entry.decorators):
            return self.call(value)
        return self.meaning(value)

    def class_member(
        self, file: Source, entry: Entry, name: str, beyond: bool = False, on_class: bool = False
    ) -> Value:
        """A member of a class, by its order of resolution; ``beyond`` starts after the class itself."""
        order, strangers = self.order(file, entry)
        for place_, owner in order[1:] if beyond else order:
            if entries := place_.entries.get(f"{owner.qualname}.{name}"):
                return self.pick(place_, entries)
        if strangers:
            return unknown(f"{entry.name} defines no {name}; its base {strangers[0]} may")
        if name in OBJECT or (on_class and name in CLASS_ATTRIBUTES):
            return Value("external", name=f"builtins.object.{name}" if name in OBJECT else f"builtins.type.{name}")
        return unknown(f"{entry.name} and its bases define no {name}")

    def order(self, file: Source, entry: Entry) -> tuple[list[tuple[Source, Entry]], list[str]]:
        """A class with its bases in order of resolution, and the bases that the pins do not hold."""
        key = (file.number, entry.ordinal)
        if key in self.linear:
            return self.linear[key]
        if ("order", *key) in self.active:
            return [(file, entry)], ["a class that inherits itself"]
        self.active.add(("order", *key))
        try:
            sequences, strangers, parents = [], [], []
            for base in self.bases(file, entry):
                if (
                    base.kind == "entry"
                    and base.entry is not None
                    and base.file is not None
                    and base.entry.kind == "class"
                ):
                    parents.append((base.file, base.entry))
                    above, more = self.order(base.file, base.entry)
                    sequences.append(list(above))
                    strangers += more
                elif base.name not in ("builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"):
                    strangers.append(base.name or base.why or "that is not plain")
            merged = merge([*sequences, parents]) if parents else []
        finally:
            self.active.discard(("order", *key))
        self.linear[key] = ([(file, entry), *merged][:MAX_CLASSES], strangers)
        return self.linear[key]

    def bases(self, file: Source, entry: Entry) -> Iterator[Value]:
        """What the bases of a class stand for; keywords and type arguments are left out."""
        scope = entry.qualname.rpartition(".")[0]
        for text in top_level(entry.hint, ","):
            if re.match(r"\w+\s*=(?!=)", text) or not text:
                continue
            head = NAME.match(text)
            if head is None:
                yield unknown("that is not plain")
            elif text[head.end() :].lstrip()[:1] not in ("", "["):
                yield unknown("that is computed")
            else:
                found = self.dotted(file, scope, head[0])
                yield self.meaning(found) if found.kind == "entry" else found


def is_class(value: Value) -> bool:
    """Whether a value is a class."""
    return value.kind == "entry" and value.entry is not None and value.entry.kind == "class"


def place(value: Value) -> tuple[object, ...]:
    """What tells two values apart by where they lead."""
    if value.entry is not None and value.file is not None:
        return value.kind, value.file.number, value.entry.ordinal
    return value.kind, value.pin, value.name


def merge(sequences: list[list[tuple[Source, Entry]]]) -> list[tuple[Source, Entry]]:
    """Python's C3 merge; a class whose order is inconsistent keeps the order of mention."""
    result: list[tuple[Source, Entry]] = []
    sequences = [list(sequence) for sequence in sequences if sequence]
    while sequences:
        tails = {id(entry) for sequence in sequences for _, entry in sequence[1:]}
        head = next((sequence[0] for sequence in sequences if id(sequence[0][1]) not in tails), sequences[0][0])
        result.append(head)
        sequences = [rest for sequence in sequences if (rest := [item for item in sequence if item[1] is not head[1]])]
    return result


def top_level(text: str, separator: str) -> list[str]:
    """Parts of ``text`` between separators that no bracket or string encloses."""
    if separator not in text:
        return [text.strip()] if text.strip() else []
    parts, depth, quote, last = [], 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[last:index].strip())
            last = index + 1
    parts.append(text[last:].strip())
    return [part for part in parts if part]
