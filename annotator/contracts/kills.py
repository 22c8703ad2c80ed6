"""What a contract can see: its deviations are run under the bounds in force, and each must be caught.

A bound under which a deviation survives proves nothing, so such a contract is refused. Equivalent rewritings are run
beside them, and none may be caught. Likewise a reference's declared dialect must be real: with one knob moved, the
result must differ from the reference's; and so must a probe that it is declared to break.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from annotator.contracts import chi
from annotator.contracts.comparison import bound, split
from annotator.contracts.conforming import (
    Measured,
    accepted,
    case_errors,
    measure,
    references,
    sample_p_value,
    unavailable,
)
from annotator.contracts.findings import sized
from annotator.contracts.model import Backend, Call, Case, Contract, Deviation, Implementation, Rewriting
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.probing import CASES, limit, probe_implementation, probed, runner
from annotator.contracts.running import Fault
from annotator.contracts.sampling import draw
from annotator.errors import ContractError

ORDER = ("value", "gradient", "edge", "distribution")
"""The probes that need a reference, in the order of the matrix; those of the contract follow."""


@dataclass(frozen=True)
class Kill:
    """How one deviation (or rewriting) fared in one dtype, at the reference that sees it best.

    ``probes`` are those that caught it: value, gradient (on drawn cases), edge (on named cases), distribution, and the
    contract's own that need no reference. ``error`` is the largest error that it showed and ``bound`` what was allowed.
    """

    contract: str
    deviation: str
    reference: str
    dtype: str
    probes: tuple[str, ...]
    error: float
    bound: float
    case: str = ""
    kind: Literal["deviation", "rewriting"] = "deviation"

    @property
    def caught(self) -> bool:
        """Whether any probe saw it."""
        return bool(self.probes)

    @property
    def sound(self) -> bool:
        """Whether that is as it should be: deviations are caught, rewritings raise no alarm."""
        return self.caught == (self.kind == "deviation")

    def line(self) -> str:
        """The row in words."""
        told = "caught by " + ", ".join(self.probes) if self.probes else "SURVIVES"
        if self.kind == "rewriting":
            told = "FALSE ALARM by " + ", ".join(self.probes) if self.probes else "no alarm"
        return f"{self.deviation:<32} {self.dtype:<8} at {self.reference:<10} {told} ({self.facts()})"

    def facts(self) -> str:
        """The error, and what was allowed."""
        return f"error {sized(self.error)}, {self.bound:.1e} allowed"


def power(contract: Contract, *, examples: int = 40, dtypes: Sequence[str] = ("float64", "float32")) -> list[Kill]:
    """The kill matrix: a row a deviation (then rewriting) and dtype, at the reference where most probes see it.

    Raises:
        ContractError: a deviation cannot be run, or no reference can.
    """
    cases = draw(contract, examples)
    benches = [_Bench(contract, item, dtype, cases) for item in _available(contract) for dtype in dtypes]
    rows: list[Kill] = []
    tried_on: tuple[Deviation | Rewriting, ...] = (*contract.deviations, *contract.rewritings)
    for item in tried_on:
        for dtype in dtypes:
            tried = [bench.try_(item) for bench in benches if bench.dtype == dtype and bench.has_bound]
            rows += [max(tried, key=lambda kill: (len(kill.probes), kill.error))] if tried else []
    return rows


def survivors(contract: Contract, *, examples: int = 40, dtypes: Sequence[str] = ("float64", "float32")) -> list[str]:
    """The deviations that no reference sees, each with its dtype; quicker than `power`, since one case is enough.

    Raises:
        ContractError: a deviation cannot be run, or no reference can.
    """
    cases = draw(contract, examples)
    benches = [_Bench(contract, item, dtype, cases) for item in _available(contract) for dtype in dtypes]
    usable = [bench for bench in benches if bench.has_bound]
    found = []
    for item in contract.deviations:
        for dtype in dict.fromkeys(bench.dtype for bench in usable):
            if not any(bench.sees(item) for bench in usable if bench.dtype == dtype):
                found.append(f"{item.name} in {dtype}")
    return found


def columns(rows: Sequence[Kill]) -> list[str]:
    """The probes that caught anything, in the order of the matrix."""
    seen = {probe for row in rows for probe in row.probes}
    return [*(p for p in ORDER if p in seen), *sorted(seen - set(ORDER))]


def refuse(contract: Contract, *, examples: int = 40) -> None:
    """Refuses a contract that cannot see one of its own deviations.

    Raises:
        ContractError: a deviation survives in some dtype, or a rewriting raises an alarm.
    """
    for row in power(replace(contract, deviations=()), examples=examples):
        if row.caught:
            raise ContractError(contract.name, expected="no alarm on a rewriting", found=row.line())
    if lost := survivors(contract, examples=examples):
        raise ContractError(
            contract.name,
            expected="bounds and cases under which every deviation is caught",
            found=f"some under which there survives {', '.join(lost)}",
            remedy="add a case or an output that shows it",
        )


def _available(contract: Contract) -> list[Implementation]:
    found = [item for item in references(contract) if not unavailable(item, "cpu")]
    if not found:
        reasons = "; ".join(f"{item.name}: {unavailable(item, 'cpu')}" for item in references(contract))
        raise ContractError(contract.name, expected="a reference that can be run", found=reasons or "no reference")
    return found


class _Bench:
    """One reference and dtype with its bounds: what deviations are tried on."""

    def __init__(self, contract: Contract, reference: Implementation, dtype: str, cases: tuple[Case, ...]) -> None:
        self.contract, self.reference, self.dtype, self.cases = contract, reference, dtype, cases
        self.oracle = Oracle(contract, reference)
        self.has_bound = dtype == "float64" or dtype in reference.dtypes
        self.chosen = accepted(cases, reference)
        self.limits = (0.0, 0.0)
        if self.has_bound:
            self.limits = self._bounds()

    def _bounds(self) -> tuple[float, float]:
        if self.dtype == "float64":
            return bound("float64", 0.0), bound("float64", 0.0)
        base = self._measure(self.reference.call, self.reference.backend, self.reference.differentiable)
        self.chosen = [i for i in self.chosen if i in base.errors and max(split(base.errors[i])) < float("inf")]
        value, gradient = base.worst(self.chosen)
        return bound(self.dtype, value), bound(self.dtype, gradient)

    def _measure(self, call: Any, backend: Any, gradient: bool) -> Measured:
        return measure(self.oracle, call, backend, self.cases, self.chosen, self.dtype, gradient=gradient)

    def try_(self, item: Deviation | Rewriting) -> Kill:
        """Runs a deviation, or a rewriting, and says which probes see it."""
        wrong = isinstance(item, Deviation)
        backend: Backend = "torch" if isinstance(item, Deviation) else item.backend
        found = self._measure(item.call, backend, self.reference.differentiable and backend != "numpy")
        if found.faults:
            raise self._broken(item, next(iter(found.faults.values())))
        probes, worst = self._seen(found)
        larger = max(zip(found.worst(self.chosen), self.limits, strict=True), key=lambda pair: pair[0] / pair[1])
        probes |= self._distribution(item) | self._relations(item.call, backend)
        ordered = (*(p for p in ORDER if p in probes), *(p.name for p in self.contract.probes if p.name in probes))
        kind: Literal["deviation", "rewriting"] = "deviation" if wrong else "rewriting"
        return Kill(self.contract.name, item.name, self.reference.name, self.dtype, ordered, *larger, worst, kind)

    def sees(self, item: Deviation) -> bool:
        """Whether any probe tells a deviation from the reference."""
        gradient = self.reference.differentiable
        for i in self.chosen:
            try:
                parts = case_errors(self.oracle, item.call, "torch", self.cases[i], self.dtype, gradient=gradient)
            except Fault as fault:
                raise self._broken(item, fault) from fault
            if any(found > allowed for found, allowed in zip(split(parts), self.limits, strict=True)):
                return True
        return bool(self._distribution(item) or self._relations(item.call, "torch"))

    def _broken(self, item: Deviation | Rewriting, fault: Fault) -> ContractError:
        return ContractError(f"{self.contract.name}: {item.name!r}", expected="a result", found=str(fault))

    def _relations(self, call: Call, backend: Backend) -> set[str]:
        """The contract's probes that do not hold; those that the reference itself breaks say nothing here."""
        if self.dtype != "float64":
            return set()
        cases = [at(self.cases[i], self.reference.dialect) for i in self.chosen][:CASES]
        go = runner(self.contract, call, backend, self.reference.accepts, "float64", "cpu")
        asked = [probe for probe in self.contract.probes if probe.name not in self.reference.breaks]
        return {probe.name for probe in asked if not probed(probe, go, cases, limit("float64")).kept}

    def _seen(self, found: Measured) -> tuple[set[str], str]:
        probes: set[str] = set()
        label = ""
        for i, parts in found.errors.items():
            value, gradient = split(parts)
            hits = [
                n for n, e, b in (("value", value, self.limits[0]), ("gradient", gradient, self.limits[1])) if e > b
            ]
            if hits and self.cases[i].label:
                label = label or self.cases[i].label
                probes.add("edge")
            else:
                probes.update(hits)
        return probes, label

    def _distribution(self, item: Deviation | Rewriting) -> set[str]:
        if self.contract.kind != "distribution" or item.sample is None:
            return set()
        cases = [self.cases[i] for i in self.chosen]
        p, _ = sample_p_value(self.oracle, item.sample, "torch", cases, self.dtype)
        return {"distribution"} if p < chi.FALSE_ALARM else set()


