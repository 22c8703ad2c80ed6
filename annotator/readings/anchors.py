"""Where a step stands in pinned source. Apart from the lock file, which remembers it, and from relocation, which
finds it again.

A quote names lines so that prose never holds a line number. It is text of the source with any run of blanks and line
ends taken as one blank, and it must stand exactly once within its symbol.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from annotator.errors import PinError, ReadingError, SymbolNotFound, did_you_mean
from annotator.readings import statements
from annotator.readings.parsing import Step
from annotator.readings.statements import Lines, Source, Statement
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.index import Index

NEIGHBOURS = 2
"""How many statements before and after an anchor are remembered, as short digests."""

SHORT = 16
"""Hexadecimal digits of a short digest."""


@dataclass(frozen=True)
class Anchor:
    """The place of an annotation in pinned source.

    Attributes:
        symbol, pin, path: what it lies in; ``path`` is relative to the pin's tree.
        first, last: lines, 1-based, both included.
        digest: of what the lines say (`statements.digest`).
        ordinal: how many statements of the symbol before it say the same as its first one.
        quotes: the quotes of ``from`` and ``to``, as far as given.
        edges: short digests of its first and last statement.
        before, after: short digests of the nearest statements around it, nearest first.
        within: the lines of the symbol.
    """

    symbol: str
    pin: str
    path: str
    first: int
    last: int
    digest: str
    ordinal: int
    quotes: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    edges: tuple[str, ...] = ()
    within: Lines = (0, 0)


def anchor(step: Step, workspace: Workspace, index: Index) -> Anchor:
    """The anchor of a step: the statement its quote begins in, or those from ``from`` to ``to``, or the whole symbol.

    Of a compound statement, ``from`` alone takes all of it, and ``to`` ends with its head.

    Raises:
        ReadingError: no such symbol; a quote that is absent, stands more than once, or begins outside a statement;
            ``to``
            before ``from``.
        PinError: the pin's tree or the file is not there.
    """
    try:
        found = index.definition(step.symbol)
    except SymbolNotFound as error:
        remedy = did_you_mean(error.near)
        raise ReadingError(
            step.place(), expected="a symbol of the pins", found=f"no {step.symbol!r}", remedy=remedy
        ) from error
    tree = workspace.tree(found.pin)
    if not tree.exists():
        raise PinError(
            step.place(), expected=f"the tree of {found.pin}", found="none", remedy=f"run annotator fetch {found.pin}"
        )
    source = statements.read(tree / found.path)
    within = statements.definition_lines(source, found.qualname, found.line, found.end_line)
    first, last = _region(step, source, within)
    return describe(source, within, (first, last), step.symbol, found.pin, found.path, _quotes(step))


def describe(
    source: Source, within: Lines, lines: Lines, symbol: str, pin: str, path: str, quotes: tuple[str, ...]
) -> Anchor:
    """The anchor of those lines, with all that helps to find it again."""
    every = statements.statements(source, within)
    before = [s.digest[:SHORT] for s in reversed(every) if s.last < lines[0]][:NEIGHBOURS]
    after = [s.digest[:SHORT] for s in every if s.first > lines[1]][:NEIGHBOURS]
    edges = _edges(every, lines) if quotes else ()
    ordinal = sum(s.digest[:SHORT] == edges[0] and s.first < lines[0] for s in every) if edges else 0
    digest = statements.digest(source, lines)
    return Anchor(symbol, pin, path, *lines, digest, ordinal, quotes, tuple(before), tuple(after), edges, within)


def _quotes(step: Step) -> tuple[str, ...]:
    return tuple(" ".join(quote.split()) for quote in (step.begin, step.end) if quote is not None)


def _edges(every: list[Statement], lines: Lines) -> tuple[str, ...]:
    inside = [s for s in every if lines[0] <= s.first and s.head <= lines[1]]
    return (inside[0].digest[:SHORT], max(inside, key=lambda s: (s.head, s.first)).digest[:SHORT]) if inside else ()


def _region(step: Step, source: Source, within: Lines) -> Lines:
    if step.begin is None:
        return within
    begin, start = _one(step, "from", step.begin, source, within)
    if step.end is None:
        return begin.first, begin.last
    end, stop = _one(step, "to", step.end, source, within)
    if stop < start:
        found = f"it at line {end.first}, before {begin.first}"
        raise ReadingError(
            step.place("to"), expected="'to' after 'from'", found=found, remedy="exchange the two quotes"
        )
    return begin.first, max(begin.head, end.head)


def _one(step: Step, option: str, quote: str, source: Source, within: Lines) -> tuple[Statement, int]:
    """The statement that the quote begins in, and where it begins."""
    places = occurrences(source, within, quote)
    if len(places) != 1:
        raise _not_once(step, option, quote, source, within, places)
    statement = statements.statement_at(source, places[0])
    if statement is None:
        raise ReadingError(
            step.place(option), expected=f"{quote!r} to begin in a statement", found="a comment", remedy="quote code"
        )
    return statement, places[0]


def occurrences(source: Source, within: Lines, quote: str) -> list[int]:
    """The character offsets at which the quote stands within the lines, overlapping ones too."""
    start = source.starts[within[0] - 1]
    end = source.starts[within[1]] if within[1] < len(source.starts) else len(source.text)
    pattern = r"\s+".join(re.escape(word) for word in quote.split())
    found = re.compile(f"(?={pattern})").finditer(source.text, start, end)
    return [match.start() for match in found] if pattern else []


def _not_once(step: Step, option: str, quote: str, source: Source, within: Lines, places: list[int]) -> ReadingError:
    expected = f"{quote!r} once in {step.symbol}"
    if places:
        lines = ", ".join(str(source.line_of(place)) for place in places[:5])
        return ReadingError(
            step.place(option),
            expected=expected,
            found=f"{len(places)} times, lines {lines}",
            remedy="lengthen the quote",
        )
    return ReadingError(step.place(option), expected=expected, found="none", remedy=_nearest(quote, source, within))


def _nearest(quote: str, source: Source, within: Lines) -> str:
    """Names the line most like the quote: what it was before a pin moved, or what the writer meant."""
    wanted = " ".join(quote.split())
    best, line = max(
        (difflib.SequenceMatcher(None, wanted, " ".join(text.split())).ratio(), number)
        for number, text in enumerate(source.lines[within[0] - 1 : within[1]], within[0])
    )
    return (
        f"nearest: line {line} `{source.lines[line - 1].strip()}`" if best > 0.4 else "the symbol has no line like it"
    )
