"""Runs a contract: every implementation, at every reference's dialect, in every dtype, against the float64 oracle.

The reference goes first, for its own error is what bounds everybody else's; both are maxima over the same cases. What
cannot be run is a finding too, with the reason: nothing is skipped in silence.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from annotator.contracts import chi
from annotator.contracts.comparison import GRADIENT, bound, errors, first_difference, is_exact, part, split
from annotator.contracts.findings import Finding, Witness
from annotator.contracts.model import Backend, Call, Case, Contract, Implementation
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.probing import probe_implementation
from annotator.contracts.proofs import plan
from annotator.contracts.running import Fault, Result, fits, jax_device, run
from annotator.contracts.sampling import SEED, draw, witness
from annotator.errors import AnnotatorError
from annotator.pins.progress import Progress, Silent

SAMPLED_CASES = 12
"""How many cases of a distribution are drawn from; each costs `chi.DRAWS` draws a row."""


@dataclass
class Measured:
    """The errors of one callable over a set of cases, before anything is judged."""

    errors: dict[int, dict[str, float]] = field(default_factory=dict)
    faults: dict[int, Fault] = field(default_factory=dict)

    def worst(self, cases: Sequence[int]) -> tuple[float, float]:
        """The largest value error and gradient error over these cases; a fault counts as infinite."""
        both = [split(self.errors[i]) if i in self.errors else (float("inf"), 0.0) for i in cases]
        return max((v for v, _ in both), default=0.0), max((g for _, g in both), default=0.0)


def conform(
    contract: Contract,
    names: Sequence[str] | None = None,
    device: str = "cpu",
    dtypes: Sequence[str] | None = None,
    examples: int = 40,
    progress: Progress | None = None,
    reference: str = "",
) -> list[Finding]:
    """Every implementation (or those in ``names``) held against every reference of the contract (or ``reference``).

    ``dtypes`` are those of the run (without them, those of the device: `proofs.plan`), ``examples`` is the number of
    drawn cases besides the named edges, and ``progress`` is told of every implementation that is done.
    """
    cases = draw(contract, examples)
    wanted = list(_plan(contract, names, device, dtypes, reference))
    watcher = progress or Silent()
    watcher.start(contract.name, len(wanted))
    oracles = {item.name: Oracle(contract, item, device) for item in references(contract)}
    baselines: dict[tuple[str, str], Measured] = {}
    found = []
    for item, implementation, dtype in wanted:
        oracle = oracles[item.name]
        found.append(_finding(_Job(contract, item, implementation, dtype, device, cases, oracle, baselines)))
        watcher.advance(contract.name, 1)
    watcher.finish(contract.name)
    return found


def references(contract: Contract) -> list[Implementation]:
    """The references of a contract, in its order."""
    return [item for item in contract.implementations if item.role == "reference"]


def _plan(
    contract: Contract, names: Sequence[str] | None, device: str, dtypes: Sequence[str] | None, only: str
) -> Iterator[tuple[Implementation, Implementation, str]]:
    """The plan of a full run, restricted to what was asked for."""
    for reference, item, dtype in plan(contract, device, dtypes):
        if (not names or item.name in names) and only in ("", reference.name):
            yield reference, item, dtype


@dataclass(frozen=True)
class _Job:
    """One finding to be made, and what is shared between findings."""

    contract: Contract
    reference: Implementation
    implementation: Implementation
    dtype: str
    device: str
    cases: tuple[Case, ...]
    oracle: Oracle
    baselines: dict[tuple[str, str], Measured]

    @property
    def itself(self) -> bool:
        return self.implementation is self.reference

    @property
    def is_oracle(self) -> bool:
        """Whether what is judged is the very run that everything is measured against. That one is on the CPU."""
        return self.dtype == "float64" and self.device == "cpu" and self.oracle.values is self.implementation

    def accepted(self, *implementations: Implementation) -> list[int]:
        """The cases in the domain of all of them and of the reference, at its dialect."""
        return accepted(self.cases, self.reference, *implementations)

    def baseline(self) -> Measured:
        """The reference's own errors in this dtype; measured once."""
        key = (self.reference.name, self.dtype)
        if key not in self.baselines:
            self.baselines[key] = self.measure(self.reference)
        return self.baselines[key]

    def measure(self, implementation: Implementation) -> Measured:
        """The errors of an implementation over all cases in its domain."""
        chosen = self.accepted(implementation)
        return measure(
            self.oracle,
            implementation.call,
            implementation.backend,
            self.cases,
            chosen,
            self.dtype,
            self.device,
            gradient=implementation.differentiable,
        )


