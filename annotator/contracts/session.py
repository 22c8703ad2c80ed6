"""One `diff` under way: the user's results so far, and how they are held against an oracle.

Apart from the order of answers (`diffing`) and from the search for an explanation (`explaining`), which both ask it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from annotator.contracts.comparison import GRADIENT, bound, errors, split
from annotator.contracts.conforming import accepted, attached, locate, measure
from annotator.contracts.findings import Witness
from annotator.contracts.model import Case, Contract, Implementation
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.running import ROUNDOFF, Result
from annotator.contracts.sampling import witness
from annotator.contracts.sandbox import Sandbox
from annotator.contracts.verdicts import Comparison
from annotator.errors import UserCodeError
from annotator.pins.progress import Progress

_REPEATED = 5
"""How many cases are run a second time, to see whether the function gives the same answer twice."""

Limits = tuple[float, float]
Judged = tuple[Result, Result, dict[str, float]]


@dataclass
class Session:
    """The user's results by case, setting of the knobs that it takes, and dtype; each is run once."""

    contract: Contract
    sandbox: Sandbox
    cases: tuple[Case, ...]
    device: str
    progress: Progress
    results: dict[tuple[Any, ...], tuple[Case, Result]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def held(self) -> tuple[str, ...]:
        """The knobs that the function does not take: it sits at some value of each."""
        return tuple(knob.name for knob in self.contract.knobs if knob.name not in self.sandbox.takes)

    @property
    def differentiates(self) -> bool:
        """Whether its gradients are compared."""
        return self.sandbox.backend != "numpy" and any(item.differentiable for item in self.contract.inputs)

    @property
    def compiles(self) -> bool:
        """Whether each new shape takes long."""
        return self.sandbox.backend == "jax"

    def start(self, references: Sequence[Implementation]) -> None:
        """One call, from which the outputs, their dtypes and the gradient are learned; then the repeatability check."""
        chosen = [at(self.cases[i], item.dialect) for item in references[:1] for i in accepted(self.cases, item)]
        chosen = chosen or [at(self.cases[0], references[0].dialect)]
        result = self.user(chosen[0], chosen[0], "float64")
        missing = [item.name for item in self.contract.outputs if item.name not in result.outputs]
        if missing:
            self.notes.append(f"not returned, hence not compared: {', '.join(missing)}")
            kept = tuple(item for item in self.contract.outputs if item.name in result.outputs)
            self.contract = replace(self.contract, outputs=kept)
        if self.sandbox.backend == "numpy" and any(item.differentiable for item in self.contract.inputs):
            self.notes.append("NumPy: values only, no gradients")
        self._repeat(chosen)

    def _repeat(self, cases: list[Case]) -> None:
        chosen = cases[:: max(1, len(cases) // _REPEATED)][: 2 if self.compiles else None]
        before = [self._fresh(case) for case in chosen]
        for old, case in zip(reversed(before), reversed(chosen), strict=True):
            self._same_twice(old, self._fresh(case))

    def _fresh(self, case: Case) -> Result:
        return self.sandbox.run(case, dtype="float64", device=self.device, gradient=False, eager=True)

    def _same_twice(self, old: Result, new: Result) -> None:
        for name, array in old.outputs.items():
            other = new.outputs[name]
            if array.shape != other.shape or not np.array_equal(array, other, equal_nan=array.dtype.kind == "f"):
                raise UserCodeError(
                    self.sandbox.place,
                    expected="the same result on the same input",
                    found=f"two different values of {name!r}",
                    remedy="fix the seed inside the function, and keep no state between calls",
                )

    def dtypes(self) -> list[str]:
        """float64 unless the function narrows what it is given, then float32."""
        narrowed = [
            f"{name} ({dtype})"
            for (_, _, given), (_, result) in self.results.items()
            for name, dtype in result.dtypes.items()
            if given == "float64" and dtype in ("float32", "float16", "bfloat16")
        ]
        if not narrowed:
            return ["float64", "float32"]
        self.note(f"given float64 it returns {', '.join(sorted(set(narrowed)))}: compared in float32 only")
        return ["float32"]

    def user(self, moved: Case, case: Case, dtype: str) -> Result:
        """The user's result on ``case``, whose knobs are moved as in ``moved``."""
        taken = tuple(sorted((n, repr(v)) for n, v in moved.knobs.items() if n in self.sandbox.takes))
        key = (id(case), taken, dtype)
        if key not in self.results:
            result = self.sandbox.run(moved, dtype=dtype, device=self.device, gradient=self.differentiates)
            self.results[key] = (case, result)  # An id is only good while its object lives.
            if self.sandbox.undifferentiated:
                self.note(f"cannot be differentiated: {self.sandbox.undifferentiated}")
        return self.results[key][1]

    def note(self, text: str) -> None:
        """Adds a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def judge(self, oracle: Oracle, case: Case, dtype: str) -> Judged:
        """Found, expected, and the error of each part."""
        expected = oracle(case, dtype)
        found = self.user(at(case, oracle.reference.dialect), case, dtype)
        if self.differentiates:
            found = attached(found, expected)
        parts = errors(
            oracle.contract,
            found,
            expected,
            condition=lambda key: oracle.condition(case, dtype, key),
            enough=bound("float64", 0.0) if dtype == "float64" else ROUNDOFF[dtype],
        )
        if self.differentiates and oracle.slope is not None and not expected.gradients:
            # The candidate is cut off from its inputs altogether; a function that is not is another one.
            parts |= {GRADIENT + n: float("inf") if np.any(slope != 0) else 0.0 for n, slope in found.gradients.items()}
        return found, expected, parts

    def agrees(self, oracle: Oracle, case: Case, dtype: str, limits: Limits) -> bool:
        """Whether no part is further off than ``limits`` (of values, of gradients) allow."""
        value, gradient = split(self.judge(oracle, case, dtype)[2])
        return value <= limits[0] and gradient <= limits[1]

    def compare(self, oracle: Oracle, dtype: str, ran: str) -> Comparison | None:
        """Against one oracle; None where its reference does not run in that dtype or takes none of the cases."""
        reference = oracle.reference
        chosen = accepted(self.cases, reference)
        if dtype not in {"float64", *reference.dtypes} or not chosen:
            return None
        chosen, limits = self.limits(oracle, chosen, dtype)
        task = f"{reference.name} {dtype}"
        self.progress.start(task, len(chosen))
        both = []
        for i in chosen:
            both.append(split(self.judge(oracle, self.cases[i], dtype)[2]))
            self.progress.advance(task, 1)
        self.progress.finish(task)
        return self._summed(oracle, dtype, both, limits, ran)

    def _summed(self, oracle: Oracle, dtype: str, both: list[Limits], limits: Limits, ran: str) -> Comparison:
        sloped = self.differentiates and oracle.slope is not None
        return Comparison(
            oracle.reference.name,
            dict(oracle.reference.dialect),
            dtype,
            len(both),
            sum(value > limits[0] or gradient > limits[1] for value, gradient in both),
            max((value for value, _ in both), default=0.0),
            limits[0],
            max((gradient for _, gradient in both), default=0.0) if sloped else None,
            limits[1] if sloped else None,
            ran,
        )

    def limits(self, oracle: Oracle, chosen: list[int], dtype: str) -> tuple[list[int], Limits]:
        """The bounds in force, and the cases that they hold for."""
        if dtype == "float64":
            return chosen, (bound(dtype, 0.0), bound(dtype, 0.0))
        item = oracle.reference
        sloped = item.differentiable
        base = measure(oracle, item.call, item.backend, self.cases, chosen, dtype, self.device, gradient=sloped)
        good = [i for i in chosen if i in base.errors and max(split(base.errors[i])) < float("inf")]
        value, gradient = base.worst(good)
        return good, (bound(dtype, value), bound(dtype, gradient))

    def smallest(self, oracle: Oracle, seen: Comparison) -> tuple[Case, Limits] | None:
        """The smallest case on which ``seen``'s difference shows, at the oracle's dialect, and what was allowed."""
        limits = (seen.bound, seen.gradient_bound if seen.gradient_bound is not None else float("inf"))
        if seen.error > seen.bound:
            limits = (limits[0], float("inf"))  # A difference in value is easier to read than one in a gradient.

        def differs(case: Case) -> bool:
            return bool(accepted([case], oracle.reference)) and not self.agrees(oracle, case, seen.dtype, limits)

        case = witness(self.contract, differs, budget=250, known=self.cases)
        return None if case is None else (case, limits)

    def located(self, oracle: Oracle, case: Case, dtype: str, limits: Limits) -> Witness:
        """Where the function and the oracle part on a case."""
        found, expected, parts = self.judge(oracle, case, dtype)
        shown = locate(self.contract, at(case, oracle.reference.dialect), found, expected, limits, parts)
        lost = shown.part.startswith(GRADIENT) and shown.found is not None and not shown.found.any()
        return replace(shown, reason="no gradient arrives here") if lost and not shown.reason else shown
