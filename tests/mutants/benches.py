"""What a contract's oracles say about its cases, worked out once and kept: mutants are then tried without references.

A run of a reference costs far more than one of a minimal file, and its process holds gigabytes. A `Bench` holds only
cases and results; it is written by a process of its own and read by the workers.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from annotator.contracts.comparison import FLOAT64_BOUND, GRADIENT, bound, split
from annotator.contracts.conforming import accepted, measure, references, unavailable
from annotator.contracts.model import Case, Contract, Implementation
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.running import Fault, Result
from annotator.contracts.sampling import draw

EXAMPLES = 40
"""Drawn cases besides the named edges: as many as ``annotator conform`` draws."""

Limits = tuple[float, float]
"""What value and gradient may err."""


@dataclass
class Recorded:
    """An oracle's answers, to be asked like the `Oracle` that gave them.

    ``chosen`` are the cases, by dtype, in the domain of the reference; ``limits`` what may be erred in that dtype;
    ``slope`` names whose gradient it is, None where there is none.
    """

    contract: Contract
    reference: Implementation
    cases: tuple[Case, ...]
    chosen: dict[str, list[int]] = field(default_factory=dict)
    limits: dict[str, Limits] = field(default_factory=dict)
    slope: object = None
    results: dict[tuple[int, str], Result] = field(default_factory=dict)
    conditions: dict[tuple[int, str], dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number = {id(case): i for i, case in enumerate(self.cases)}

    def __call__(self, case: Case, dtype: str) -> Result:
        """The recorded result. The engine asks it as it asks an `Oracle`."""
        return self.results[self.number[id(case)], dtype]

    def condition(self, case: Case, dtype: str, key: str) -> float:
        """The recorded condition of an output or gradient."""
        return self.conditions[self.number[id(case)], dtype].get(key, 0.0)


def record(contract: Contract, examples: int = EXAMPLES) -> list[Recorded]:
    """Asks the oracle of every reference that can be run, in float64 and float32."""
    cases = draw(contract, examples)
    found = []
    for reference in references(contract):
        if not unavailable(reference, "cpu"):
            found.append(_recorded(contract, reference, cases))
    return found


def _recorded(contract: Contract, reference: Implementation, cases: tuple[Case, ...]) -> Recorded:
    oracle, light = Oracle(contract, reference), _light(contract, reference)
    made = Recorded(contract, reference, cases, slope=oracle.slope and oracle.slope.name)
    inside = accepted(cases, reference)
    made.chosen["float64"], made.limits["float64"] = inside, (FLOAT64_BOUND, FLOAT64_BOUND)
    if "float32" in reference.dtypes:
        made.chosen["float32"], made.limits["float32"] = _in_float32(oracle, reference, cases, inside)
    for dtype, chosen in made.chosen.items():
        for i in list(chosen):
            try:
                result = oracle(cases[i], dtype)
            except Fault:
                chosen.remove(i)
                continue
            made.results[i, dtype] = result
            keys = [*result.outputs, *(GRADIENT + name for name in result.gradients)]
            made.conditions[i, dtype] = {key: light.condition(cases[i], dtype, key) for key in keys}
    return made


def _light(contract: Contract, reference: Implementation) -> Oracle:
    """An oracle to ask for conditions: the minimal version in the reference's place, whose runs cost little.

    A condition is the size of a slope, and a minimal version that conforms has the reference's slopes.
    """
    light = Oracle(contract, reference)
    minimal = next((item for item in contract.implementations if item.role == "minimal"), None)
    light.values = light.values and minimal
    light.slope = light.slope and minimal
    return light


def _in_float32(
    oracle: Oracle, reference: Implementation, cases: Sequence[Case], inside: list[int]
) -> tuple[list[int], Limits]:
    """The cases that the reference itself computes in float32, and twice its largest errors on them."""
    base = measure(
        oracle, reference.call, reference.backend, cases, inside, "float32", gradient=reference.differentiable
    )
    good = [i for i in inside if i in base.errors and max(split(base.errors[i])) < float("inf")]
    value, gradient = base.worst(good)
    return good, (bound("float32", value), bound("float32", gradient))


@dataclass(frozen=True)
class Sample:
    """One question to a mutant: a case at a reference's dialect, in a dtype."""

    oracle: Recorded
    index: int
    dtype: str

    @property
    def case(self) -> Case:
        """The case as drawn; the engine moves it to the dialect."""
        return self.oracle.cases[self.index]

    @property
    def moved(self) -> Case:
        """The case at the reference's dialect."""
        return at(self.case, self.oracle.reference.dialect)


def samples(oracles: Iterable[Recorded], implementation: Implementation, dtype: str) -> list[Sample]:
    """The questions to an implementation, each once: references of one dialect ask the same."""
    found: dict[Any, Sample] = {}
    # Of two that ask the same, the one with a gradient asks more, and the one with the lower limit asks it better.
    for oracle in sorted(oracles, key=lambda item: (not item.slope, item.limits.get(dtype))):
        for i in oracle.chosen.get(dtype, ()):
            sample = Sample(oracle, i, dtype)
            if implementation.accepts(sample.moved) is None:
                found.setdefault(_content(sample.moved), sample)
    return list(found.values())


def _content(case: Case) -> Any:
    arrays = tuple((n, str(np.asarray(a).dtype), np.shape(a), np.asarray(a).tobytes()) for n, a in case.inputs.items())
    return arrays, tuple(sorted((name, repr(value)) for name, value in case.knobs.items()))


# Keeping --------------------------------------------------------------------------------------------------------------


def save(oracles: Sequence[Recorded], path: Path) -> None:
    """Writes the answers. The contract itself stays out: it holds functions, and is known by name."""
    kept = [{**vars(item), "contract": None, "number": None, "reference": item.reference.name} for item in oracles]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(kept))
    part.replace(path)


def load(contract: Contract, path: Path) -> list[Recorded]:
    """Reads them again, for a contract of the same digest."""
    return list(_loaded(contract, pickle.loads(path.read_bytes())))


def _loaded(contract: Contract, kept: list[dict[str, Any]]) -> Iterator[Recorded]:
    for item in kept:
        fields = {name: value for name, value in item.items() if name in Recorded.__dataclass_fields__}
        yield Recorded(**{**fields, "contract": contract, "reference": contract.implementation(item["reference"])})


def digest(paths: Iterable[Path], *more: str) -> str:
    """Of the contents of files, and some words."""
    made = hashlib.sha256()
    for path in sorted(paths):
        made.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    made.update("\0".join(more).encode())
    return made.hexdigest()[:16]