def accepted(cases: Sequence[Case], reference: Implementation, *others: Implementation) -> list[int]:
    """Which cases lie, at the reference's dialect, in the domain of the reference and of all others."""
    moved = [at(case, reference.dialect) for case in cases]
    return [i for i, case in enumerate(moved) if all(item.accepts(case) is None for item in (reference, *others))]


def measure(
    oracle: Oracle,
    call: Call,
    backend: Backend,
    cases: Sequence[Case],
    chosen: Sequence[int],
    dtype: str,
    device: str = "cpu",
    *,
    gradient: bool = True,
) -> Measured:
    """Errors of ``call`` on the chosen cases, at the oracle's dialect. Faults are kept, not raised."""
    result = Measured()
    for i in chosen:
        try:
            result.errors[i] = case_errors(oracle, call, backend, cases[i], dtype, device, gradient=gradient)
        except Fault as fault:
            result.faults[i] = fault
    return result


def case_errors(
    oracle: Oracle, call: Call, backend: Backend, case: Case, dtype: str, device: str = "cpu", *, gradient: bool = True
) -> dict[str, float]:
    """Errors of one call on one case. Raises `Fault` as `running.run` does."""
    expected = oracle(case, dtype)
    sloped = gradient and oracle.slope is not None
    found = run(
        oracle.contract, call, backend, at(case, oracle.reference.dialect), dtype=dtype, device=device, gradient=sloped
    )
    if sloped:
        found = attached(found, expected)
    return errors(oracle.contract, found, expected, condition=lambda key: oracle.condition(case, dtype, key))


def attached(found: Result, expected: Result) -> Result:
    """The result, with a gradient of 0 where the oracle has one and it has none: a detached output is an error."""
    zeros = {name: np.zeros_like(array) for name, array in expected.gradients.items()}
    return replace(found, gradients={**zeros, **found.gradients}) if expected.gradients else found


def unavailable(implementation: Implementation, device: str) -> str:
    """Why an implementation cannot be run here, or an empty string."""
    for name in implementation.requires:
        if not _present(name):
            return f"{name} is not installed"
    try:
        return _no_device(implementation.backend, device)
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed"


def _present(name: str) -> bool:
    """Whether a requirement is there. A pin that is fetched but not installed counts: it is imported from its tree."""
    module = name.partition(":")[2] or name
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None or _fetched(module)
    except (ImportError, ValueError):
        return False


def _fetched(name: str) -> bool:
    from annotator.workspace import Workspace

    try:
        return Workspace.find().tree(name).exists()
    except AnnotatorError:
        return False


def _no_device(backend: str, device: str) -> str:
    if device == "cpu":
        importlib.import_module(backend)
        return ""
    if backend == "torch":
        import torch

        return "" if torch.cuda.is_available() else f"torch sees no {device}"
    if backend == "jax":
        try:
            jax_device(device)
        except RuntimeError:
            return f"JAX has no {device}"
        return ""
    return "NumPy runs on the CPU only"


def _finding(job: _Job) -> Finding:
    """Runs one job and judges it. What is not there becomes the status "not run"."""
    began = time.perf_counter()
    empty = Finding(job.contract.name, job.implementation.name, job.reference.name, job.dtype, job.device, "not run")
    reason = _first_reason(job)
    if reason:
        return replace(empty, reason=reason)
    try:
        made = _judged(job, empty)
    except ModuleNotFoundError as error:
        made = replace(empty, reason=f"{error.name} is not installed")
    except Fault as fault:
        made = replace(empty, status="failed", reason=f"oracle: {fault}")
    except AnnotatorError as error:
        made = replace(empty, reason=str(error))
    return replace(made, seconds=round(time.perf_counter() - began, 3))


