"""How sure the links are: those of one line, each with its reason, and the shares over a pin's files."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from annotator.errors import IndexFileError, did_you_mean, near_matches
from annotator.index.languages import decode, language_of

if TYPE_CHECKING:
    from annotator.index.lookup import Index
    from annotator.index.model import Link
    from annotator.pins import Progress

PLACE = re.compile(r"(.+?):(\d+)(?::(\d+))?")
SAMPLE = 50
"""Files of a pin and language that are looked into, unless all are asked for."""


@dataclass(frozen=True)
class Line:
    """A line of a pin's file with the links of its identifiers, in their order."""

    pin: str
    path: str
    line: int
    text: str
    links: tuple[Link, ...]


@dataclass
class Tally:
    """Identifiers of some files of one pin and language, by certainty, and why those unresolved are."""

    pin: str
    language: str
    files: int = 0
    of: int = 0
    certainties: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def identifiers(self) -> int:
        """How many there are."""
        return self.certainties.total()

    def share(self, certainty: str) -> float:
        """The share of a certainty among the identifiers."""
        return self.certainties[certainty] / self.identifiers if self.identifiers else 0.0


def line_at(index: Index, place: str) -> Line:
    """The links on the line that ``PATH:LINE`` names, or the one at or before ``PATH:LINE:COLUMN``.

    PATH is as the tool prints it: ``vendored_refs/PIN/…``, ``PIN/…``, or that of the file in the pin's tree.

    Raises:
        IndexFileError: it is no such place, or no file of the index.
    """
    match = PLACE.fullmatch(place)
    if match is None:
        example = "for example vendored_refs/verl/verl/protocol.py:343"
        raise IndexFileError(place, expected="PATH:LINE or PATH:LINE:COLUMN", found="none", remedy=example)
    pin, path = file_at(index, match[1])
    number, column = int(match[2]), int(match[3]) if match[3] else None
    lines = decode(index.resolver.read(pin, path)).split("\n")
    if not 1 <= number <= len(lines):
        raise IndexFileError(place, expected=f"a line from 1 to {len(lines)}", found=match[2])
    links = [link for link in index.links(pin, path) if link.line == number]
    if column is not None:
        links = [link for link in links if link.column <= column < link.end_column]
    return Line(pin, path, number, lines[number - 1].rstrip("\r"), tuple(links))


def file_at(index: Index, written: str) -> tuple[str, str]:
    """Pin and path of a file as someone writes it down.

    Raises:
        IndexFileError: the index has no such file; near ones are suggested.
    """
    text = written.replace("\\", "/").removeprefix("./")
    text = text.removeprefix(f"{index.workspace.state.as_posix()}/").removeprefix("vendored_refs/")
    pin, _, path = text.partition("/")
    paths = index.paths(pin) if pin in index.pins() else []
    if path in paths:
        return pin, path
    name = path.rpartition("/")[2]
    near = [one for one in paths if one.endswith(f"/{name}")][:3] or near_matches(path, paths)
    remedy = did_you_mean([f"{pin}/{one}" for one in near]) or f"pins: {', '.join(index.pins())}"
    raise IndexFileError(written, expected="a file of the index", found="none of that name", remedy=remedy)


def tallies(index: Index, pin: str, sample: int | None = SAMPLE, progress: Progress | None = None) -> list[Tally]:
    """How sure the links of a pin are, by language: over ``sample`` files of each, spread evenly, or over all."""
    by_language: dict[str, list[str]] = {}
    for path in index.paths(pin):
        by_language.setdefault(language_of(path) or "", []).append(path)
    found = []
    for language, paths in sorted(by_language.items(), key=lambda item: -len(item[1])):
        chosen = spread(paths, sample)
        tally = Tally(pin, language, len(chosen), len(paths))
        if progress:
            progress.start(f"{pin}, {language}", len(chosen))
        for path in chosen:
            count(tally, index.links(pin, path))
            if progress:
                progress.advance(f"{pin}, {language}", 1)
        if progress:
            progress.finish(f"{pin}, {language}")
        found.append(tally)
    return found


def spread(paths: list[str], sample: int | None) -> list[str]:
    """So many of the paths, at even distances; all of them if there is no such limit."""
    if sample is None or len(paths) <= sample:
        return paths
    return [paths[number * len(paths) // sample] for number in range(sample)]


def count(tally: Tally, links: list[Link]) -> None:
    """Adds the links of one file."""
    for link in links:
        tally.certainties[link.certainty] += 1
        if link.certainty == "unresolved":
            tally.reasons[general(link.reason)] += 1


def general(reason: str) -> str:
    """What a reason says in general; the particular stands behind a colon."""
    return reason.partition(":")[0]
