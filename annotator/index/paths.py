"""The shortest chain of calls from one definition to another, searched from both ends.

Level by level: what the start calls, and what calls the goal. A level is looked into from the side where that costs
less, and where the two meet is the chain. Apart from ``calls`` because what is followed here is less than what is
known there: a place that may lead to very many tells nothing about this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from annotator.index.calls import called, candidates
from annotator.index.model import Call, Definition

if TYPE_CHECKING:
    from annotator.index.lookup import Index
    from annotator.pins import Progress

WIDEST = 500
"""How many definitions a search looks into: each costs milliseconds, and far ones say little."""

MANY = 48
"""Inferred ways on from one place of which none is followed, unless one leads to the goal."""

FAMOUS = 40
"""In how many files the names of a level may occur, all together, for its callers to be looked for."""

BACKWARD = 4
"""What a file that may have callers costs, measured in definitions whose calls are looked into."""

Ways = dict[str, "Call | None"]


def path(
    index: Index, start: Definition, goal: Definition, *, widest: int = WIDEST, progress: Progress | None = None
) -> list[Call] | None:
    """The shortest chain of calls from one definition to another; ``None`` where none of the calls found leads there.

    ``widest`` bounds how many definitions are looked into, on both sides together; ``progress`` is told of each.
    """
    return _Search(index, start, goal, widest, progress).run()


class _Search:
    """What is known from both ends: for each symbol the call that came to it, or that leads on to the goal."""

    def __init__(
        self, index: Index, start: Definition, goal: Definition, widest: int, progress: Progress | None
    ) -> None:
        self.index, self.start, self.goal = index, start, goal
        self.left, self.progress = widest, progress
        self.came: Ways = {start.symbol: None}
        self.leads: Ways = {goal.symbol: None}
        self.known: dict[tuple[str, int], list[tuple[Call, Definition]]] = {}
        if progress:
            progress.start("definitions", None)

    def run(self) -> list[Call] | None:
        """The chain, if there is one within reach."""
        ahead, behind = [self.start], [self.goal]
        while ahead and self.left > 0:
            files = sum(len(self.index.resolver.posted(one.name)) for one in behind)
            if behind and files <= FAMOUS and files * BACKWARD <= len(ahead):
                met, behind = self.backward(behind)
            else:
                met, ahead = self.forward(ahead)
            if met is not None:
                return [*_back(self.came, met), *_on(self.leads, met)]
        return None

    def forward(self, level: list[Definition]) -> tuple[str | None, list[Definition]]:
        """What a level calls; where it meets the other side."""
        following = []
        for definition in level:
            for call, target in self.calls(definition):
                if call.callee in self.came:
                    continue
                self.came[call.callee] = call
                if call.callee in self.leads:
                    return call.callee, []
                following.append(target)
        return None, following

    def backward(self, level: list[Definition]) -> tuple[str | None, list[Definition]]:
        """What calls a level; where it meets the other side."""
        following, met = [], None
        for definition in level:
            for caller in self.callers(definition):
                if caller.symbol in self.leads:
                    continue
                call = next((one for one, _ in self.calls(caller) if one.callee == definition.symbol), None)
                if call is None:
                    continue
                self.leads[caller.symbol] = call
                met = met or (caller.symbol if caller.symbol in self.came else None)
                following.append(caller)
        return met, following

    def callers(self, definition: Definition) -> Iterator[Definition]:
        """Definitions that may call one, and the functions around them, which count as callers too."""
        seen: set[tuple[str, int]] = set()
        for candidate in candidates(self.index, definition):
            for one in (candidate, *self.around(candidate)):
                if (one.symbol, one.line) not in seen:
                    seen.add((one.symbol, one.line))
                    yield one

    def around(self, definition: Definition) -> list[Definition]:
        """The functions around a function."""
        names = definition.qualname.split(".")
        outer = {".".join(names[:count]) for count in range(1, len(names))}
        found = self.index.definitions(definition.pin, definition.path) if outer else []
        return [one for one in found if one.qualname in outer and one.kind in ("function", "method")]

    def calls(self, definition: Definition) -> list[tuple[Call, Definition]]:
        """The calls of a definition that are followed; none once enough were looked into."""
        key = (definition.symbol, definition.line)
        if key not in self.known:
            if self.left <= 0:
                return []
            self.left -= 1
            if self.progress:
                self.progress.advance("definitions", 1)
            self.known[key] = list(_plain(list(called(self.index, definition)), self.goal))
        return self.known[key]


def _plain(calls: list[tuple[Call, Definition]], goal: Definition) -> Iterator[tuple[Call, Definition]]:
    """Calls without those of places that may lead to very many, unless one of these is the goal itself."""
    counts: dict[tuple[int, int], int] = {}
    for call, _ in calls:
        place = (call.line, call.column)
        counts[place] = counts.get(place, 0) + (call.certainty != "exact")
    for call, target in calls:
        if counts[call.line, call.column] <= MANY or call.certainty == "exact" or call.callee == goal.symbol:
            yield call, target


def _back(came: Ways, symbol: str) -> list[Call]:
    """The calls from the start to a symbol."""
    made: list[Call] = []
    while (call := came[symbol]) is not None:
        made.append(call)
        symbol = call.caller
    return made[::-1]


def _on(leads: Ways, symbol: str) -> Iterator[Call]:
    """The calls from a symbol to the goal."""
    while (call := leads[symbol]) is not None:
        yield call
        symbol = call.callee
