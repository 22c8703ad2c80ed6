"""The index of the real pins, opened once; tests that ask for it are skipped where the pins are not fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.errors import AnnotatorError
from annotator.index import Index
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def pins() -> Iterator[Index]:
    try:
        opened = Index.open(Workspace.find(ROOT))
    except AnnotatorError as error:
        pytest.skip(f"the pins are not indexed here: {error}")
    with opened:
        missing = {"verl", "trl", "vllm", "torch"} - set(opened.pins())
        if missing:
            pytest.skip(f"not indexed here: {', '.join(sorted(missing))}")
        yield opened
