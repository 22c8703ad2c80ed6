"""The proof card of a contract: what was recorded, on which device, and what is stale or missing.

Apart from the step because contract pages will show the same card. Reads recorded proofs; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from annotator import catalog
from annotator.errors import ContractError, ReadingError
from annotator.workspace import Workspace


@dataclass(frozen=True)
class Row:
    """One implementation in one dtype on one device, as text; ``stale`` says why it no longer counts."""

    implementation: str
    reference: str
    dtype: str
    device: str
    error: str
    bound: str
    gradient: str
    status: str
    stale: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran and kept within its bounds."""
        return self.status == "passed"


@dataclass(frozen=True)
class Card:
    """What the Proof tab shows: ``problems`` in red, ``remarks`` and ``facts`` in grey."""

    contract: str
    title: str
    command: str
    rows: tuple[Row, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def card(workspace: Workspace, name: str, place: str) -> Card:
    """The card of a contract.

    Raises:
        ReadingError: no such contract; ``place`` is the step's.
    """
    try:
        title = catalog.contract(name).title
    except ContractError as error:
        raise ReadingError(place, expected="a contract of the catalogue", found=f"no {name!r}") from error
    entries = recorded(workspace, name)
    rows = tuple(row(entry, why) for entry, why in entries)
    facts = tuple(_facts(entry for entry, _ in entries))
    return Card(name, title, f"annotator conform {name}", rows, tuple(_problems(rows)), tuple(_remarks(rows)), facts)


def recorded(workspace: Workspace, name: str) -> list[tuple[Mapping[str, Any], str]]:
    """The recorded proofs of a contract, each with the reason why it is stale, or an empty string."""
    return []


def row(entry: Mapping[str, Any], stale: str = "") -> Row:
    """A recorded proof as text."""
    return Row(
        implementation=str(entry["implementation"]),
        reference=str(entry.get("reference") or ""),
        dtype=str(entry["dtype"]),
        device=str(entry["device"]),
        error=_error(entry),
        bound=number(entry.get("bound")),
        gradient=number(entry.get("gradient_error")),
        status=str(entry.get("status", "passed")),
        stale=stale,
    )


def number(value: Any) -> str:
    """A measured number in few characters: ``0``, ``3.1e-16``; a dash for none."""
    if value is None:
        return "–"
    amount = float(value)
    return "0" if amount == 0 else f"{amount:.1e}".replace("e-0", "e-").replace("e+0", "e+")


def _error(entry: Mapping[str, Any]) -> str:
    if entry.get("p_value") is not None:
        return f"p = {float(entry['p_value']):.2g}"
    return number(entry.get("error"))


def _problems(rows: tuple[Row, ...]) -> Iterator[str]:
    if not rows:
        yield "No proof is recorded."
    stale = [r for r in rows if r.stale]
    if stale:
        yield f"Stale: {stale[0].stale}; {len(stale)} of {len(rows)} results no longer count."
    failed = [r for r in rows if r.status == "failed"]
    if failed:
        yield f"{len(failed)} of {len(rows)} results are out of bounds."


def _remarks(rows: tuple[Row, ...]) -> Iterator[str]:
    if rows and not any(r.device.startswith("cuda") for r in rows):
        yield "Not yet run on a GPU."


def _facts(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Date and versions, said once for all rows that share them."""
    said: dict[str, None] = {}
    for entry in entries:
        versions = entry.get("versions") or {}
        listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        date = str(entry.get("date") or "")[:10]
        said[f"Recorded {date} on {entry['device']}" + (f" with {listed}." if listed else ".")] = None
    yield from said
