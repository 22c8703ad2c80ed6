"""The committed observations: what a run shows today is what they say, and what is stale is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from annotator.errors import AnnotatorError, ReadingError
from annotator.observations import Observed, observe, read, scenarios, stale
from annotator.observations.model import place, write
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[2]
READINGS = scenarios(Workspace.find(ROOT))
SLOWEST = 10
"""Recording may take this many times as long as running; what takes milliseconds is not measured by a test."""


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_a_run_shows_what_is_committed(reading: str) -> None:
    workspace = Workspace.find(ROOT)
    try:
        made = observe(workspace, reading)
    except AnnotatorError as error:
        pytest.skip(f"the pins are not here: {error}")
    assert made.observed == read(workspace, reading)


def test_every_reading_has_observations() -> None:
    assert READINGS
    assert all(read(Workspace.find(ROOT), reading) for reading in READINGS)


def test_the_file_says_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "walkthroughs" / "verl").mkdir(parents=True)
    seen = read(Workspace.find(ROOT), "verl/grpo-advantage")
    assert isinstance(seen, Observed)
    elsewhere = Workspace(tmp_path, tmp_path, tmp_path)
    write(elsewhere, seen)
    assert read(elsewhere, "verl/grpo-advantage") == seen
    place(elsewhere, "verl/grpo-advantage").write_text("{")
    with pytest.raises(ReadingError, match="run `annotator observe verl/grpo-advantage`"):
        read(elsewhere, "verl/grpo-advantage")
    assert read(elsewhere, "verl/none") is None


def test_stale() -> None:
    seen = read(Workspace.find(ROOT), "verl/grpo-advantage")
    assert isinstance(seen, Observed)
    assert stale(seen, seen.scenario, seen.steps) == []
    assert stale(seen, "another", seen.steps) == ["the scenario changed"]
    assert stale(replace(seen, steps={"scores": "x"}), seen.scenario, seen.steps) == ["the lines of scores changed"]


def test_a_reading_without_scenario() -> None:
    with pytest.raises(ReadingError, match="did you mean verl/grpo-advantage"):
        observe(Workspace.find(ROOT), "verl/grpo-advantages")
