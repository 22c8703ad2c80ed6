"""Answers from the store: a definition by its symbol, definitions by a query, uses and links.

The face of the index. It imports no parser, so that a query costs milliseconds; resolution is imported when uses or
links are asked for.
"""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from annotator.errors import AnnotatorError, SymbolNotFound
from annotator.index import store
from annotator.index.model import Definition, Link, Use

if TYPE_CHECKING:
    from annotator.index.resolver import Resolver
    from annotator.workspace import Workspace

COLUMNS = (
    "f.pin, f.path, f.module, d.qualname, d.name, d.kind, d.line, d.column, d.end_line, d.signature, d.doc, "
    "f.language, d.decorators"
)
SOURCE = "FROM definitions d JOIN files f ON f.id = d.file"
SELECT = f"SELECT {COLUMNS} {SOURCE} "
SELECT_HINTED = f"SELECT {COLUMNS}, d.hint {SOURCE} "
RANK = {
    "class": 0,
    "function": 0,
    "struct": 0,
    "module": 1,
    "method": 1,
    "macro": 2,
    "enum": 1,
    "typedef": 2,
    "alias": 2,
}
ASIDE = re.compile(
    r"(^|/)(tests?|testing|examples?|benchmarks?|docs|tools|scripts|third_party|_vendor)(/|$)|(^|/)test_"
)


def definition_of(row: tuple[Any, ...]) -> Definition:
    """A definition from a row of ``COLUMNS``."""
    pin, path, module, qualname, name, kind, line, column, end_line, signature, doc, language, marks = row[:13]
    decorators = tuple(marks.split("\n")) if marks else ()
    where = (line, column, end_line)
    return Definition(pin, path, module, qualname, name, kind, *where, signature, doc, language, decorators)


