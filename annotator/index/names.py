"""What a name means across files: modules, imports, re-exports, stars, and what a scope binds.

Everything here works on the store alone; no other file is parsed to resolve one. The rule is to say ``unresolved``
rather than to link falsely: where several bindings lead to different places, none is exact.
"""

from __future__ import annotations

import builtins
import re
import sqlite3
from dataclasses import replace
from typing import NamedTuple

from annotator.index.model import Definition
from annotator.index.values import Value, place, unknown

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__path__", "__annotations__", "reveal_type", "WindowsError"}


class Entry(NamedTuple):
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
        self.within: dict[str, list[tuple[str, list[Entry]]]] = {}
        query = f"SELECT {', '.join(Entry._fields)} FROM definitions WHERE file=? ORDER BY ordinal"
        self.rows = [Entry._make(row) for row in connection.execute(query, (number,))]
        for entry in self.rows:
            self.entries.setdefault(entry.qualname, []).append(entry)
        self.imports: dict[str, dict[str, list[tuple[str, str, int]]]] = {}
        self.stars: list[tuple[str, int]] = []
        query = "SELECT name, module, member, level, scope FROM imports WHERE file=? ORDER BY ordinal"
        for name, origin, member, level, scope in connection.execute(query, (number,)):
            if name == "*":
                self.stars.append((origin, level))
            else:
                self.imports.setdefault(scope, {}).setdefault(name, []).append((origin, member, level))

    def methods(self, qualname: str) -> list[tuple[str, list[Entry]]]:
        """The methods of a class, by their qualnames."""
        if qualname not in self.within:
            self.within[qualname] = [
                (name, entries)
                for name, entries in self.entries.items()
                if name.rpartition(".")[0] == qualname and entries[0].kind == "method"
            ]
        return self.within[qualname]

    def absolute(self, origin: str, level: int) -> str:
        """The absolute name of a module that an import statement of this file names."""
        if not level:
            return origin
        parts = self.module.split(".")
        kept = parts[: len(parts) - level + self.package] if level - self.package <= len(parts) else []
        return ".".join([*kept, origin] if origin else kept)

    def at(self, ordinal: int) -> Entry | None:
        """The definition of an ordinal; a Python file's first is its module, 0, of C++ it is 1."""
        place = ordinal - self.rows[0].ordinal if self.rows else -1
        return self.rows[place] if 0 <= place < len(self.rows) and self.rows[place].ordinal == ordinal else None

    def definition(self, entry: Entry) -> Definition:
        """The definition that an entry is."""
        marks = tuple(entry.decorators.split("\n")) if entry.decorators else ()
        return Definition(
            self.pin, self.path, self.module, entry.qualname, entry.name, entry.kind, entry.line, entry.column,
            entry.end_line, entry.signature, entry.doc, self.language, marks,
        )  # fmt: skip


class Names:
    """All files of the store as one program: finds modules and their members."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.sources: dict[int, Source] = {}
        self.numbers: dict[tuple[str, str], list[int]] = {}
        self.existing: dict[tuple[str, str], bool] = {}
        self.globals: dict[tuple[int, str], Value | None] = {}
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
        return unknown(f"the sources of its pin have no such module: {dotted}")

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
                f"the sources show no such name in the module: {dotted}.{member}"
            )
        return module

    def beside(self, file: Source, dotted: str) -> Value | None:
        """A module in the same folder, as scripts import their neighbours; in a package nothing is imported so."""
        folder = file.module.rpartition(".")[0]
        name = f"{folder}.{dotted}"
        found = folder and not self.files_of(file.pin, folder) and self.exists(file.pin, name)
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

    def loaded(self, file: Source, name: str) -> Value | None:
        """A module of a package that the package's ``__init__`` loads, which binds its name there without a word."""
        whole = f"{file.module}.{name}"
        if not file.package or not self.exists(file.pin, whole):
            return None
        return Value("module", name=whole, pin=file.pin, sure=False, why="a module of the package, bound where loaded")

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
