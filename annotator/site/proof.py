"""The proof card of a contract: what was recorded, on which device, and what is stale or missing.

Apart from the step because the page of a contract shows the same card. Reads recorded proofs; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from annotator import catalog
from annotator.contracts import powers, proofs
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
class Caught:
    """What the contract was seen to catch: by deviation the probes that caught it, by dtype."""

    deviations: Mapping[str, Mapping[str, str]]
    rewritings: Mapping[str, Mapping[str, str]]
    date: str
    stale: str = ""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes in which it was tried."""
        return tuple(sorted({dtype for held in self.deviations.values() for dtype in held}, reverse=True))

    @property
    def alarms(self) -> tuple[str, ...]:
        """The rewritings, right code, that raised an alarm all the same."""
        tried = ((name, dtype, probes) for name, held in self.rewritings.items() for dtype, probes in held.items())
        return tuple(f"{name} in {dtype} by {probes}" for name, dtype, probes in tried if probes)

    @property
    def summary(self) -> str:
        """In one sentence."""
        every = len(self.deviations)
        seen = sum(all(held.values()) for held in self.deviations.values())
        quiet = len(self.rewritings) - len({alarm.partition(" in ")[0] for alarm in self.alarms})
        return (
            f"It caught {seen} of {every} deviations, in {' and '.join(self.dtypes)}, and let {quiet} of"
            f" {len(self.rewritings)} equal rewritings pass."
        )


@dataclass(frozen=True)
class Card:
    """What the Proof tab shows: ``problems`` in red, ``remarks`` and ``facts`` in grey."""

    contract: str
    title: str
    command: str
    rows: tuple[Row, ...] = ()
    caught: Caught | None = None
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
    command, seen = f"annotator conform {name}", caught(workspace, contract)
    problems = (*_problems(rows, missing), *_unseen(contract, seen))
    return Card(name, contract.title, command, rows, seen, problems, tuple(_remarks(rows)), facts)


def caught(workspace: Workspace, contract: Contract) -> Caught | None:
    """What a contract was seen to catch; ``None`` where nothing is recorded.

    Raises:
        ContractError: the record cannot be read.
    """
    kept = powers.load(workspace).get(contract.name)
    if kept is None:
        return None
    return Caught(kept["deviations"], kept["rewritings"], kept["date"], powers.stale(workspace, contract, kept))


def _unseen(contract: Contract, seen: Caught | None) -> Iterator[str]:
    """What is missing, stale or wrong of the record of deviations."""
    if seen is None:
        yield "Missing: it is not recorded which deviations it catches."
        return
    lacking = [item.name for item in contract.deviations if item.name not in seen.deviations]
    if lacking:
        yield f"Missing: it is not recorded whether it catches {', '.join(lacking)}."
    if seen.stale:
        yield f"Stale: which deviations it catches; {seen.stale}."
    if seen.alarms:
        yield f"False alarm: equal code was held to be wrong: {', '.join(seen.alarms)}."


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
