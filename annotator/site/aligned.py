"""Which lines of the reference do the work of which lines of a minimal function, and what the minimal one leaves out.

Apart from the steps because it reads code instead of showing it. Statements are matched by what they compute, as in
`annotator diff --structure` (`annotator.contracts.structure`); where nothing is alike enough, nothing is claimed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from annotator import catalog
from annotator.contracts import structure
from annotator.contracts.structure import Statement
from annotator.readings import essence
from annotator.site.atlas import Atlas, Place
from annotator.site.minimal import Function

OTHER = "other"
Lines = tuple[int, int]


@dataclass(frozen=True)
class Alignment:
    """Of one step and one minimal function.

    Attributes:
        pairs: lines of the minimal function's statements, each with the lines of the reference that do the same work.
        left: lines of the reference's statements that have no counterpart, by kind: checks, logging, metrics, device
            moves, other.
    """

    pairs: Mapping[Lines, tuple[Lines, ...]]
    left: Mapping[str, tuple[Lines, ...]]


def align(atlas: Atlas, place: Place, shown: Function) -> Alignment | None:
    """The alignment of a step with a minimal function; ``None`` where the reference is not Python."""
    source = atlas.source(place.anchor.pin, place.anchor.path)
    if source.language != "python":
        return None
    first, last = place.anchor.first, place.anchor.last
    every = essence.statements("\n".join(source.lines), first, last)
    plumbing = {(start, end) for start, end, kind in every if kind}
    theirs = [
        one
        for one in _reference(place, source.lines)
        if first <= one.first and one.last <= last and not _inside((one.first, one.last), plumbing)
    ]
    ours = _minimal(atlas, place, shown)
    found = structure.counterparts(ours, theirs)
    pairs = {
        (ours[i].first, ours[i].last): tuple((theirs[j].first, theirs[j].last) for j in items)
        for i, items in sorted(found.items())
    }
    beside = {lines for items in pairs.values() for lines in items}
    left: dict[str, tuple[Lines, ...]] = {}
    for start, end, kind in every:
        if not any(_inside((start, end), {lines}) or _inside(lines, {(start, end)}) for lines in beside):
            left[kind or OTHER] = (*left.get(kind or OTHER, ()), (start, end))
    ordered = sorted(left.items(), key=lambda item: (item[0] == OTHER, item[0]))
    return Alignment(pairs, dict(ordered))


def _inside(lines: Lines, others: set[Lines]) -> bool:
    return any(start <= lines[0] and lines[1] <= end for start, end in others)


def _known(place: Place) -> tuple[dict[str, str], int]:
    """The contract's own names, which the code of both sides may use, and the rank of its largest input."""
    name = place.step.options.get("contract")
    if not name:
        return {}, 2
    contract = catalog.contract(str(name))
    names = [*(item.name for item in contract.inputs), *(knob.name for knob in contract.knobs)]
    return {name: name for name in names}, max(len(item.shape) for item in contract.inputs)


def _reference(place: Place, lines: tuple[str, ...]) -> list[Statement]:
    """The statements of the symbol that a step lies in."""
    known, rank = _known(place)
    first, last = place.anchor.within
    text = textwrap.dedent("\n".join(lines[first - 1 : last]))
    function = place.step.symbol.rpartition(".")[2]
    try:
        return structure.read(text, function, place.anchor.path, known, rank=rank, shift=first - 1)
    except SyntaxError:
        return []


def _minimal(atlas: Atlas, place: Place, shown: Function) -> list[Statement]:
    """The statements of the minimal function that is shown, each with what its helpers do."""
    known, rank = _known(place)
    text = (atlas.workspace.root / shown.path).read_text("utf-8")
    return structure.read(text, shown.name, shown.path, known, rank=rank, inline=True)
