"""What is true: the float64 run that everything is measured against. Apart from the comparison because it costs runs.

For a lower dtype the inputs are rounded to that dtype first and the oracle sees the *rounded* values, so that the
rounding of inputs counts against nobody. Where a contract has a NumPy oracle, the gradient is that of the first
implementation that has one in float64, references first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from annotator.contracts.comparison import FLOAT64_BOUND, GRADIENT, part
from annotator.contracts.model import Case, Contract, Implementation
from annotator.contracts.running import ROUNDOFF, Fault, Result, masters, normal, run
from annotator.errors import ContractError

_SMALL, _LARGE = 2.0**-44, 2.0**-36
"""Two relative perturbations, both far above float64's rounding and far below a case's own scale."""


def at(case: Case, dialect: Mapping[str, Any]) -> Case:
    """The case with its knobs moved to a dialect."""
    return replace(case, knobs={**case.knobs, **dialect})


class Oracle:
    """The truth about a contract as one reference sees it, cached per case and dtype.

    ``reference`` gives the dialect, and the values unless the contract has an oracle of its own.
    """

    def __init__(self, contract: Contract, reference: Implementation, device: str = "cpu") -> None:
        self.contract, self.reference, self.device = contract, reference, device
        self.values = _value_source(contract, reference)
        self.slope = _slope_source(contract, reference)
        self._results: dict[tuple[int, str], Result] = {}
        self._conditions: dict[tuple[int, str], dict[str, float]] = {}
        self._kept: list[Case] = []

    def __call__(self, case: Case, dtype: str) -> Result:
        """The float64 result on the case's values as ``dtype`` holds them, at the reference's dialect."""
        key = (id(case), dtype)
        if key not in self._results:
            self._kept.append(case)  # An id is only good while its object lives.
            self._results[key] = self._evaluate(self._rounded(case, dtype))
        return self._results[key]

    def condition(self, case: Case, dtype: str, key: str) -> float:
        """The share of the condition of one output (or gradient) that rounding may use up; 0 at a jump."""
        cached = (id(case), dtype)
        if cached not in self._conditions:
            base = self(case, dtype)
            self._conditions[cached] = self._measure(self._rounded(case, dtype), base)
        entries = max((np.size(array) for array in case.inputs.values()), default=1)
        share = min(1.0, max(entries, 1) * ROUNDOFF[dtype] / FLOAT64_BOUND)
        return share * self._conditions[cached].get(key, 0.0)

    def _rounded(self, case: Case, dtype: str) -> Case:
        return at(replace(case, inputs=masters(self.contract, case, dtype)), self.reference.dialect)

    def _evaluate(self, case: Case) -> Result:
        """A run of what `conforming` watches for changed inputs already."""
        contract, sloped = self.contract, self.slope is not None
        if contract.oracle is None:
            assert self.values is not None
            return run(contract, self.values.call, self.values.backend, case, gradient=sloped, watched=False)
        values = run(contract, contract.oracle, "numpy", case, gradient=False, watched=False)
        if self.slope is None:
            return values
        slopes = run(contract, self.slope.call, self.slope.backend, case, watched=False)
        return replace(values, gradients=slopes.gradients, carried=slopes.carried)

    def _measure(self, case: Case, base: Result) -> dict[str, float]:
        """How fast each part moves: ``|o(x(1+d)) - o(x)| / d``, over entries where that is a slope and not a jump."""
        try:
            near, far = (self._evaluate(_moved(self.contract, case, step)) for step in (_SMALL, _LARGE))
        except Fault:
            return {}
        keys = [*base.outputs, *(GRADIENT + name for name in base.gradients)]
        slopes = {key: _slope(part(base, key), part(near, key), part(far, key)) for key in keys}
        return {key: max(slope, _natural(case, base, key)) for key, slope in slopes.items()}


def _value_source(contract: Contract, reference: Implementation) -> Implementation | None:
    """Whose float64 run is the oracle where the contract has none of its own: the reference's, or its like's.

    Raises:
        ContractError: the reference has no float64, and no reference that has one sits at its dialect.
    """
    if contract.oracle is not None:
        return None
    dialect = dict(reference.dialect)
    alike = [i for i in contract.implementations if i.role == "reference" and dict(i.dialect) == dialect]
    for item in (reference, *alike):
        if "float64" in item.dtypes:
            return item
    raise ContractError(
        contract.name,
        expected=f"an oracle, since reference {reference.name!r} does not compute in float64",
        found="none",
        remedy="give the contract a float64 NumPy transcription",
    )


def _slope_source(contract: Contract, reference: Implementation) -> Implementation | None:
    """Whose float64 gradient is the oracle's: the reference's, else the first minimal implementation's."""
    if not reference.differentiable or not any(item.differentiable for item in contract.inputs):
        return None
    minimal = [item for item in contract.implementations if item.role == "minimal"]
    values = _value_source(contract, reference)
    candidates = [reference, *minimal] if values is None else [values]
    return next((i for i in candidates if i.differentiable and "float64" in i.dtypes and i.backend != "numpy"), None)


def _moved(contract: Contract, case: Case, step: float) -> Case:
    """Every float input times 1 ± step, signs fixed."""
    random = np.random.default_rng(0)
    inputs = dict(case.inputs)
    for item in contract.inputs:
        if item.dtype == "float":
            signs = random.choice([-1.0, 1.0], size=np.shape(inputs[item.name]))
            inputs[item.name] = inputs[item.name] * (1.0 + step * signs)
    return replace(case, inputs=inputs)


def _natural(case: Case, base: Result, key: str) -> float:
    """The unit of a gradient, ``sum|output * w| / max|input|``; 0 for outputs.

    ``L`` itself is only known to a rounding, so no gradient is known below that rounding over the size of its input:
    two parts that cancel leave 0 or 1e-19.
    """
    if not key.startswith(GRADIENT):
        return 0.0
    array = np.abs(np.asarray(case.inputs[key.removeprefix(GRADIENT)], dtype=np.float64))
    size = float(array[np.isfinite(array)].max(initial=0.0))
    terms = [
        np.where(np.isfinite(base.outputs[n]), base.outputs[n], 0.0) * normal(n, base.outputs[n].shape)
        for n in base.carried
    ]
    return float(sum(np.abs(term).sum() for term in terms)) / size if size else 0.0


def _slope(base: np.ndarray, near: np.ndarray, far: np.ndarray) -> float:
    if not base.shape == near.shape == far.shape or base.dtype.kind != "f":
        return 0.0
    with np.errstate(all="ignore"):
        first, second = np.abs(near - base), np.abs(far - base)
        # A continuous quantity moves 256 times as far on a step 256 times as long; a decision that flips does not.
        smooth = np.isfinite(first) & np.isfinite(second) & (second > 16 * first) & (first > 0)
    return float((first[smooth] / _SMALL).max()) if smooth.any() else 0.0
