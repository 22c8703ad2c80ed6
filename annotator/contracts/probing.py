"""Runs probes on a function: what a contract can say of it without any reference.

Apart from `probes`, which say what the relations are. A case on which a function cannot run (outside of its domain, or
made so by the relation) says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from annotator.contracts.comparison import FLOAT64_BOUND
from annotator.contracts.model import Backend, Call, Case, Contract, Implementation, Probe, Runner
from annotator.contracts.oracle import at
from annotator.contracts.running import ROUNDOFF, Fault, Result, run

CASES = 24
"""How many cases a probe looks at, the named edges first; it stops at the first one that breaks the relation."""


@dataclass(frozen=True)
class Probed:
    """How one function fared under one probe; ``case`` is the one with the largest error."""

    probe: str
    doc: str
    cases: int
    error: float
    bound: float
    case: Case | None = None
    reason: str = ""

    @property
    def kept(self) -> bool:
        """Whether the relation held wherever it said something."""
        return self.error <= self.bound

    def line(self) -> str:
        """The finding as text."""
        if self.kept:
            return f"{self.probe}: holds on {self.cases} cases ({self.doc})"
        return (
            f"{self.probe}: broken, {self.reason or f'error {self.error:.1e} (at most {self.bound:.1e})'} ({self.doc})"
        )


class Outside(Exception):
    """Raised by a runner where a case is outside the domain of the function."""


def runner(
    contract: Contract, call: Call, backend: Backend, accepts: Callable[[Case], str | None], dtype: str, device: str
) -> Runner:
    """Runs ``call`` in its own process, gradients included."""

    def go(case: Case, dtype: str = dtype) -> Result:
        if accepts(case) is not None:
            raise Outside
        return run(contract, call, backend, case, dtype=dtype, device=device)

    return go


def limit(dtype: str) -> float:
    """The bound of a relation: that of float64, or as many roundings of a lower dtype."""
    return FLOAT64_BOUND * ROUNDOFF[dtype] / ROUNDOFF["float64"]


def probed(probe: Probe, go: Runner, cases: Sequence[Case], allowed: float) -> Probed:
    """One probe over some cases."""
    seen, worst, shown, reason = 0, 0.0, None, ""
    for case in cases:
        try:
            found = probe.relation(go, case)
        except Outside:
            continue
        except Fault as fault:
            found, reason = float("inf"), str(fault)
        if found is None:
            continue
        seen += 1
        if shown is None or found > worst:
            worst, shown = found, case
        if found > allowed:
            break
    return Probed(probe.name, probe.doc, seen, worst, allowed, shown, reason)


def probe_implementation(
    contract: Contract, item: Implementation, reference: Implementation, cases: Sequence[Case], device: str = "cpu"
) -> Iterator[Probed]:
    """Every probe of the contract on one implementation, at the dialect of a reference."""
    dtype = item.dtypes[0]
    moved = [at(case, reference.dialect) for case in cases]

    def accepts(case: Case) -> str | None:
        return item.accepts(case) or reference.accepts(case)

    chosen = [case for case in moved if accepts(case) is None][:CASES]
    go = runner(contract, item.call, item.backend, accepts, dtype, device)
    for probe in contract.probes:
        yield probed(probe, go, chosen, limit(dtype))
