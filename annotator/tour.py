"""`annotator read`: a reading in the terminal, step by step, the code from the pin above its note.

Apart from the site because it needs nothing of it: no MkDocs, no HTML.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

import click

from annotator.console import bold, dim, emit
from annotator.errors import AnnotatorError
from annotator.index import Index
from annotator.observations import read
from annotator.observations.model import Statement
from annotator.pins import read_lock, tree
from annotator.readings import Anchor, Reading, Step, anchor
from annotator.workspace import Workspace


def tour(workspace: Workspace, reading: Reading, *, pause: bool, as_json: bool = False) -> None:
    """Print ``reading`` step by step, with what a recorded run made; with ``pause``, wait for a key after each.

    Raises:
        ReadingError: an anchor of the reading no longer holds.
    """
    with Index.open(workspace) as index:
        stops = [(step, anchor(step, workspace, index)) for step in reading.steps]
    if as_json:
        emit([_row(workspace, step, place) for step, place in stops])
        return
    click.echo(bold(reading.title))
    seen, number = read(workspace, reading.name), 0
    while number < len(stops):
        step, place = stops[number]
        click.echo()
        ran = seen.at(place.pin, place.path) if seen and step.id in seen.steps else {}
        _show(workspace, f"{number + 1}/{len(stops)}", step, place, ran)
        number = _next(workspace, number, place, len(stops)) if pause else number + 1


def _next(workspace: Workspace, number: int, place: Anchor, count: int) -> int:
    """The step that the reader asks for; beyond the last one to stop."""
    while True:
        answer: str = click.prompt(
            dim("enter: next  b: back  o: open in $EDITOR  q: stop"), default="", show_default=False
        )
        match answer.strip().lower():
            case "q":
                return count
            case "b":
                return max(number - 1, 0)
            case "o":
                _open(tree(workspace, place.pin) / place.path, place.first)
            case _:
                return number + 1


def _open(file: os.PathLike[str], line: int) -> None:
    """Opens a file at a line in the reader's editor; most of them take ``+LINE``."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    program = shlex.split(editor)
    where = (
        ["--goto", f"{os.fspath(file)}:{line}"] if program[0] in ("code", "codium") else [f"+{line}", os.fspath(file)]
    )
    try:
        subprocess.run([*program, *where], check=False)
    except OSError as error:
        raise AnnotatorError(editor, expected="an editor", found=str(error.strerror), remedy="set EDITOR") from error


def _lines(workspace: Workspace, place: Anchor) -> list[str]:
    text = (tree(workspace, place.pin) / place.path).read_text(encoding="utf-8")
    return text.splitlines()[place.first - 1 : place.last]


def _row(workspace: Workspace, step: Step, place: Anchor) -> dict[str, object]:
    return {
        "id": step.id,
        "symbol": step.symbol,
        "path": place.path,
        "first": place.first,
        "last": place.last,
        "permalink": read_lock(workspace.lock)[place.pin].permalink(place.path, place.first, place.last),
        "code": _lines(workspace, place),
        "note": step.note,
    }


def _show(workspace: Workspace, count: str, step: Step, place: Anchor, ran: Mapping[int, Statement]) -> None:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.syntax import Syntax

    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=120)
    where = f"{workspace.place(place.pin, place.path)}:{place.first}"
    click.echo(f"{bold(count)}  {bold(step.symbol)}  {dim(where)}")
    code = "\n".join(_lines(workspace, place))
    lexer = "python" if place.path.endswith((".py", ".pyi")) else "cpp"
    for number, line in enumerate(Syntax(code, lexer, theme="ansi_dark").highlight(code).split("\n"), place.first):
        console.print(f"{number:>6} ", line, sep="", end="\n")
        for words in _made(ran.get(number)):
            console.print(f"       ┃ {words}", style="yellow", markup=False)
    console.print(Markdown(step.note))


def _made(ran: Statement | None) -> list[str]:
    """What a statement made, a line a value, gradients too."""
    lines = []
    for value in ran.seen if ran else ():
        often = f", first of {ran.times}" if ran and ran.times > 1 else ""
        lines.append(value.words() + often)
        if value.gradient:
            lines.append(f"∂ {value.name}{value.gradient.words().removeprefix('gradient')}")
    return lines
