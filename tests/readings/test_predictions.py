"""Numbers in the answers of ``/// details | Predict: …`` are those that the reading's run recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^/// details \| Predict: .*?\n(.*?)^///$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[+−-]?\d+\.\d+(?:e[−-]\d+)?")
PAGES = sorted(path for path in (ROOT / "walkthroughs").rglob("*.md") if BLOCK.search(path.read_text("utf-8")))


def numbers(text: str) -> list[float]:
    """The numbers with a decimal point."""
    return [float(found.replace("−", "-")) for found in NUMBER.findall(text)]


def unrecorded(answer: str, recorded: list[float]) -> list[str]:
    """Numbers of three digits or more in an answer that no recorded number rounds to."""
    missing = []
    for text in NUMBER.findall(answer):
        value, digits = float(text.replace("−", "-")), len(re.sub(r"e.*|\D", "", text).lstrip("0"))
        if digits > 1 and not any(float(f"{abs(one):.{digits - 1}e}") == abs(value) for one in recorded):
            missing.append(text)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_answers_are_recorded(page: Path) -> None:
    recorded = numbers(page.with_suffix(".observed.json").read_text("utf-8"))
    answers = BLOCK.findall(page.read_text("utf-8"))
    assert any(numbers(answer) for answer in answers)
    assert [text for answer in answers for text in unrecorded(answer, recorded)] == []


def test_another_number_is_told() -> None:
    recorded = numbers(json.dumps({"text": "0.03928, −6.623e−09"}, ensure_ascii=False))
    assert unrecorded("a push of 0.0393 at −6.6e−09", recorded) == []
    assert unrecorded("a push of 0.0394 at −6.7e−09", recorded) == ["0.0394", "−6.7e−09"]
