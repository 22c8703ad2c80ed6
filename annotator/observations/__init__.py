"""What really happened: pinned code runs, and what its lines made is recorded beside the reading that shows them.

A *scenario* (``walkthroughs/verl/grpo-advantage.scenario.py``) runs the code of a reading on two sizes; ``recording``
watches the lines of its steps, ``values`` says what a value is, ``observing`` puts both runs together and names the
dimensions. What comes out lies beside the reading, as JSON, and the site shows it at the lines. Names load on first
use: the site reads observations without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotator import lazy

if TYPE_CHECKING:
    from annotator.observations.model import Observed, Seen, read, stale, write
    from annotator.observations.observing import observe, scenarios

_HOMES = {
    "Observed": "model",
    "Seen": "model",
    "observe": "observing",
    "read": "model",
    "scenarios": "observing",
    "stale": "model",
    "write": "model",
}

__all__ = ["Observed", "Seen", "observe", "read", "scenarios", "stale", "write"]

__getattr__ = lazy.names(__name__, _HOMES)
