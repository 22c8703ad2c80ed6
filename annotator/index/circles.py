"""Answers that depend on each other: what a name holds, what a function returns, what is handed over, in a circle.

Whoever is asked again while the answer is still being worked out knows nothing yet, and what is worked out from that
silence holds only as long as the question that it waits for is open. So such answers are kept apart until then; what
was asked first keeps its own for good. Asking in another order gives the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

Answers = TypeVar("Answers")
Key = TypeVar("Key", bound=Hashable)
FAR = 1 << 30
MOST = 40_000
"""Answers that are worked out for one question of the call graph; what needs more stays out."""

ENOUGH = 8
"""How many answers an answer is made through before what lies deeper does not matter to it."""


class Circles:
    """Works out answers, each kept in the table that it belongs to once nothing open can add to it."""

    def __init__(self) -> None:
        self.open: dict[Hashable, int] = {}
        self.so_far: dict[Hashable, object] = {}
        self.waiting: dict[Hashable, tuple[object, int]] = {}
        self.low = self.deep = FAR
        self.effort = 0

    def rest(self) -> None:
        """Ends a question, or begins one."""
        self.effort = 0

    @property
    def tired(self) -> bool:
        """Whether so much was done that nothing more is begun."""
        return self.effort > MOST

    def cut(self) -> None:
        """Notes that something was left out because it lies too deep: what is just above does not hold for good."""
        self.deep = min(self.deep, len(self.open))

    def give_up(self) -> None:
        """Notes that something was left out because too much was done: nothing open holds for good."""
        self.low = -1

    def answer(
        self,
        table: dict[Key, list[Answers]],
        key: Key,
        work: Callable[[], list[Answers]],
        rounds: int = 0,
    ) -> list[Answers]:
        """The answer of a table to a key; ``rounds`` more where it is made of itself and grows by that."""
        if key in table:
            return table[key]
        name = (id(table), key)
        if name in self.waiting:
            found, low = self.waiting[name]
            self.low = min(self.low, low)
            return found  # type: ignore[return-value]
        if name in self.open:
            self.low = min(self.low, self.open[name])
            return self.so_far.get(name, [])  # type: ignore[return-value]
        if self.tired:
            self.give_up()
            return []
        self.effort += 1
        place = self.open[name] = len(self.open)
        before, self.low = self.low, FAR
        above, self.deep = self.deep, FAR
        try:
            answer = work()
            while rounds and self.low == place:
                self.so_far[name] = answer
                self.close(place)
                more = work()
                rounds, grown, answer = rounds - 1, len(more) > len(answer), more
                if not grown:
                    break
        finally:
            del self.open[name]
            self.so_far.pop(name, None)
            low, self.low = self.low, before
            far = self.deep - place >= ENOUGH
            self.deep = min(self.deep, above)
        low = low if far else -1
        if low >= place or (not self.open and not self.tired):
            table[key] = answer
            self.close(place)
        else:
            self.waiting[name] = (answer, low)
            self.low = min(before, low)
        if not self.open:
            self.waiting.clear()
            self.low = self.deep = FAR
        return answer

    def close(self, place: int) -> None:
        """Forgets what waited for an answer, which is there now."""
        self.low = FAR if self.low >= place else self.low
        if self.waiting:
            self.waiting = {name: kept for name, kept in self.waiting.items() if kept[1] < place}
