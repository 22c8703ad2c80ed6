"""What became of an anchor in another tree. Apart from anchoring, because here the quotes may well fail.

From the redundant form, strongest evidence first: what the lines say (digest of the whole, then of first and last
statement, told apart by neighbours, ordinal and line), then the quotes, then the neighbours alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from annotator.errors import PinError, SymbolNotFound
from annotator.readings import statements
from annotator.readings.anchors import SHORT, occurrences
from annotator.readings.lock import Record
from annotator.readings.statements import Lines, Source, Statement

if TYPE_CHECKING:
    from annotator.index import Index

State = Literal["exact", "moved", "changed", "gone"]


@dataclass(frozen=True)
class Drift:
    """Where an anchor stands now. ``why`` says in a few words what told so."""

    state: State
    path: str = ""
    first: int = 0
    last: int = 0
    why: str = ""


@dataclass(frozen=True)
class _Scope:
    path: str
    source: Source
    lines: Lines
    named: bool  # found by its symbol, not only by its file

    def statements(self) -> list[Statement]:
        return statements.statements(self.source, self.lines)


def relocate(record: Record, tree: Path, index: Index) -> Drift:
    """Where the anchor stands in ``tree``, whose index is ``index``.

    *exact*: same file, lines and meaning. *moved*: same meaning elsewhere. *changed*: something else stands where it
    stood. *gone*: neither its statements, its quotes nor its neighbours are found.
    """
    scope = _scope(record, tree, index)
    if scope is None:
        return Drift("gone", why=f"neither {record.symbol} nor {record.path} is there")
    if not record.quotes and scope.named:
        return _told(record, scope, scope.lines, "the symbol")
    same = [lines for lines in _regions(record, scope) if statements.digest(scope.source, lines) == record.digest]
    if same:
        return _told(record, scope, min(same, key=lambda lines: _unlike(record, scope, lines)), "the same statements")
    return _changed(record, scope)


def _scope(record: Record, tree: Path, index: Index) -> _Scope | None:
    try:
        found = index.definition(record.symbol)
        source = statements.read(tree / found.path)
        return _Scope(
            found.path, source, statements.definition_lines(source, found.qualname, found.line, found.end_line), True
        )
    except (SymbolNotFound, PinError):
        pass
    try:
        source = statements.read(tree / record.path)
    except PinError:
        return None
    return _Scope(record.path, source, (1, len(source.starts)), False)


def _told(record: Record, scope: _Scope, lines: Lines, why: str) -> Drift:
    if statements.digest(scope.source, lines) != record.digest:
        return Drift("changed", scope.path, *lines, why=f"{why}, saying something else")
    here = scope.named and scope.path == record.path and lines == record.lines
    return Drift("exact" if here else "moved", scope.path, *lines, why=why)


def _regions(record: Record, scope: _Scope) -> Iterator[Lines]:
    """Regions that begin and end with statements like the anchor's."""
    every = scope.statements()
    if not record.quotes:
        yield from ((s.first, s.last) for s in every)
        return
    length = record.lines[1] - record.lines[0]
    for begin in (s for s in every if record.edges and s.digest[:SHORT] == record.edges[0]):
        yield begin.first, begin.last
        yield from (
            (begin.first, end.head)
            for end in every
            if end.first >= begin.first
            and end.head <= begin.first + 2 * length + 20
            and end.digest[:SHORT] == record.edges[1]
        )


def _unlike(record: Record, scope: _Scope, lines: Lines) -> tuple[int, int, int]:
    """How little the surroundings, the ordinal and the lines agree: 0 is best."""
    every = scope.statements()
    before = [s.digest[:SHORT] for s in reversed(every) if s.last < lines[0]]
    after = [s.digest[:SHORT] for s in every if s.first > lines[1]]
    strange = sum(a != b for a, b in zip(record.before, before, strict=False)) + sum(
        a != b for a, b in zip(record.after, after, strict=False)
    )
    ordinal = sum(s.digest[:SHORT] == record.edges[0] and s.first < lines[0] for s in every) if record.edges else 0
    return strange, abs(ordinal - record.ordinal), abs(lines[0] - record.lines[0])


def _changed(record: Record, scope: _Scope) -> Drift:
    for lines, why in (
        (_by_quotes(record, scope), "the quotes"),
        (next(_regions(record, scope), None) if record.quotes else None, "the first and last statement"),
        (_by_neighbours(record, scope), "the statements around"),
    ):
        if lines is not None:
            return _told(record, scope, lines, why)
    return Drift("gone", scope.path, why="its statements, its quotes and those around are not there")


def _by_quotes(record: Record, scope: _Scope) -> Lines | None:
    places = [occurrences(scope.source, scope.lines, quote) for quote in record.quotes]
    if not places or any(len(found) != 1 for found in places):
        return None
    found = [statements.statement_at(scope.source, place[0]) for place in places]
    if found[0] is None or found[-1] is None:
        return None
    last = found[0].last if len(found) == 1 else max(found[0].head, found[-1].head)
    return (found[0].first, last) if last >= found[0].first else None


def _by_neighbours(record: Record, scope: _Scope) -> Lines | None:
    """What stands between the nearest statement before and the nearest after, if each is there once."""
    if not record.before or not record.after:
        return None
    every = scope.statements()
    before = [s.last for s in every if s.digest[:SHORT] == record.before[0]]
    after = [s.first for s in every if s.digest[:SHORT] == record.after[0]]
    if len(before) != 1 or len(after) != 1:
        return None
    between = [s for s in every if s.first > before[0] and s.last < after[0]]
    return (between[0].first, max(s.last for s in between)) if between else None
