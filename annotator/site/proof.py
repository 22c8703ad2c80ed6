"""The proof card of a contract: what was recorded, on which device, and what is stale or missing.

Apart from the step because the page of a contract shows the same card. Reads recorded proofs; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from annotator import catalog
from annotator.contracts import proofs
from annotator.contracts.model import Contract
from annotator.errors import ContractError, ReadingError
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.site.atlas import Atlas


@dataclass(frozen=True)
class Row:
    """One implementation in one dtype on one device, as text; ``stale`` says why it no longer counts.

    Only what passed is ever recorded.
    """

    implementation: str
    reference: str
    dtype: str
    device: str
    error: str
    bound: str
    gradient: str
    stale: str = ""


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

    @property
    def summary(self) -> str:
        """Who agrees and where, in one sentence, for the steps that do not show the whole table."""
        names = ", ".join(dict.fromkeys(row.implementation for row in self.rows))
        devices = ", ".join(dict.fromkeys(row.device for row in self.rows))
        held = sum(not row.stale for row in self.rows)
        return f"{held} of {len(self.rows)} results hold, on {devices}: {names}."

    @property
    def short(self) -> str:
        """The same in a cell of a table."""
        devices = ", ".join(dict.fromkeys(row.device for row in self.rows))
        if self.problems:
            return self.problems[0].partition(":")[0].rstrip(".").lower()
        return f"holds on {devices}"


def card(workspace: Workspace, name: str, place: str) -> Card:
    """The card of a contract.

    Raises:
        ReadingError: no such contract; ``place`` is the step's.
    """
    try:
        contract = catalog.contract(name)
    except ContractError as error:
        raise ReadingError(place, expected="a contract of the catalogue", found=f"no {name!r}") from error
    entries = recorded(workspace, contract)
    missing = len(set(proofs.expected(contract)) - {_key(entry) for entry, _ in entries if entry["device"] == "cpu"})
    rows = tuple(row(entry, why) for entry, why in entries)
    facts = tuple(_facts(entry for entry, _ in entries))
    command = f"annotator conform {name}"
    return Card(name, contract.title, command, rows, tuple(_problems(rows, missing)), tuple(_remarks(rows)), facts)


def cached(atlas: Atlas, name: str, place: str) -> Card:
    """`card`, made once: steps and pages share it, and staleness costs a look at every pinned symbol."""
    if name not in atlas.cards:
        atlas.cards[name] = card(atlas.workspace, name, place)
    return atlas.cards[name]


def recorded(workspace: Workspace, contract: Contract) -> list[tuple[Mapping[str, Any], str]]:
    """The recorded proofs of a contract, each with the reason why it is stale, or an empty string.

    Raises:
        ContractError: a file of proofs cannot be read.
    """
    return [
        ({**entry, "device": device}, proofs.stale(workspace, contract, entry))
        for device, entries in proofs.load(workspace).items()
        for entry in entries
        if entry["contract"] == contract.name
    ]


def _key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry[name]) for name in ("contract", "implementation", "reference", "dtype"))


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
        stale=stale,
    )


def number(value: Any) -> str:
    """A measured number in few characters: ``0``, ``3.1e-16``; a dash for none."""
    if value is None:
        return "–"
    amount = float(value)
    return "0" if amount == 0 else f"{amount:.1e}".replace("e-0", "e-").replace("e+0", "e+")


def _error(entry: Mapping[str, Any]) -> str:
    if entry.get("error") is None:
        return "the oracle"
    chance = entry.get("p_value")
    return number(entry["error"]) + (f", p = {float(chance):.2g}" if chance is not None else "")


def _problems(rows: tuple[Row, ...], missing: int) -> Iterator[str]:
    if not rows:
        yield "No proof is recorded."
    elif missing:
        yield f"Missing: {missing} results that this contract promises are not recorded."
    stale = [r for r in rows if r.stale]
    if stale:
        yield f"Stale: {len(stale)} of {len(rows)} results no longer count; {stale[0].stale}."


def _remarks(rows: tuple[Row, ...]) -> Iterator[str]:
    """That there is no proof from a GPU, or what is missing of one: it may lack a reference that this project has."""
    others = dict.fromkeys(r.device for r in rows if r.device != "cpu")
    if rows and not others:
        yield "Not yet run on a GPU."
    for device in others:
        there = {(r.implementation, r.reference) for r in rows if r.device == device}
        lacking = dict.fromkeys(r.implementation for r in rows if (r.implementation, r.reference) not in there)
        if lacking:
            yield f"Not shown on {device}: {', '.join(lacking)}."


def _facts(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Date and versions, said once for all rows of a device and day."""
    runs: dict[tuple[str, str], dict[str, str]] = {}
    for entry in entries:
        runs.setdefault((str(entry.get("date") or "?"), entry["device"]), {}).update(entry.get("versions") or {})
    for (date, device), versions in runs.items():
        listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        yield f"Recorded {date} on {device}" + (f" with {listed}." if listed else ".")
