"""The inverse of inheritance and of decoration: which classes derive from a class, what is decorated with a function.

The store keeps, for each class, the text of its bases and, for each definition, that of its decorators. One look over
all of them gives candidates by their last name; only these are resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from annotator.index.resolution import NAME
from annotator.index.values import Value, place, top_level

if TYPE_CHECKING:
    from annotator.index.names import Entry, Source
    from annotator.index.resolution import Program

HEAD = re.compile(NAME.pattern)
Owned = tuple["Source", "Entry"]


class Hierarchy:
    """Subclasses and decorated definitions over a whole program; each answer is kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.children: dict[tuple[int, int], list[Owned]] = {}
        self.ordinals: dict[int, dict[int, Entry]] = {}

    @cached_property
    def aliases(self) -> dict[str, set[str]]:
        """Other names that imports give to a name."""
        found: dict[str, set[str]] = {}
        query = "SELECT DISTINCT member, name FROM imports WHERE member NOT IN ('', '*') AND name != member"
        for member, name in self.program.connection.execute(query):
            found.setdefault(member, set()).add(name)
        return found

    @cached_property
    def deriving(self) -> dict[str, list[tuple[int, int]]]:
        """Last name of a base → the classes that name it."""
        found: dict[str, list[tuple[int, int]]] = {}
        query = "SELECT file, ordinal, hint FROM definitions WHERE kind='class' AND hint!=''"
        for file, ordinal, hint in self.program.connection.execute(query):
            for text in top_level(hint, ","):
                if head := HEAD.match(text):
                    found.setdefault(head[0].rpartition(".")[2], []).append((file, ordinal))
        return found

    @cached_property
    def decorating(self) -> dict[str, list[tuple[int, int, str]]]:
        """Last name of a decorator → the definitions that it stands above, with its whole text."""
        found: dict[str, list[tuple[int, int, str]]] = {}
        query = "SELECT file, ordinal, decorators FROM definitions WHERE decorators!=''"
        for file, ordinal, marks in self.program.connection.execute(query):
            for mark in marks.split("\n"):
                if head := HEAD.match(mark):
                    found.setdefault(head[0].rpartition(".")[2], []).append((file, ordinal, mark))
        return found

    def names(self, name: str) -> Iterator[str]:
        """A name and what imports call it."""
        yield name
        yield from sorted(self.aliases.get(name, ()))

    def entry(self, file: int, ordinal: int) -> Owned | None:
        """A definition by its number."""
        source = self.program.source(file)
        if file not in self.ordinals:
            self.ordinals[file] = {entry.ordinal: entry for entries in source.entries.values() for entry in entries}
        entry = self.ordinals[file].get(ordinal)
        return (source, entry) if entry else None

    def direct(self, file: Source, entry: Entry) -> list[Owned]:
        """Classes that name a class among their bases."""
        key = (file.number, entry.ordinal)
        if key not in self.children:
            wanted, found = place(Value("entry", file, entry)), {}
            for name in self.names(entry.name):
                for number, ordinal in self.deriving.get(name, ()):
                    item = self.entry(number, ordinal)
                    if item and any(place(base) == wanted for base in self.program.bases(*item)):
                        found[number, ordinal] = item
            self.children[key] = list(found.values())
        return self.children[key]

    def subclasses(self, file: Source, entry: Entry) -> list[Owned]:
        """Classes that derive from a class, the nearest first."""
        return [(source, child) for _, source, child in self.levels(file, entry)]

    def levels(self, file: Source, entry: Entry) -> list[tuple[int, Source, Entry]]:
        """Classes that derive from a class, with how many steps they are from it, the nearest first."""
        seen, found = {(file.number, entry.ordinal)}, [(0, file, entry)]
        for depth, source, parent in found:
            for child in self.direct(source, parent):
                key = (child[0].number, child[1].ordinal)
                if key not in seen:
                    seen.add(key)
                    found.append((depth + 1, *child))
        return found[1:]

    def decorated(self, name: str) -> Iterator[tuple[Source, Entry, str]]:
        """Definitions under a decorator whose last name is that or an alias of it, with the decorator's text."""
        for each in self.names(name):
            for number, ordinal, mark in self.decorating.get(each, ()):
                if item := self.entry(number, ordinal):
                    yield *item, mark
