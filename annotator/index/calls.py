"""Who calls what: the calls of a definition, those to it, and the shortest way from one to another.

A call is an identifier that leads to a definition and is followed by arguments. Making an object of a class calls its
``__init__``. What is called through a variable whose class is not plain, or handed over as an argument, is no edge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from annotator.index.languages import decode
from annotator.index.model import Call, Definition, Link
from annotator.index.resolver import is_called

if TYPE_CHECKING:
    from annotator.index.lookup import Index
    from annotator.pins import Progress

CALLABLE = frozenset(("function", "method", "class", "struct", "macro"))
MADE_BY = ("__init__", "__new__", "__post_init__")
"""The methods that making an object runs."""

WIDEST = 20_000
"""How many definitions a search for a path looks into."""


def callers(index: Index, definition: Definition, limit: int | None = None) -> list[Call]:
    """Where a definition is called, in all pins, its own file first; a constructor is called where its class is."""
    called = definition
    if definition.name in MADE_BY and "." in definition.qualname:
        called = index.definition(definition.symbol.rpartition(".")[0])
    found = []
    for use in index.resolver.each_use(called):
        if use.called:
            where = (use.pin, use.path, use.line, use.column)
            found.append(Call(use.within, definition.symbol, *where, use.text, use.certainty))
        if limit is not None and len(found) >= limit:
            break
    return found


def callees(index: Index, definition: Definition) -> list[Call]:
    """The calls in the body of a definition that lead into the pins, in the order of the source."""
    return [call for call, _ in _calls(index, definition)]


def path(
    index: Index, start: Definition, goal: Definition, *, widest: int = WIDEST, progress: Progress | None = None
) -> list[Call] | None:
    """The shortest chain of calls from one definition to another; ``None`` where none of the calls found leads there.

    Breadth first over what each definition calls. ``widest`` bounds how many are looked into; ``progress`` is told of
    each.
    """
    if progress:
        progress.start("definitions", None)
    came: dict[str, Call | None] = {start.symbol: None}
    waiting = deque([start])
    while waiting and len(came) < widest:
        if progress:
            progress.advance("definitions", 1)
        for call, target in _calls(index, waiting.popleft()):
            if call.callee in came:
                continue
            came[call.callee] = call
            if call.callee == goal.symbol:
                return list(reversed(list(_back(came, call))))
            waiting.append(target)
    return None


def _back(came: dict[str, Call | None], last: Call) -> Iterator[Call]:
    """A chain of calls from its end."""
    call: Call | None = last
    while call is not None:
        yield call
        call = came[call.caller]


def _calls(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition]]:
    """Calls of a definition, with what is called; a class calls what makes its objects."""
    if definition.kind in ("class", "struct"):
        yield from _constructors(index, definition)
        return
    lines = _lines(index, definition.pin, definition.path)
    for link in _links(index, definition):
        target, where = link.target, (definition.pin, definition.path, link.line, link.column)
        if target is None or target.kind not in CALLABLE or not is_called(lines, link):
            continue
        if where != (target.pin, target.path, target.line, target.column):  # A parameter list follows its own name too.
            text = lines[link.line - 1].strip()
            yield Call(definition.symbol, target.symbol, *where, text, link.certainty, link.reason), target


def _constructors(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition]]:
    wanted = {f"{definition.qualname}.{name}" for name in MADE_BY}
    for item in index.definitions(definition.pin, definition.path):
        if item.qualname in wanted:
            where = (item.pin, item.path, item.line, item.column)
            yield Call(definition.symbol, item.symbol, *where, item.signature, "exact", "by making an object"), item


def _links(index: Index, definition: Definition) -> list[Link]:
    """Links in the body of a definition."""
    links = index.links(definition.pin, definition.path)
    return [link for link in links if definition.line <= link.line <= definition.end_line]


def _lines(index: Index, pin: str, path: str) -> list[str]:
    return decode(index.resolver.read(pin, path)).split("\n")
