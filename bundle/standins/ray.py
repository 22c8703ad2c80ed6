"""Stands where Ray would be, in a bundle that must do without it: Ray's wheel alone is larger than a bundle may be.

verl imports Ray for its controllers. What contracts call of verl on a GPU needs nothing of it; whatever does gets an
error that names the library, and so becomes a finding that was not run.
"""

from __future__ import annotations

from typing import Any


class ObjectRef:
    """Only ever asked whether something is one."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ModuleNotFoundError(f"this bundle carries no Ray, hence no ray.{name}", name="ray")
