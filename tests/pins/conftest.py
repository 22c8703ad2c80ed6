from __future__ import annotations

import pytest

from annotator.pins import registry


@pytest.fixture(autouse=True)
def _no_waiting_and_no_registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries do not wait, and a test that forgets to serve an index reaches a closed port, not the world."""
    monkeypatch.setattr(registry, "PAUSE", 0.0)
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
