"""The readings of this project: their frame, their size, and that they hold on the pins."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from annotator.readings import Reading, anchor, check, load, read_anchors, relocate
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[2]
WORKSPACE = Workspace.find(ROOT)
FRAME = [
    "The question",
    "The path of the data",
    "The decisive lines",
    "What the minimal version leaves out",
    "The check",
]
READINGS = [reading for reading in load(WORKSPACE) if reading.steps]
LONGEST = 400
"""Source lines that one reading may show."""


def name(reading: Reading) -> str:
    return reading.name


@pytest.fixture(scope="module")
def index() -> object:
    """The index of the pins; tests that need it are skipped where it was not built."""
    from annotator.index import Index

    if not WORKSPACE.index.exists():
        pytest.skip("needs annotator fetch and annotator index")
    return Index.open(WORKSPACE)


def test_there_are_readings() -> None:
    assert {r.name for r in READINGS} >= {
        "verl/grpo-advantage",
        "trl/dpo-loss",
        "vllm/token-sampling",
        "pytorch/adamw-step",
    }


@pytest.mark.parametrize("reading", READINGS, ids=name)
def test_frame(reading: Reading) -> None:
    assert re.findall(r"(?m)^## (.+)$", reading.text) == FRAME
    assert 5 <= len(reading.steps) <= 10
    lead = reading.text.split("\n\n")[1].splitlines()
    assert len(lead) == 2


@pytest.mark.parametrize("reading", READINGS, ids=name)
def test_every_step_is_named(reading: Reading) -> None:
    assert all(step.options.get("id") and step.options.get("title") for step in reading.steps)


@pytest.mark.parametrize("reading", READINGS, ids=name)
def test_contracts_exist(reading: Reading) -> None:
    catalogue = {file.stem.replace("_", "-") for file in (ROOT / "annotator" / "catalog").glob("[a-z]*.py")}
    named = {step.options["contract"] for step in reading.steps if "contract" in step.options}
    assert named
    assert named <= catalogue


@pytest.mark.parametrize("reading", READINGS, ids=name)
def test_no_note_repeats_a_line(reading: Reading) -> None:
    """A note does not quote what the code beside it shows already: no quote of a step stands in a note."""
    quotes = [q for step in reading.steps for q in (step.begin, step.end) if q and len(q) > 24]
    assert not [q for q in quotes for step in reading.steps if q in step.note]


@pytest.mark.parametrize("reading", READINGS, ids=name)
def test_length(reading: Reading, index: object) -> None:
    anchors = [anchor(step, WORKSPACE, index) for step in reading.steps]  # type: ignore[arg-type]
    assert sum(a.last - a.first + 1 for a in anchors) <= LONGEST


def test_nothing_is_wrong(index: object) -> None:
    assert [str(problem) for problem in check(WORKSPACE, index)] == []  # type: ignore[arg-type]


def test_one_changed_character_is_found(index: object, tmp_path: Path) -> None:
    """A copy of the pins in which one character inside an anchored quote is another one."""
    copy = Workspace(root=tmp_path, cache=WORKSPACE.cache, state=tmp_path / "vendored_refs")
    copy.state.mkdir()
    shutil.copy(WORKSPACE.lock, copy.lock)
    shutil.copytree(WORKSPACE.readings, copy.readings)
    for pin in {step.pin for reading in READINGS for step in reading.steps}:
        copy.tree(pin).symlink_to(WORKSPACE.tree(pin).resolve())
    assert check(copy, index) == []  # type: ignore[arg-type]

    path = "verl/trainer/ppo/core_algos.py"
    copy.tree("verl").unlink()
    file = copy.tree("verl") / path
    file.parent.mkdir(parents=True)
    for folder in file.parents[:4]:  # the rest of the tree is linked, level by level
        _link_siblings(folder, WORKSPACE.tree("verl") / folder.relative_to(copy.tree("verl")))
    text = (WORKSPACE.tree("verl") / path).read_text()
    quote = "scores = token_level_rewards.sum(dim=-1)\n\n    id2score = defaultdict(list)\n    id2mean = {}\n    id2std"
    assert text.count(quote) >= 1
    file.unlink(missing_ok=True)
    start = text.index("def compute_grpo_outcome_advantage")
    at = text.index(quote, start) + quote.index("-1")
    file.write_text(text[:at] + "+" + text[at + 1 :])
    found = [str(problem) for problem in check(copy, index)]  # type: ignore[arg-type]
    line = next(s for r in READINGS for s in r.steps if s.id == "scores").places["from"]
    assert len(found) == 1
    assert found[0].startswith(f"walkthroughs/verl/grpo-advantage.md:{line}: ")
    assert "nearest: line 304 `scores = token_level_rewards.sum(dim=+1)`" in found[0]


def test_reformatting_a_pin_changes_no_anchor(index: object, tmp_path: Path) -> None:
    """Every anchor is found again, saying the same, after a formatter has been over the file."""
    records = read_anchors(WORKSPACE)
    for entry in records.values():
        file = tmp_path / entry.pin / entry.path
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(WORKSPACE.tree(entry.pin) / entry.path, file)
    style = ("--line-length", "70", "--config", "format.quote-style='single'")
    command = (sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", *style, str(tmp_path))
    if subprocess.run(command, check=False).returncode:
        pytest.skip("needs ruff")
    drifts = {key: relocate(entry, tmp_path / entry.pin, index) for key, entry in records.items()}  # type: ignore[arg-type]
    assert {key: drift for key, drift in drifts.items() if drift.state not in ("exact", "moved")} == {}
    assert sum(drift.state == "moved" for drift in drifts.values()) > len(records) / 2  # it did reformat


def _link_siblings(here: Path, there: Path) -> None:
    for entry in there.iterdir():
        if not (here / entry.name).exists():
            (here / entry.name).symlink_to(entry)
