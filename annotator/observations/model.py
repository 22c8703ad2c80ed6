"""What is kept of a run, and its file. Plain data, so that the site needs neither torch nor the code that ran."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotator.errors import ReadingError

if TYPE_CHECKING:
    from annotator.workspace import Workspace

SUFFIX = ".observed.json"
SCENARIO = ".scenario.py"


@dataclass(frozen=True)
class Seen:
    """One value that a statement made, as it was right after the statement ran for the first time.

    Attributes:
        name: as the source writes it; ``returned`` for a result, ``taken`` for a condition.
        type: ``tensor``, ``array``, or the name of a class.
        dtype: of the numbers; empty for what holds none.
        shape: sizes; names of sizes (``B``, ``T``, ``B·T``) where two runs tell them.
        text: the value, or its first few numbers.
        low, high: the range of finite numbers, where there are any.
        gradient: the derivative of what the scenario returned with respect to it, in the same words.
    """

    name: str
    type: str
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    text: str = ""
    low: str = ""
    high: str = ""
    gradient: Seen | None = None

    def words(self) -> str:
        """All of it on one line: ``scores float32 [B] 1, 0, 0 (0 … 1)``."""
        kind = "" if self.name in ("taken", "gradient") else self.dtype or self.type
        shape = f"[{', '.join(map(str, self.shape))}]" if self.shape else ""
        span = f"({self.low} … {self.high})" if self.low != self.high else ""
        return " ".join(filter(None, (self.name, kind, shape, self.text, span)))


@dataclass(frozen=True)
class Statement:
    """One statement: the line it ends in (of a compound one, its head), how often it ran, and what it made."""

    line: int
    times: int
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True)
class Observed:
    """What a scenario showed of a reading.

    Attributes:
        reading: its name, ``verl/grpo-advantage``.
        scenario: digest of the scenario file. steps: step id to the digest of the lines that ran.
        versions: what ran, by name. sizes: of the two runs; values are those of the first.
        files: ``pin:path`` to its statements, by line; only those of steps.
        order: the steps in the order in which the run came to them.
    """

    reading: str
    scenario: str
    steps: Mapping[str, str]
    versions: Mapping[str, str]
    sizes: tuple[Mapping[str, int], ...]
    files: Mapping[str, tuple[Statement, ...]] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def at(self, pin: str, path: str) -> Mapping[int, Statement]:
        """The statements of a file by the line they end in."""
        return {one.line: one for one in self.files.get(f"{pin}:{path}", ())}


def place(workspace: Workspace, reading: str) -> Path:
    """The file of a reading's observations."""
    return workspace.readings / f"{reading}{SUFFIX}"


def read(workspace: Workspace, reading: str) -> Observed | None:
    """The observations of a reading, or ``None`` if it has none.

    Raises:
        ReadingError: the file cannot be read.
    """
    file = place(workspace, reading)
    if not file.is_file():
        return None
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        files = {name: tuple(map(_statement, rows)) for name, rows in raw.pop("files").items()}
        return Observed(**{**raw, "sizes": tuple(raw["sizes"]), "files": files, "order": tuple(raw.get("order", ()))})
    except (ValueError, TypeError, KeyError) as error:
        where, remedy = file.relative_to(workspace.root).as_posix(), f"run `annotator observe {reading}`"
        raise ReadingError(where, expected="observations", found=str(error), remedy=remedy) from error


def _statement(raw: Mapping[str, Any]) -> Statement:
    return Statement(raw["line"], raw["times"], tuple(_seen(one) for one in raw.get("seen", ())))


def _seen(raw: Mapping[str, Any]) -> Seen:
    shape = raw.get("shape")
    gradient = raw.get("gradient")
    fields = {
        **raw,
        "shape": None if shape is None else tuple(shape),
        "gradient": _seen(gradient) if gradient else None,
    }
    return Seen(**fields)


def write(workspace: Workspace, observed: Observed) -> Path:
    """Writes observations beside the reading; equal ones give equal bytes."""
    file = place(workspace, observed.reading)
    text = json.dumps(_bare(asdict(observed)), indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _bare(value: Any) -> Any:
    """A value for JSON without what is empty."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if item not in (None, "", ()) or key == "shape"}
    return [_bare(item) for item in value] if isinstance(value, (list, tuple)) else value


def scenario_digest(workspace: Workspace, reading: str) -> str:
    """The digest of a scenario's text; empty if there is none."""
    file = workspace.readings / f"{reading}{SCENARIO}"
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""


def stale(observed: Observed, scenario: str, steps: Mapping[str, str]) -> list[str]:
    """Why observations no longer tell what would be seen; empty if they do. ``steps``: the digests of today."""
    reasons = ["the scenario changed"] if observed.scenario != scenario else []
    changed = [step for step, digest in observed.steps.items() if steps.get(step) != digest]
    return reasons + ([f"the lines of {', '.join(changed)} changed"] if changed else [])
