"""How long work tells how far it is, without knowing who shows it.

Apart from the command line so that pins and index need no terminal library.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of named tasks, perhaps from several threads at once."""

    def start(self, task: str, total: int | None) -> None:
        """A task begins (or begins anew) with ``total`` units, if known; for downloads these are bytes."""

    def advance(self, task: str, amount: int) -> None:
        """``amount`` more units are done."""

    def finish(self, task: str) -> None:
        """The task is done, or given up."""


class Silent:
    """Shows nothing."""

    def start(self, task: str, total: int | None) -> None:
        """Shows nothing."""

    def advance(self, task: str, amount: int) -> None:
        """Shows nothing."""

    def finish(self, task: str) -> None:
        """Shows nothing."""