def dialect_is_real(contract: Contract, reference: str, *, examples: int = 40) -> list[str]:
    """The choices at which a reference cannot be told from its declared dialect; empty when the dialect is real.

    Each knob of the dialect is moved to each of its other choices in an implementation that has every knob, and some
    case must then differ from the reference. An item reads ``eps=1e-08``.

    Raises:
        ContractError: nothing that has the knobs can be run.
    """
    item = contract.implementation(reference)
    mover = _mover(contract)
    oracle = Oracle(contract, item)
    cases = draw(contract, examples)
    chosen = [cases[i] for i in accepted(cases, item)]
    moves = [
        (k.name, v) for k in contract.knobs if k.name in item.dialect for v in k.choices if v != item.dialect[k.name]
    ]
    return [f"{name}={value!r}" for name, value in moves if not _tells(oracle, mover, chosen, name, value)]


def breaks_are_real(contract: Contract, name: str, *, examples: int = 40) -> list[str]:
    """The probes that an implementation is declared to break and keeps all the same; empty when all are real."""
    item = contract.implementation(name)
    cases = draw(contract, examples)
    reference = item if item.role == "reference" else references(contract)[0]
    seen = {one.probe: one for one in probe_implementation(contract, item, reference, cases)}
    return [probe for probe in item.breaks if probe not in seen or seen[probe].kept]


def _mover(contract: Contract) -> Implementation:
    """Something that has every knob: a minimal implementation, else the oracle."""
    for item in contract.implementations:
        if item.role == "minimal" and "float64" in item.dtypes and not unavailable(item, "cpu"):
            return item
    if contract.oracle is None:
        raise ContractError(contract.name, expected="an implementation that has every knob", found="none that runs")
    return Implementation("oracle", "minimal", "numpy", contract.oracle, (), differentiable=False)


def _tells(oracle: Oracle, mover: Implementation, cases: Sequence[Case], name: str, value: Any) -> bool:
    """Whether some case differs once the knob is moved."""

    def moved(**arguments: Any) -> Any:
        return mover.call(**{**arguments, name: value})

    for case in cases:
        if mover.accepts(replace(case, knobs={**case.knobs, **oracle.reference.dialect, name: value})) is not None:
            continue
        try:
            parts = case_errors(oracle, moved, mover.backend, case, "float64", gradient=mover.differentiable)
        except Fault:
            return True
        if any(e > bound("float64", 0.0) for e in parts.values()):
            return True
    return False
