"""How the command line speaks: plain lines and JSON on standard output, progress on standard error.

Apart from the verbs so that none of them knows whether somebody is watching. Colours and bars appear on a terminal
only; `NO_COLOR` turns colours off, as rich does it.
"""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


def emit(data: Any) -> None:
    """Print ``data`` as JSON, for machines."""
    click.echo(json.dumps(data, indent=2, sort_keys=True, default=str))


def bold(text: str) -> str:
    """``text`` in bold; click drops the styling when the output is piped."""
    return click.style(text, bold=True)


def dim(text: str) -> str:
    """``text`` subdued."""
    return click.style(text, dim=True)


def verdict(passed: bool, text: str = "") -> str:
    """``text`` (or ok/FAILED) in green or red."""
    return click.style(text or ("ok" if passed else "FAILED"), fg="green" if passed else "red")


class Bar:
    """The progress protocol of `annotator.pins` and the other long jobs, drawn by rich on standard error.

    ``start(task, total)``, ``advance(task, amount)``, ``finish(task)``; tasks may run in several threads. ``unit`` is
    what is counted: ``bytes`` or a noun.
    """

    def __init__(self, unit: str = "bytes") -> None:
        self._unit = unit
        self._tasks: dict[str, TaskID] = {}
        self._rich: RichProgress | None = None

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self._rich = _rich_progress(self._unit)
            self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    def start(self, task: str, total: int | None) -> None:
        """Announce a task of ``total`` units (None when unknown)."""
        if self._rich is not None:
            self._tasks[task] = self._rich.add_task(task, total=total)

    def advance(self, task: str, amount: int) -> None:
        """``amount`` more units of a task are done."""
        if self._rich is not None and task in self._tasks:
            self._rich.advance(self._tasks[task], amount)

    def finish(self, task: str) -> None:
        """A task is done."""
        if self._rich is not None and task in self._tasks:
            self._rich.update(self._tasks[task], visible=False)


def _rich_progress(unit: str) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    name = TextColumn("{task.description}")
    return RichProgress(name, BarColumn(), count, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