def _first_reason(job: _Job) -> str:
    if job.implementation.backend == "numpy" and job.dtype == "bfloat16":
        return "NumPy has no bfloat16"
    own = unavailable(job.implementation, job.device)
    if own or job.itself:
        return own
    other = unavailable(job.reference, job.device)
    return f"reference {job.reference.name}: {other}" if other else ""


def _judged(job: _Job, empty: Finding) -> Finding:
    """The errors against their bounds."""
    base = (
        job.baseline()
        if job.dtype in job.reference.all_dtypes and (job.itself or job.dtype != "float64")
        else Measured()
    )
    mine = base if job.itself else job.measure(job.implementation)
    cases, excluded = _comparable(job, base)
    value, gradient = mine.worst(cases)
    limits = _limits(job, base, cases)
    has_gradient = job.oracle.slope is not None and job.implementation.differentiable
    finding = replace(
        empty,
        status="passed",
        cases=len(cases),
        excluded=excluded,
        error=value,
        bound=limits[0],
        gradient_error=gradient if has_gradient else None,
        gradient_bound=limits[1] if has_gradient else None,
    )
    if not cases:
        return _nothing(job, base, empty)
    faults = [mine.faults[i] for i in cases if i in mine.faults]
    if faults or _exceeds(value, limits[0]) or _exceeds(gradient, limits[1]):
        return _failed(job, finding, faults, limits)
    if job.is_oracle:  # held against itself: that it ran is all there is to say
        finding = replace(finding, error=None, bound=None, gradient_error=None, gradient_bound=None)
        finding = replace(finding, reason="is the oracle")
    return _probed(job, _distributed(job, finding, cases))


def _exceeds(error: float, limit: float | None) -> bool:
    return error == float("inf") if limit is None else error > limit


def _nothing(job: _Job, base: Measured, empty: Finding) -> Finding:
    """Without a case to compare on: a fault of the contract, unless the dtype is one that the reference cannot take."""
    if job.dtype in job.reference.dtypes or not job.accepted(job.implementation):
        return replace(empty, status="failed", reason="no case lies in the domain of both")
    fault = next(iter(base.faults.values()), None)
    reason = f"{job.reference.name} computes no case in {job.dtype}{f': {fault}' if fault else ''}"
    return replace(empty, reason=reason)


_NO_BIT = 0.5
"""An error, relative to the result's size, from which on not one bit of a result is right."""


def _comparable(job: _Job, base: Measured) -> tuple[list[int], int]:
    """The accepted cases, less those beyond the range of the dtype or of the reference in it.

    These are cases whose numbers overflow in it, and those of which a reference in a low dtype keeps nothing: it is not
    finite where the oracle is, or not one bit is right. A bound from such a case would allow everything.
    """
    chosen = job.accepted(job.implementation)
    if job.dtype == "float64" or job.dtype not in job.reference.all_dtypes:
        return chosen, 0
    kept = [i for i in chosen if i in base.errors and fits(job.contract, job.cases[i], job.dtype)]
    good = [i for i in kept if max(split(base.errors[i])) < _NO_BIT]
    return good, len(chosen) - len(good)


def _limits(job: _Job, base: Measured, cases: list[int]) -> tuple[float | None, float | None]:
    """Bounds of value and gradient; None for a reference in a low dtype, whose error sets the bound."""
    if job.dtype != "float64" and job.itself:
        return None, None
    value, gradient = base.worst(cases) if job.dtype != "float64" else (0.0, 0.0)
    return bound(job.dtype, value), bound(job.dtype, gradient)


