"""`annotator read` in a terminal: code with what a run made, and the keys."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from annotator import tour
from annotator.errors import AnnotatorError
from annotator.index import Index
from annotator.readings import anchor, read_page
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[1]
READING = "walkthroughs/verl/grpo-advantage.md"


def test_values_stand_under_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    workspace = Workspace.find(ROOT)
    try:
        tour.tour(workspace, read_page(workspace, READING), pause=False)
    except AnnotatorError as error:
        pytest.skip(f"the pins are not here: {error}")
    lines = capsys.readouterr().out.splitlines()
    here = next(number for number, line in enumerate(lines) if "scores_tensor = torch.stack" in line)
    assert "scores_tensor float32 [n]" in lines[here + 1]
    assert any("∂ pg_losses" in line for line in lines)


@pytest.mark.parametrize(("keys", "leads"), [("", 3), ("b", 1), ("q", 9), ("oq", 9)])
def test_keys(keys: str, leads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace.find(ROOT)
    opened: list[list[str]] = []
    answers = iter(keys or [""])
    monkeypatch.setattr(tour.click, "prompt", lambda *_, **__: next(answers))
    monkeypatch.setattr(tour.subprocess, "run", lambda command, **_: opened.append(command))
    monkeypatch.setenv("VISUAL", "some-editor --wait")
    try:
        with Index.open(workspace) as index:
            place = anchor(read_page(workspace, READING).steps[2], workspace, index)
        assert tour._next(workspace, 2, place, 9) == leads
    except AnnotatorError as error:
        pytest.skip(f"the pins are not here: {error}")
    assert [command[:3] for command in opened] == (
        [["some-editor", "--wait", f"+{place.first}"]] if "o" in keys else []
    )


def test_an_editor_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor")
    with pytest.raises(AnnotatorError, match="no-such-editor: expected an editor"):
        tour._open(Path(sys.executable), 1)
