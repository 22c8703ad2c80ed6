"""Runs the scenario of a reading on two sizes, and puts together what was seen.

A scenario is a file of Python beside the reading. ``SIZES`` holds two mappings of names to sizes, different in each;
``run(**sizes)`` runs pinned code (`pins.load`) and returns a scalar to differentiate, or None. A dimension gets the
name of the size that it equals in both runs.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from annotator import pins
from annotator.catalog._third_party import quiet
from annotator.errors import ReadingError, did_you_mean, near_matches
from annotator.index import Index
from annotator.observations.model import SCENARIO, Observed, Statement, scenario_digest
from annotator.observations.recording import File, Key, Ran, Recorder
from annotator.observations.values import describe
from annotator.pins.progress import Silent
from annotator.readings import Anchor, anchor, read_page

if TYPE_CHECKING:
    from annotator.pins import Progress
    from annotator.workspace import Workspace

REPEATS = 3
"""Runs of the first size, recorded and not: the quickest of each are compared."""


@dataclass(frozen=True)
class Done:
    """Observations with what recording them cost: seconds of a run with and without it."""

    observed: Observed
    plain: float
    recorded: float

    @property
    def slowdown(self) -> float:
        """How many times as long the recorded run took."""
        return self.recorded / self.plain if self.plain else 0.0

    def figures(self) -> dict[str, float]:
        """How much was seen, and what that cost."""
        seen = [value for rows in self.observed.files.values() for row in rows for value in row.seen]
        moving = sum(value.gradient is not None for value in seen)
        steps = len(self.observed.steps)
        return {"steps": steps, "values": len(seen), "gradients": moving, "slowdown": round(self.slowdown, 1)}


@dataclass(frozen=True)
class Scenario:
    """A scenario file: what it runs, on which sizes, and the digest of its text."""

    path: str
    sizes: tuple[Mapping[str, int], ...]
    run: Callable[..., Any]
    digest: str


def scenarios(workspace: Workspace) -> list[str]:
    """The names of the readings that have a scenario."""
    found = workspace.readings.rglob(f"*{SCENARIO}")
    return sorted(file.relative_to(workspace.readings).as_posix().removesuffix(SCENARIO) for file in found)


def scenario(workspace: Workspace, reading: str) -> Scenario:
    """The scenario of a reading.

    Raises:
        ReadingError: there is none, or it lacks ``run`` or two ``SIZES`` of the same names.
    """
    file = workspace.readings / f"{reading}{SCENARIO}"
    if not file.is_file():
        known = scenarios(workspace)
        remedy = did_you_mean(near_matches(reading, known)) or f"there are {', '.join(known)}"
        raise ReadingError(reading, expected="a reading with a scenario", found="none of that name", remedy=remedy)
    path, module = file.relative_to(workspace.root).as_posix(), ModuleType(f"scenario of {reading}")
    exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    sizes: tuple[Any, ...] = getattr(module, "SIZES", ())
    run = getattr(module, "run", None)
    if not callable(run) or len(sizes) != 2 or set(sizes[0]) != set(sizes[1]):
        raise ReadingError(
            path, expected="run(**sizes), and SIZES: two mappings of the same names", found="other names"
        )
    return Scenario(path, tuple(dict(size) for size in sizes), run, scenario_digest(workspace, reading))


def observe(workspace: Workspace, reading: str, *, progress: Progress | None = None) -> Done:
    """Runs the scenario of a reading and gives what its lines made; ``progress`` is told of each run.

    Raises:
        ReadingError: no scenario, or none of the reading's lines ran. Whatever the scenario raises.
    """
    given = scenario(workspace, reading)
    page = read_page(workspace, f"{workspace.readings.relative_to(workspace.root).as_posix()}/{reading}.md")
    with Index.open(workspace) as index:
        anchors = {step.id: anchor(step, workspace, index) for step in page.steps}
    one, two = given.sizes
    told = progress or Silent()
    told.start(reading, 2 + 2 * REPEATS)
    with quiet():
        given.run(**one)  # imports, and whatever is made once
        told.advance(reading, 1)
        plain, runs = [], []
        for _ in range(REPEATS):
            start = time.perf_counter()
            given.run(**one)
            plain.append(time.perf_counter() - start)
            told.advance(reading, 1)
        for sizes in (*[one] * REPEATS, two):
            runs.append(recorded(workspace, given, sizes, anchors.values()))
            told.advance(reading, 1)
    told.finish(reading)
    first, second = runs[0].files, runs[-1].files
    ran = {name: one for name, one in anchors.items() if reached(first[one.pin, one.path], one)}
    if not ran:
        raise ReadingError(given.path, expected="a run that reaches a line of a step", found="none was reached")
    files = {
        f"{key[0]}:{key[1]}": tuple(statements(first[key], second[key], given.sizes, lines))
        for key, lines in watched(ran.values()).items()
    }
    steps = {name: one.digest for name, one in ran.items()}
    seen = Observed(
        reading, given.digest, steps, versions(workspace, ran.values()), given.sizes, files, order(first, ran)
    )
    return Done(seen, min(plain), min(run.seconds for run in runs[:-1]))


@dataclass(frozen=True)
class Run:
    """One recorded run."""

    files: dict[Key, File]
    seconds: float


def recorded(workspace: Workspace, given: Scenario, sizes: Mapping[str, int], anchors: Collection[Anchor]) -> Run:
    """Runs a scenario on one of its sizes under the recorder, and differentiates what it returns."""
    files: dict[Key, File] = {}
    places: dict[str, File] = {}
    for key, lines in watched(anchors).items():
        source = (workspace.tree(key[0]) / key[1]).resolve()
        files[key] = File.of(source.read_text(encoding="utf-8"), lines)
        places |= {str(place): files[key] for place in (source, *installed(source, key[1]))}
    start = time.perf_counter()
    with Recorder(places).watching():
        result = given.run(**sizes)
    seconds = time.perf_counter() - start
    if result is not None and getattr(result, "requires_grad", False):
        result.backward()
    for file in files.values():
        for ran in file.ran.values():
            differentiated(ran)
    return Run(files, seconds)


def watched(anchors: Collection[Anchor]) -> dict[Key, set[int]]:
    """The lines of steps by pin and path."""
    lines: dict[Key, set[int]] = {}
    for one in anchors:
        lines.setdefault((one.pin, one.path), set()).update(range(one.first, one.last + 1))
    return lines


def installed(source: Path, path: str) -> Iterator[Path]:
    """The same file where it is installed, if it has the same bytes: some pins run from there."""
    for folder in sys.path:
        place = Path(folder or ".", path)
        if place.is_file() and place.resolve() != source and place.read_bytes() == source.read_bytes():
            yield place.resolve()


def differentiated(ran: Ran) -> None:
    """Adds the gradients that have arrived."""
    for number, tensor in ran.moving.items():
        if tensor.grad is not None:
            gradient = describe("gradient", tensor.grad)
            ran.seen[number] = replace(ran.seen[number], gradient=replace(gradient, shape=None))
    ran.moving.clear()


def reached(file: File, one: Anchor) -> bool:
    """Whether a statement of a step ran."""
    return any(one.first <= shape.first <= one.last for shape in file.ran)


def order(files: Mapping[Key, File], ran: Mapping[str, Anchor]) -> tuple[str, ...]:
    """The steps in the order in which their first statements began."""
    began = {
        name: min(n for shape, n in files[one.pin, one.path].begun.items() if one.first <= shape.first <= one.last)
        for name, one in ran.items()
    }
    return tuple(sorted(began, key=began.__getitem__))


def statements(one: File, two: File, sizes: Sequence[Mapping[str, int]], lines: Collection[int]) -> Iterator[Statement]:
    """The statements on these lines, ran or not, with what they made on the first size; the second names dimensions."""
    for shape in sorted(set(one.shapes.values()), key=lambda shape: shape.first):
        if shape.first in lines:
            ran, other = one.ran.get(shape), two.ran.get(shape)
            values = itertools.zip_longest(ran.seen if ran else [], other.seen if other else [])
            seen = [replace(a, shape=named(a.shape, b.shape if b else None, sizes)) for a, b in values if a]
            yield Statement(shape.last, ran.times if ran else 0, tuple(seen))


def named(
    shape: tuple[int | str, ...] | None, other: tuple[int | str, ...] | None, sizes: Sequence[Mapping[str, int]]
) -> tuple[int | str, ...] | None:
    """A shape with the names of its sizes; a number where it is the same in both runs, or where no name fits."""
    if shape is None or other is None or len(shape) != len(other):
        return shape
    return tuple(name_of(int(a), int(b), sizes) for a, b in zip(shape, other, strict=True))


def name_of(first: int, second: int, sizes: Sequence[Mapping[str, int]]) -> int | str:
    """The name of a dimension that is ``first`` in one run and ``second`` in the other: a size or made of sizes."""
    if first == second:
        return first
    one, two = sizes
    if plain := [name for name in one if (one[name], two[name]) == (first, second)]:
        return plain[0]
    for step, sign in ((-1, "−1"), (1, "+1")):
        if near := [name for name in one if (one[name] + step, two[name] + step) == (first, second)]:
            return f"{near[0]}{sign}"
    if double := [name for name in one if (2 * one[name], 2 * two[name]) == (first, second)]:
        return f"2{double[0]}"
    products = itertools.combinations(one, 2)
    fits = [f"{a}·{b}" for a, b in products if (one[a] * one[b], two[a] * two[b]) == (first, second)]
    return fits[0] if fits else first


def versions(workspace: Workspace, anchors: Collection[Anchor]) -> dict[str, str]:
    """The versions of the pins that ran, and of torch."""
    import torch

    lock = pins.read_lock(workspace.lock)
    return {name: lock[name].version for name in sorted({one.pin for one in anchors})} | {
        "torch": torch.__version__.partition("+")[0]
    }