def _failed(job: _Job, finding: Finding, faults: list[Fault], limits: tuple[float | None, float | None]) -> Finding:
    """The finding with the smallest case that shows the failure."""
    reason = str(faults[0]) if faults else ""
    if finding.error is not None and _exceeds(finding.error, limits[0]):
        limits = (limits[0], float("inf"))  # A difference in value is easier to read than one in a gradient.
    shown = show(
        job.oracle,
        job.implementation.call,
        job.implementation.backend,
        job.dtype,
        limits,
        device=job.device,
        gradient=job.implementation.differentiable,
        accepts=job.implementation.accepts,
        known=job.cases,
    )
    return replace(finding, status="failed", reason=reason or (shown.reason if shown else ""), witness=shown)


def show(
    oracle: Oracle,
    call: Call,
    backend: Backend,
    dtype: str,
    limits: tuple[float | None, float | None],
    *,
    device: str = "cpu",
    gradient: bool = True,
    accepts: Callable[[Case], str | None] = lambda case: None,
    known: Sequence[Case] = (),
) -> Witness | None:
    """The smallest case on which ``call`` is further from the oracle than ``limits`` allow, and where."""

    def differs(case: Case) -> bool:
        moved = at(case, oracle.reference.dialect)
        if accepts(moved) is not None or oracle.reference.accepts(moved) is not None:
            return False
        if not fits(oracle.contract, case, dtype):
            return False
        try:
            parts = case_errors(oracle, call, backend, case, dtype, device, gradient=gradient)
        except Fault:
            return True
        return any(map(_exceeds, split(parts), limits))

    case = witness(oracle.contract, differs, examples=50, budget=150, known=known)
    return None if case is None else _located(oracle, call, backend, case, dtype, limits, device, gradient)


def _located(
    oracle: Oracle,
    call: Call,
    backend: Backend,
    case: Case,
    dtype: str,
    limits: tuple[float | None, float | None],
    device: str,
    gradient: bool,
) -> Witness:
    moved, expected = at(case, oracle.reference.dialect), oracle(case, dtype)
    try:
        found = attached(
            run(oracle.contract, call, backend, moved, dtype=dtype, device=device, gradient=gradient), expected
        )
    except Fault as fault:
        return Witness(moved, fault.place, None, None, None, str(fault), oracle.contract.operations)
    return locate(
        oracle.contract,
        moved,
        found,
        expected,
        limits,
        errors(oracle.contract, found, expected, condition=lambda key: oracle.condition(case, dtype, key)),
    )


def locate(
    contract: Contract,
    case: Case,
    found: Result,
    expected: Result,
    limits: tuple[float | None, float | None],
    parts: Mapping[str, float],
) -> Witness:
    """The first part that is too far off, and the first entry of it."""
    far = [k for k, e in parts.items() if _exceeds(e, limits[_is_gradient(k)])]
    if contract.operations:  # the observable that differs first
        far.sort(key=lambda k: first_difference(part(found, k), part(expected, k), 0.0, exact=True) or (0,))
    key = far[0] if far else max(parts, key=parts.__getitem__)
    mine, right = part(found, key), part(expected, key)
    index = first_difference(mine, right, limits[_is_gradient(key)] or 0.0, exact=is_exact(contract, key))
    reason = _reason(contract, found, key, index, mine, right)
    return Witness(case, key, index, right, mine, reason, contract.operations)


def _is_gradient(key: str) -> int:
    return int(key.startswith(GRADIENT))


def _reason(
    contract: Contract, found: Result, key: str, index: tuple[int, ...] | None, mine: np.ndarray, right: np.ndarray
) -> str:
    """The difference in a few words, where there are any."""
    if _is_gradient(key) and not found.carried:
        return "no gradient: the result is detached from the inputs"
    if index is not None and np.isnan(float(mine[index])) and not np.isnan(float(right[index])):
        return f"NaN where {float(right[index]):.6g} is expected"
    if index is not None and contract.kind in ("trajectory", "trace") and not _is_gradient(key) and index:
        return f"the first step that differs is {index[0]}"
    return ""


