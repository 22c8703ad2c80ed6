"""`annotator read`: a reading in the terminal, step by step, the code from the pin above its note.

Apart from the site because it needs nothing of it: no MkDocs, no HTML.
"""

from __future__ import annotations

import sys

import click

from annotator.console import bold, dim, emit
from annotator.index import Index
from annotator.pins import read_lock, tree
from annotator.readings import Anchor, Reading, Step, anchor
from annotator.workspace import Workspace


def tour(workspace: Workspace, reading: Reading, *, pause: bool, as_json: bool = False) -> None:
    """Print ``reading`` step by step; with ``pause``, wait for a key after each.

    Raises:
        ReadingError: an anchor of the reading no longer holds.
    """
    with Index.open(workspace) as index:
        stops = [(step, anchor(step, workspace, index)) for step in reading.steps]
    if as_json:
        emit([_row(workspace, step, place) for step, place in stops])
        return
    click.echo(bold(reading.title))
    for number, (step, place) in enumerate(stops, start=1):
        click.echo()
        _show(workspace, f"{number}/{len(stops)}", step, place)
        if pause and number < len(stops) and _stops():
            return


def _stops() -> bool:
    answer: str = click.prompt(dim("enter for the next step, q to stop"), default="", show_default=False)
    return answer.strip().lower() == "q"


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


def _show(workspace: Workspace, count: str, step: Step, place: Anchor) -> None:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.syntax import Syntax

    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=120)
    where = f"{workspace.place(place.pin, place.path)}:{place.first}"
    click.echo(f"{bold(count)}  {bold(step.symbol)}  {dim(where)}")
    code = "\n".join(_lines(workspace, place))
    lexer = "python" if place.path.endswith((".py", ".pyi")) else "cpp"
    console.print(Syntax(code, lexer, line_numbers=True, start_line=place.first, theme="ansi_dark", word_wrap=True))
    console.print(Markdown(step.note))
