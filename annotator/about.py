"""`annotator find`: all that is known about a name, gathered from the index, the anchors and the readings.

Apart from the index because readings and contracts come after it in the chain. Imports nothing heavy: it must answer at
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from annotator.console import bold, dim
from annotator.errors import AnnotatorError, SymbolNotFound, did_you_mean
from annotator.index import Call, Definition, Index
from annotator.pins import Progress
from annotator.readings import read_anchors
from annotator.workspace import Workspace

Row = dict[str, Any]


def about(workspace: Workspace, name: str, *, pin: str | None, kind: str | None, uses: bool, limit: int) -> list[Row]:
    """The definitions that ``name`` may mean, best first, the uses of the best, and the steps and contracts about each.

    Raises:
        SymbolNotFound: there is none; near matches are suggested.
    """
    steps = _steps(workspace)
    with Index.open(workspace) as index:
        found = index.find(name, pin=pin, kind=kind, limit=limit)
        if not found:
            raise SymbolNotFound(name, index.near(pin or "", name))
        rows = [_row(item, steps.get(item.symbol, [])) for item in found]
        if uses:
            rows[0]["uses"] = [asdict(use) for use in index.uses(found[0], limit=limit)]
    for row in (*rows, *rows[0].get("uses", [])):
        row["place"] = f"{workspace.place(row['pin'], row['path'])}:{row['line']}"
    return rows


def calls(workspace: Workspace, name: str, *, pin: str | None, kind: str | None, to: bool, limit: int) -> Row:
    """The best definition of ``name`` with the calls ``to`` it, or else those that it makes.

    Raises:
        SymbolNotFound: there is none; near matches are suggested.
    """
    from annotator.index.calls import callees, callers

    with Index.open(workspace) as index:
        found = _best(index, name, pin, kind)
        made = callers(index, found, limit + 1) if to else callees(index, found)
    calls = [_call(workspace, call) for call in made[:limit]]
    return {"symbol": found.symbol, "kind": found.kind, "calls": calls, "more": len(made) > limit}


def registered(workspace: Workspace, name: str, *, pin: str | None) -> list[Row]:
    """Where a name is registered, and what stands behind it.

    Raises:
        AnnotatorError: nowhere; strings that are spelt like it are suggested.
    """
    from annotator.index.registries import near
    from annotator.index.registries import registered as registrations

    with Index.open(workspace) as index:
        found = registrations(index, name, pin)
        if not found:
            remedy = did_you_mean([each for each in near(index, name) if registrations(index, each, pin)])
            raise AnnotatorError(name, expected="a name that is registered", found="none of that name", remedy=remedy)
    return [
        asdict(item)
        | {"target": item.target and item.target.symbol, "place": f"{workspace.place(item.pin, item.path)}:{item.line}"}
        for item in found
    ]


def registration_lines(rows: list[Row]) -> Iterator[str]:
    """Registrations for a terminal: what stands behind the name, then where and with what it is registered."""
    for row in rows:
        yield bold(row["target"] or "what it is is not plain") + dim(f"  {row['certainty']}")
        yield f"  {row['place']}  {row['how']} {'of' if row['how'] == 'entry' else 'by'} {row['registry']}"


def path(workspace: Workspace, start: str, goal: str, progress: Progress | None = None) -> Row:
    """The shortest chain of calls between the best definitions of two names; its ``calls`` are None if there is none.

    Raises:
        SymbolNotFound: one of them names nothing; near matches are suggested.
    """
    from annotator.index.calls import path as chain

    with Index.open(workspace) as index:
        first, last = _best(index, start), _best(index, goal)
        made = chain(index, first, last, progress=progress)
    found = None if made is None else [_call(workspace, call) for call in made]
    return {"from": first.symbol, "to": last.symbol, "calls": found}


def _best(index: Index, name: str, pin: str | None = None, kind: str | None = None) -> Definition:
    found = index.find(name, pin=pin, kind=kind, limit=1)
    if not found:
        raise SymbolNotFound(name, index.near(pin or "", name))
    return found[0]


def _call(workspace: Workspace, call: Call) -> Row:
    return asdict(call) | {"place": f"{workspace.place(call.pin, call.path)}:{call.line}"}


def call_lines(row: Row, *, to: bool) -> Iterator[str]:
    """The calls of a definition for a terminal, each with its line of source."""
    yield f"{bold(row['symbol'])}  {dim(row['kind'])}"
    for call in row["calls"]:
        word, other = ("called", call["caller"]) if to else ("calls", call["callee"])
        yield dim(f"  {word}, {call['certainty']:<9}") + f"{call['place']}  {other.partition(':')[2]}"
        yield f"      {call['text']}"
    if row["more"]:
        yield dim("  … and more; --limit shows them")
    if not row["calls"]:
        yield "  no call found; what goes through a registry, an argument or an object of unknown class is not followed"


def path_lines(row: Row) -> Iterator[str]:
    """A chain of calls for a terminal, a line a hop."""
    if row["calls"] is None:
        yield (
            f"no chain of calls from {row['from']} to {row['to']}; what goes through a registry, an argument or an "
            "object of unknown class is not followed"
        )
        return
    yield bold(row["from"])
    for call in row["calls"]:
        yield dim(f"  calls, {call['certainty']:<9}") + f"{call['place']}  {call['callee'].partition(':')[2]}"


def _steps(workspace: Workspace) -> dict[str, list[Row]]:
    """Symbol → the steps of readings about it, from the anchors' lock."""
    steps: dict[str, list[Row]] = {}
    for key, record in read_anchors(workspace).items():
        reading, _, step = key.partition("#")
        steps.setdefault(record.symbol, []).append({"reading": reading, "step": step, "contract": record.contract})
    return steps


def _row(item: Definition, steps: list[Row]) -> Row:
    contracts = dict.fromkeys(step["contract"] for step in steps if step["contract"])
    return asdict(item) | {"symbol": item.symbol, "readings": steps, "contracts": list(contracts)}


def lines(rows: list[Row]) -> Iterator[str]:
    """The rows for a terminal: the best in full, a line for each of the others."""
    yield from _whole(rows[0])
    if len(rows) > 1:
        yield dim("also")
        for row in rows[1:]:
            yield f"  {row['symbol']}  {dim(row['kind'])}  {row['place']}"


def _whole(row: Row) -> Iterator[str]:
    yield f"{bold(row['symbol'])}  {dim(row['kind'])}"
    yield f"  {row['place']}"
    yield from (f"  {part}" for part in (row["signature"], row["doc"]) if part)
    for reading in dict.fromkeys(step["reading"] for step in row["readings"]):
        ids = ", ".join(step["step"] for step in row["readings"] if step["reading"] == reading)
        yield f"  read in walkthroughs/{reading}.md, steps {ids}"
    yield from (f"  shown by the contract {name}" for name in row["contracts"])
    yield from _uses(row)


def _uses(row: Row) -> Iterator[str]:
    for use in row.get("uses", []):
        inside = f"  in {use['within'].partition(':')[2]}" if use["within"] else ""
        yield dim(f"  used, {use['certainty']:<9}") + f" {use['place']}{inside}"