class Index:
    """The index of a workspace, opened for reading. Close it, or use it in a ``with``."""

    def __init__(self, connection: sqlite3.Connection, workspace: Workspace) -> None:
        self.connection, self.workspace = connection, workspace

    @classmethod
    def open(cls, workspace: Workspace) -> Index:
        """Opens the index.

        Raises:
            IndexFileError: it is missing, of another schema, or unreadable.
        """
        return cls(store.open_to_read(workspace.index), workspace)

    def close(self) -> None:
        """Closes the store and the cache of resolved files."""
        if "resolver" in self.__dict__:
            self.resolver.close()
        self.connection.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Closes it; what a damaged store raises, or makes our code raise, is told in our words."""
        told = isinstance(error, AnnotatorError) or not isinstance(error, Exception)
        broken = isinstance(error, store.BROKEN) or not (told or store.sound(self.connection))
        self.close()
        if broken and isinstance(error, Exception):
            raise store.damaged(self.workspace.index, error) from error

    @cached_property
    def resolver(self) -> Resolver:
        """Resolution over this index."""
        from annotator.index.resolver import Resolver

        return Resolver(self.connection, self.workspace)

    @property
    def generation(self) -> str:
        """A mark that changes whenever the index does."""
        row = self.connection.execute("SELECT value FROM meta WHERE key='generation'").fetchone()
        return str(row[0]) if row else ""

    def pins(self) -> list[str]:
        """Names of the pins in the index."""
        return [pin for (pin,) in self.connection.execute("SELECT DISTINCT pin FROM files ORDER BY pin")]

    def paths(self, pin: str) -> list[str]:
        """Indexed files of a pin, sorted."""
        return [path for (path,) in self.connection.execute("SELECT path FROM files WHERE pin=? ORDER BY path", (pin,))]

    def definitions(self, pin: str, path: str) -> list[Definition]:
        """Definitions of one file, in the order of the source, the module first."""
        query = SELECT + "WHERE f.pin=? AND f.path=? ORDER BY d.ordinal"
        return [definition_of(row) for row in self.connection.execute(query, (pin, path))]

    def every(self) -> Iterator[Definition]:
        """All definitions, in no order."""
        return (definition_of(row) for row in self.connection.execute(SELECT))

    def definition(self, symbol: str) -> Definition:
        """The definition that a symbol names; re-exports are followed to where the thing is defined.

        Several definitions of one name (overloads, branches, stub and source): the source before the stub, a body
        before a declaration, an implementation before its overloads, then the first.

        Raises:
            SymbolNotFound: there is none; near matches are suggested.
        """
        pin, colon, dotted = symbol.partition(":")
        if not colon or not dotted:
            raise SymbolNotFound(symbol, near=self.near("", symbol))
        rows = self.rows_of(pin, dotted)
        if rows:
            return definition_of(min(rows, key=preference))
        if "::" not in dotted and "." in dotted and (found := self.resolver.exported(pin, dotted)):
            return found
        raise SymbolNotFound(symbol, near=self.near(pin, dotted))

    def rows_of(self, pin: str, dotted: str) -> list[tuple[Any, ...]]:
        """Rows whose symbol is just that."""
        name = re.split(r"::(?![^<]*>)", dotted)[-1] if "::" in dotted else dotted.rpartition(".")[2]
        query = f"SELECT {COLUMNS}, d.hint, d.ordinal {SOURCE} WHERE d.name=? AND f.pin=?"
        return [
            row
            for row in self.connection.execute(query, (name, pin))
            if ".".join(filter(None, (row[2], row[3]))) == dotted
        ]

    def near(self, pin: str, dotted: str, limit: int = 3) -> tuple[str, ...]:
        """Symbols close to one that does not exist: the same last part elsewhere, else a similar name."""
        last = re.split(r"[.:]+", dotted)[-1]
        found = self.find(last, pin=pin or None, limit=40, loose=False)
        if not found:
            stem = last[: max(2, len(last) // 3)]
            query = "SELECT DISTINCT name FROM definitions WHERE name >= ? AND name < ? LIMIT 20000"
            bound = [
                name
                for (name,) in self.connection.execute(query, (stem, stem + "\U0010ffff"))
                if abs(len(name) - len(last)) <= 4
            ]
            for name in difflib.get_close_matches(last, bound[:4000], n=limit, cutoff=0.7):
                found += self.find(name, pin=pin or None, limit=5, loose=False)
        wanted = f"{pin}:{dotted}"
        symbols = dict.fromkeys(d.symbol for d in found)
        return tuple(sorted(symbols, key=lambda s: -difflib.SequenceMatcher(None, wanted, s).ratio())[:limit])

    def find(
        self, query: str, pin: str | None = None, kind: str | None = None, limit: int = 20, *, loose: bool = True
    ) -> list[Definition]:
        """Definitions that a query may mean, best first.

        In this order: a whole symbol or qualified name; the end of one (``GRPOTrainer._compute_loss``); the name;
        a name that begins so; unless ``loose`` is false, names that hold all its words (``grpo advantage``) in any
        case. What a library offers comes before its tests, the short before the long.
        """
        found: dict[tuple[str, str, int, int], tuple[tuple[Any, ...], Definition]] = {}
        given, colon, rest = query.partition(":")
        if colon and not rest.startswith(":") and given in self.pins():
            pin, query = given, rest
        for tier, rows in enumerate(self.tiers(query.strip(), loose)):
            for row in rows:
                one = definition_of(row)
                if (pin and one.pin != pin) or (kind and one.kind != kind):
                    continue
                key = (one.pin, one.path, one.line, one.column)
                if key not in found:
                    found[key] = (rank(tier, one, query, row[-1]), one)
            if len(found) >= limit:
                break
        if not found and "." in query and loose:
            return self.exported(query, pin, kind)[:limit]
        return [one for _, one in sorted(found.values(), key=lambda pair: pair[0])][:limit]

    def exported(self, query: str, pin: str | None, kind: str | None) -> list[Definition]:
        """Definitions that a dotted name leads to by re-exports (``trl.DPOTrainer``), in any pin."""
        found = [self.resolver.exported(each, query) for each in ([pin] if pin else self.pins())]
        return list(dict.fromkeys(one for one in found if one and kind in (None, one.kind)))

    def tiers(self, query: str, loose: bool) -> Iterable[list[tuple[Any, ...]]]:
        """Rows by falling closeness, each tier fetched only when the ones before were too few."""
        if not query:
            return
        parts = re.split(r"::|\.", query)
        last, fetch = parts[-1], self.connection.execute
        named = fetch(SELECT_HINTED + "WHERE d.name=? LIMIT 20000", (last,)).fetchall()
        full = [(".".join(filter(None, (row[2], row[3]))), row) for row in named]
        yield [row for name, row in full if name == query]
        tail = re.compile(rf"(?:^|\.|::){re.escape(query)}$")
        yield [row for name, row in full if tail.search(name)]
        if len(parts) > 1 or not loose:
            return
        yield fetch(
            SELECT_HINTED + "WHERE d.name > ? AND d.name < ? LIMIT 400", (query, query + "\U0010ffff")
        ).fetchall()
        if named:
            return
        words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", query)]
        if words:
            condition = " AND ".join("name LIKE ?" for _ in words)
            names = fetch(
                f"SELECT DISTINCT name FROM definitions WHERE {condition} LIMIT 200", [f"%{word}%" for word in words]
            ).fetchall()
            names.sort(key=lambda row: len(row[0]))
            chosen = [name for (name,) in names[:60]]
            yield fetch(SELECT_HINTED + f"WHERE d.name IN ({','.join('?' * len(chosen))}) LIMIT 400", chosen).fetchall()

    def uses(self, definition: Definition, limit: int | None = None) -> list[Use]:
        """Where a definition is used, in all pins, its own file first; names that do not resolve are left out."""
        return self.resolver.uses(definition, limit)

    def links(self, pin: str, path: str) -> list[Link]:
        """What each identifier of a file leads to, in the order of the source; resolved once, then kept.

        Raises:
            IndexFileError: the index has no such file.
        """
        return self.resolver.links(pin, path)

    def stats(self) -> dict[str, dict[str, int | float]]:
        """Per pin: files, lines, identifiers, definitions, files with syntax errors; and of the files resolved so far,
        how many, their identifiers, and the share of these that is unresolved."""
        query = "SELECT pin, count(*), sum(lines), sum(identifiers), sum(broken) FROM files GROUP BY pin"
        figures: dict[str, dict[str, int | float]] = {}
        for pin, files, lines, identifiers, broken in self.connection.execute(query):
            figures[pin] = {"files": files, "lines": lines, "identifiers": identifiers, "broken": broken}
        query = "SELECT f.pin, count(*) FROM definitions d JOIN files f ON f.id=d.file GROUP BY f.pin"
        for pin, count in self.connection.execute(query):
            figures[pin]["definitions"] = count
        for pin, (files, resolved, unresolved) in self.resolver.tally().items():
            if pin in figures:
                share = unresolved / (resolved + unresolved) if resolved + unresolved else 0.0
                figures[pin] |= {
                    "linked_files": files,
                    "linked_identifiers": resolved + unresolved,
                    "unresolved_share": share,
                }
        return figures


def preference(row: tuple[Any, ...]) -> tuple[bool, bool, bool, int]:
    """Sort key among definitions of one symbol; see ``Index.definition``."""
    path, decorators, hint, ordinal = row[1], row[12], row[13], row[14]
    declared = row[11] != "python" and row[5] in ("function", "method") and hint != "body"
    return path.endswith(".pyi"), declared, "overload" in decorators, ordinal


def rank(tier: int, one: Definition, query: str, hint: str) -> tuple[Any, ...]:
    """Sort key of a found definition; the hint tells a C++ function with a body."""
    declared = one.language != "python" and one.kind in ("function", "method") and hint != "body"
    aside = bool(ASIDE.search(one.path))
    private = one.name.startswith("_") and not query.startswith("_")
    nested = one.qualname.count(".") + one.qualname.count("::")
    whole = tier == 0 and bool(re.search(r"[.:]", query))
    return (
        not whole,
        max(tier, 1),
        aside,
        one.language != "python",
        one.path.endswith(".pyi"),
        private,
        RANK.get(one.kind, 3),
        nested,
        declared,
        len(one.symbol),
        one.symbol,
        one.line,
    )
