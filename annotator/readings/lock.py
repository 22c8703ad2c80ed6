"""``walkthroughs/anchors.lock``: every anchor in redundant form. Apart from anchoring, so that it can be read without
any pin.

JSON, one object a step, by ``reading#id``. It says what must hold when a pin moves: symbol, digests of the statements
and of their neighbours, ordinal, quotes, and last the lines. Of upstream's text it holds only the quotes that the
reading itself has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotator.errors import ReadingError
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.index import Index
    from annotator.readings.anchors import Anchor
    from annotator.readings.parsing import Reading, Step

FORMAT = 1


@dataclass(frozen=True)
class Record:
    """What the lock remembers of one anchor; `Anchor` tells of the fields. ``contract`` is what its step names, so that
    a look-up of a symbol needs no parsing of readings."""

    symbol: str
    pin: str
    version: str
    path: str
    digest: str
    edges: tuple[str, ...]
    ordinal: int
    quotes: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    lines: tuple[int, ...]
    contract: str = ""


def record(found: Anchor, version: str, contract: str = "") -> Record:
    """What the lock remembers of an anchor."""
    names = (f.name for f in fields(Record) if f.name not in ("version", "lines", "contract"))
    kept: dict[str, Any] = {name: getattr(found, name) for name in names}
    return Record(**kept, version=version, lines=(found.first, found.last), contract=contract)


def versions(workspace: Workspace) -> dict[str, str]:
    """The version of each pin."""
    from annotator.pins import read_lock

    return {name: pin.version for name, pin in read_lock(workspace.lock).items()}


def read_anchors(workspace: Workspace) -> dict[str, Record]:
    """The lock; empty when there is none yet.

    Raises:
        ReadingError: it is not the JSON that `write_anchors` writes.
    """
    place = workspace.anchors.name
    try:
        data = json.loads(workspace.anchors.read_text(encoding="utf-8"))
        return {key: _from_json(entry) for key, entry in data["anchors"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"{type(error).__name__} {error}"
        raise ReadingError(
            place, expected="what annotator anchors writes", found=found, remedy="run annotator anchors"
        ) from error


def _from_json(entry: Mapping[str, Any]) -> Record:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return Record(**values)


def write_anchors(workspace: Workspace, index: Index | None = None) -> list[str]:
    """Anchors every step of every reading and writes the lock, whole or not at all. Returns the keys that changed.

    Raises:
        ReadingError: a step cannot be anchored; the lock is left as it was.
    """
    from annotator.readings.parsing import load

    steps = [step for reading in load(workspace) for step in reading.steps]
    known = versions(workspace)
    made = {
        step.key: record(found, known[found.pin], step.options.get("contract", ""))
        for step, found in _anchored(steps, workspace, index)
    }
    old = read_anchors(workspace) if workspace.anchors.exists() else {}
    _write(workspace.anchors, made)
    return sorted(key for key in made.keys() | old.keys() if made.get(key) != old.get(key))


def _anchored(steps: Iterable[Step], workspace: Workspace, index: Index | None) -> Iterable[tuple[Step, Anchor]]:
    from annotator.readings.anchors import anchor

    opened = index if index is not None else open_index(workspace)
    return [(step, anchor(step, workspace, opened)) for step in steps]


def open_index(workspace: Workspace) -> Index:
    """The workspace's index. Imported here, so that parsing a reading does not load it."""
    from annotator.index import Index

    return Index.open(workspace)


def _write(path: Path, made: Mapping[str, Record]) -> None:
    entries = {key: {f.name: getattr(made[key], f.name) for f in fields(Record)} for key in sorted(made)}
    text = json.dumps({"format": FORMAT, "anchors": entries}, indent=1, ensure_ascii=False) + "\n"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def keys(readings: Iterable[Reading]) -> set[str]:
    """The keys that a complete lock has."""
    return {step.key for reading in readings for step in reading.steps}
