"""The committed lock against the real registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotator.pins import fetch, verify
from annotator.workspace import Workspace

LOCK = Path(__file__).parents[2] / "vendored_refs" / "pins.toml"


@pytest.mark.network
@pytest.mark.slow
def test_the_locked_pins_can_be_had(tmp_path: Path) -> None:
    """A wheel, a source archive and the members of a large wheel, into an empty cache."""
    place = Workspace(root=tmp_path, cache=tmp_path / "cache", state=tmp_path / "vendored_refs")
    place.state.mkdir()
    place.lock.write_bytes(LOCK.read_bytes())
    done = {item.name: item for item in fetch(place)}
    assert list(done) == ["verl", "trl", "vllm", "torch", "stable-baselines3", "liger-kernel"]
    assert done["torch"].received < 30_000_000, "of 111 MB"
    for name in done:
        verify(place, name)
