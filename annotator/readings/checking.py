"""Whether every reading still holds. Apart from the parts it uses, since only here a fault is collected instead of
raised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from annotator.errors import AnnotatorError, ReadingError
from annotator.readings.anchors import anchor
from annotator.readings.links import dead, references
from annotator.readings.lock import Record, open_index, read_anchors, record, versions
from annotator.readings.parsing import Reading, Step, paths, read_page
from annotator.readings.relocating import relocate
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.index import Index


@dataclass(frozen=True)
class Problem:
    """Something that does not hold: where (``walkthroughs/verl/x.md:41``) and what, in one line."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def check(workspace: Workspace, index: Index | None = None) -> list[Problem]:
    """All that does not hold: blocks, anchors, ``anchors.lock``, links. Empty when the readings are sound.

    Raises:
        AnnotatorError: nothing can be said at all, for want of the index or the lock of pins.
    """
    readings, problems = _readable(workspace)
    opened = index if index is not None else open_index(workspace)
    known = versions(workspace)
    try:
        locked = read_anchors(workspace)
    except ReadingError as error:
        return [*problems, _problem(error)]
    for reading in readings:
        for step in reading.steps:
            problems.extend(_check_step(step, workspace, opened, locked.get(step.key), known))
    problems.extend(_left_over(readings, locked, workspace, complete=len(readings) == len(paths(workspace))))
    problems.extend(_check_links(readings, workspace, opened))
    return problems


def _readable(workspace: Workspace) -> tuple[list[Reading], list[Problem]]:
    readings: list[Reading] = []
    problems: list[Problem] = []
    for path in paths(workspace):
        try:
            readings.append(read_page(workspace, path))
        except ReadingError as error:
            problems.append(_problem(error))
    return readings, problems


def _problem(error: AnnotatorError, place: str = "", also: str = "") -> Problem:
    message = str(error).removeprefix(f"{error.place}: ")
    return Problem(place or error.place, f"{message} ({also})" if also else message)


def _check_step(
    step: Step, workspace: Workspace, index: Index, locked: Record | None, known: Mapping[str, str]
) -> Iterator[Problem]:
    try:
        found = anchor(step, workspace, index)
    except AnnotatorError as error:
        place = "" if isinstance(error, ReadingError) else step.place()
        yield _problem(error, place, _became(locked, workspace, index))
        return
    now = record(found, known.get(found.pin, ""), step.options.get("contract", ""))
    if locked is None:
        yield Problem(step.place(), "expected the step in anchors.lock, found none; run annotator anchors")
    elif now.digest != locked.digest and (now.symbol, now.quotes) == (locked.symbol, locked.quotes):
        lines = f"lines {found.first} to {found.last} of {found.path}"
        remedy = "see whether the note still holds, then run annotator anchors"
        yield Problem(step.place(), f"expected the code that anchors.lock remembers, found {lines} changed; {remedy}")
    elif now != locked:
        fields = ", ".join(name for name in vars(now) if getattr(now, name) != getattr(locked, name))
        yield Problem(
            step.place(), f"expected anchors.lock to be up to date, found another {fields}; run annotator anchors"
        )


def _became(locked: Record | None, workspace: Workspace, index: Index) -> str:
    """What became of the anchor, by its redundant form: said beside the reason why it fails."""
    if locked is None or not workspace.tree(locked.pin).exists():
        return ""
    drift = relocate(locked, workspace.tree(locked.pin), index)
    where = f" at {drift.path}:{drift.first}" if drift.first else ""
    return f"{drift.state}{where}: {drift.why}"


def _left_over(
    readings: list[Reading], locked: Mapping[str, Record], workspace: Workspace, *, complete: bool
) -> Iterator[Problem]:
    """Entries of steps that are no more. Said only when every reading could be parsed."""
    keys = {step.key for reading in readings for step in reading.steps}
    for key in sorted(locked.keys() - keys) if complete else ():
        place = workspace.anchors.relative_to(workspace.root).as_posix()
        yield Problem(place, f"expected a step {key!r}, found none; run annotator anchors")


def _check_links(readings: list[Reading], workspace: Workspace, index: Index) -> Iterator[Problem]:
    for reference in references(readings):
        why = dead(reference, readings, workspace, index)
        if why is not None:
            yield Problem(reference.place, why)
