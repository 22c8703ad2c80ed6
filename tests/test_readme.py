"""The README and the pages are executed: every `annotator` command in a console block prints what the block says.

A line ``…`` stands for any lines. Seconds and sizes of errors are not compared: they are the machine's. The two `make`
commands run this test, so it cannot run them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from annotator.cli import cli
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "walkthroughs/diff.md", "walkthroughs/index.md", "examples/README.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
MACHINES_OWN = re.compile(r"\b\d+(\.\d+)? s\b|\b\d\.\de[+-]\d\d\b")


@dataclass(frozen=True)
class Shown:
    """A command, and what a page says that it prints."""

    page: str
    command: str
    output: str


def shown(page: str, text: str) -> list[Shown]:
    """The commands of the console blocks of a page, in order."""
    found = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(page, command, output.rstrip()))
    return found


def agrees(expected: str, printed: str) -> bool:
    """Whether the printed text is the expected one, ``…`` lines standing for any lines."""
    parts = [re.escape(MACHINES_OWN.sub("#", line.rstrip())) for line in expected.splitlines()]
    pattern = "\n".join(r"(?:.*\n)*?.*" if part == re.escape("…") else part for part in parts)
    plain = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, MACHINES_OWN.sub("#", plain)) is not None


def all_shown() -> list[Shown]:
    pages = [(page, ROOT / page) for page in PAGES]
    return [item for page, path in pages if path.is_file() for item in shown(page, path.read_text("utf-8"))]


RUN = [item for item in all_shown() if item.command.startswith("annotator ")]


@pytest.mark.slow
@pytest.mark.skipif(not Workspace.find(ROOT).index.is_file(), reason="the pins are not fetched and indexed here")
@pytest.mark.parametrize("item", RUN, ids=lambda item: f"{item.page}: {item.command}")
def test_the_page_shows_true_output(item: Shown, tmp_path: Path) -> None:
    """A command on ``mine.py`` runs where the first Python block of its page is that file."""
    place = ROOT
    if "mine.py" in item.command:
        place, page = tmp_path, (ROOT / item.page).read_text("utf-8")
        block = PYTHON.search(page)
        assert block is not None
        (place / "mine.py").write_text(block[1])
    command = [sys.executable, "-m", "annotator.cli", *shlex.split(item.command)[1:]]
    environment = {**os.environ, "PYTHONWARNINGS": "default", "ANNOTATOR_ROOT": str(ROOT)}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=400)
    assert agrees(item.output, done.stdout + ("" if done.stdout else done.stderr)), done.stdout + done.stderr


def test_the_readme_shows_every_verb() -> None:
    words = (ROOT / "README.md").read_text("utf-8")
    assert [verb for verb in cli.commands if f"annotator {verb}" not in words] == []


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("took 1.5 s", "took 2 s", True),
        ("error 1.4e-07 (at most 2.8e-07)", "error 1.1e-07 (at most 2.3e-07)", True),
        ("error 1.4e-07", "error inf", False),
        ("found 3 x", "found 4 x", False),
    ],
)
def test_the_comparison_itself_can_fail(expected: str, printed: str, same: bool) -> None:
    assert agrees(expected, printed) is same
