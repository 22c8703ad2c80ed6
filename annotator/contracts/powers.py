"""Which deviations each contract caught, by which probes and when: ``tests/proofs/power/<device>.json``.

Apart from `proofs`, whose entries say what agrees; this says how much that means. An entry rests on the contract, its
deviations and everything that they were held against, and is stale once one of these changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotator.contracts import proofs
from annotator.contracts.model import Contract
from annotator.errors import AnnotatorError, ContractError
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.contracts.kills import Kill

REMEDY = "run annotator conform --power --record"


def record(workspace: Workspace, contract: Contract, rows: Sequence[Kill], device: str = "cpu") -> Path:
    """Writes what a contract caught, in place of what it caught before; returns the path.

    Raises:
        ContractError: a deviation survives: such a contract proves nothing.
    """
    lost = [row for row in rows if row.kind == "deviation" and not row.caught]
    if lost or not rows:
        found = lost[0].line() if lost else "no deviation"
        raise ContractError(contract.name, expected="every deviation caught", found=found)
    path = _path(workspace, device)
    entries = {**load(workspace, device), contract.name: entry(workspace, contract, rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    proofs.write(path, json.dumps(dict(sorted(entries.items())), indent=1, sort_keys=True) + "\n")
    return path


def entry(workspace: Workspace, contract: Contract, rows: Iterable[Kill]) -> dict[str, Any]:
    """What is kept of one contract: by name and dtype the probes that caught a deviation, or were alarmed by a
    rewriting; versions, date, digests.
    """
    kept: dict[str, dict[str, dict[str, str]]] = {"deviation": {}, "rewriting": {}}
    for row in rows:
        kept[row.kind].setdefault(row.deviation, {})[row.dtype] = " ".join(row.probes)
    symbols = [symbol for item in contract.implementations for symbol in item.symbols]
    return {
        "deviations": kept["deviation"],
        "rewritings": kept["rewriting"],
        "date": datetime.now(UTC).date().isoformat(),
        "versions": proofs.versions(workspace, symbols),
        "digests": digests(workspace, contract),
    }


def digests(workspace: Workspace, contract: Contract) -> dict[str, str]:
    """Digest of every piece of code that an entry rests on: contract, deviations, references, the minimal version."""
    found: dict[str, str] = {}
    for item in contract.implementations:
        if item.backend != "jax":  # deviations are written in torch
            found |= proofs.digests(workspace, contract, item.name, item.name)
    calls = [*(item.call for item in contract.deviations), *(item.call for item in contract.rewritings)]
    found["deviations"] = proofs.calls_digest(calls)
    return found


def load(workspace: Workspace, device: str = "cpu") -> dict[str, dict[str, Any]]:
    """The entries of a device by contract; none where none was recorded.

    Raises:
        ContractError: the file cannot be read.
    """
    path = _path(workspace, device)
    if not path.is_file():
        return {}
    try:
        entries: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
        for item in entries.values():
            _ = item["deviations"], item["rewritings"], item["digests"], item["date"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = type(error).__name__
        raise ContractError(str(path), expected="what contracts caught", found=found, remedy=REMEDY) from error
    return entries


def stale(workspace: Workspace, contract: Contract, kept: Mapping[str, Any]) -> str:
    """Why an entry no longer holds, or an empty string."""
    try:
        now = digests(workspace, contract)
    except AnnotatorError as error:
        return f"cannot be checked: {error}"
    before = kept["digests"]
    changed = sorted({*now, *before} - {name for name in now if before.get(name) == now[name]})
    return f"{', '.join(changed)} changed since it was recorded" if changed else ""


def check(workspace: Workspace, contracts: Iterable[Contract]) -> list[proofs.Stale]:
    """Entries that are stale, and contracts without one."""
    recorded, found = load(workspace), []
    for contract in contracts:
        kept = recorded.get(contract.name)
        reason = stale(workspace, contract, kept) if kept else "not recorded which deviations it catches"
        if reason:
            found.append(proofs.Stale(f"tests/proofs/power/cpu.json: {contract.name}", f"{reason}; {REMEDY}"))
    return found


def _path(workspace: Workspace, device: str) -> Path:
    return workspace.proofs / "power" / f"{device}.json"