def _probed(job: _Job, finding: Finding) -> Finding:
    """Adds what the probes of the contract say of the implementation, once: in the widest dtype that it has."""
    item = job.implementation
    if not finding.passed or job.dtype != item.dtypes[0] or not job.contract.probes:
        return finding
    seen = list(probe_implementation(job.contract, item, job.reference, job.cases, job.device))
    lost = tuple(one.probe for one in seen if not one.kept)
    finding = replace(finding, probes={one.probe: one.error for one in seen if one.cases}, broken=lost)
    broken = [one for one in seen if not one.kept and one.probe not in item.breaks]
    if not broken:
        return finding
    shown = Witness(broken[0].case, broken[0].probe, None, None, None, broken[0].line()) if broken[0].case else None
    return replace(finding, status="failed", reason=f"probe {broken[0].line()}", witness=shown)


def _distributed(job: _Job, finding: Finding, cases: list[int]) -> Finding:
    """Adds the chi-square tests of a sampler to a finding that passed so far."""
    sample = job.implementation.sample
    if job.contract.kind != "distribution" or sample is None:
        return finding
    p, worst = sample_p_value(
        job.oracle, sample, job.implementation.backend, [job.cases[i] for i in cases], job.dtype, job.device
    )
    if p >= chi.FALSE_ALARM or worst is None:
        return replace(finding, p_value=p)
    return replace(
        finding, p_value=p, status="failed", reason="what it draws does not follow the probabilities", witness=worst
    )


def sample_p_value(
    oracle: Oracle, sample: Callable[..., Any], backend: Backend, cases: Sequence[Case], dtype: str, device: str = "cpu"
) -> tuple[float, Witness | None]:
    """The joint p-value of a sampler over some cases, and the case that fits worst.

    Cases are the first ones (the named edges) and then every n-th.
    """
    chosen = list(cases) if len(cases) <= SAMPLED_CASES else [cases[i] for i in _spread(len(cases))]
    values: list[float] = []
    worst: tuple[float, Witness | None] = (2.0, None)
    for case in chosen:
        expected = oracle(case, dtype).outputs["probabilities"]
        tokens = _drawn(oracle, sample, backend, case, dtype, device)
        for row, (drawn, wanted) in enumerate(zip(tokens, expected, strict=True)):
            p = chi.p_value(drawn, wanted)
            values.append(p)
            if p < worst[0]:
                counts = np.bincount(drawn[(drawn >= 0) & (drawn < wanted.size)], minlength=wanted.size) / drawn.size
                worst = (
                    p,
                    Witness(
                        at(case, oracle.reference.dialect), "draws", (row,), wanted, counts, f"chi-square p={p:.1e}"
                    ),
                )
    return chi.joint(values), worst[1]


def _spread(count: int) -> list[int]:
    return sorted({round(i * (count - 1) / (SAMPLED_CASES - 1)) for i in range(SAMPLED_CASES)})


def _drawn(
    oracle: Oracle, sample: Callable[..., Any], backend: Backend, case: Case, dtype: str, device: str
) -> np.ndarray:
    """Token ids ``[N, draws]`` of a sampler, through the same conversion as every other call."""
    kept: list[np.ndarray] = []

    def call(**arguments: Any) -> Mapping[str, Any]:
        kept.append(_tokens(sample(**arguments, draws=chi.DRAWS, seed=SEED)))
        return {item.name: np.zeros(()) for item in oracle.contract.outputs}

    moved = at(case, oracle.reference.dialect)
    interface = replace(oracle.contract, outputs=tuple(replace(o, shape=()) for o in oracle.contract.outputs))
    run(interface, call, backend, moved, dtype=dtype, device=device, gradient=False)
    return kept[0]


def _tokens(raw: Any) -> np.ndarray:
    array = np.asarray(raw.detach().cpu() if hasattr(raw, "detach") else raw).astype(np.int64)
    if array.ndim != 2 or array.shape[1] != chi.DRAWS:
        raise Fault("shape", "sample", expected=f"token ids [N, {chi.DRAWS}]", found=f"{list(array.shape)}")
    return array
