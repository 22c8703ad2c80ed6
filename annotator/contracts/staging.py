"""Where on the way a user's function leaves the reference: the stages of a contract, one after the other.

A file exposes a stage by a function of its name, or by returning its value beside the outputs. A function is handed the
*right* values of all that comes before it (the minimal version's, proven equal to the reference's at its dialect), so
that it answers for its own step only; a returned value answers for the way up to it. Nothing is guessed: a stage that
is not exposed is said not to be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from annotator.contracts.comparison import GRADIENT, error
from annotator.contracts.findings import compact, plain
from annotator.contracts.model import Case, Contract, Input, Output, Stage
from annotator.contracts.running import Result, run
from annotator.errors import UserCodeError

if TYPE_CHECKING:
    from annotator.contracts.sandbox import Sandbox

How = Literal["returned", "called"]


@dataclass(frozen=True)
class StageFinding:
    """One stage of the user's file on one case.

    ``how``: returned beside the outputs, or called on right values of what comes before. ``part`` is the stage itself
    or ``gradient of NAME``; ``reason`` says why it could not be compared.
    """

    stage: str
    doc: str
    how: How
    same: bool
    part: str = ""
    expected: np.ndarray | None = None
    found: np.ndarray | None = None
    reason: str = ""

    def line(self) -> str:
        """The finding as text."""
        given = "given right values of what comes before" if self.how == "called" else "as returned"
        if self.same:
            return f"{self.stage} {given}: the same"
        if self.reason:
            return f"{self.stage} {given}: {self.reason}"
        what = f"{self.part}: " if self.part != self.stage else ""
        return f"{self.stage} {given}: {what}expected {compact(self.expected, 12)}, found {compact(self.found, 12)}"

    def to_json(self) -> dict[str, Any]:
        """Every field in JSON's types."""
        return {name: plain(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Interface:
    """A stage as a computation of its own: what it takes, and itself as the only output."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]


def interface(contract: Contract, stage: Stage, takes: Sequence[str] | None = None) -> Interface:
    """The interface of a stage; ``takes`` restricts the inputs."""
    before = contract.stages[: [item.name for item in contract.stages].index(stage.name)]
    inputs = (*contract.inputs, *(Input(s.name, s.shape, "float", s.doc, differentiable=True) for s in before))
    names = takes if takes is not None else parameters(stage.call)
    return Interface(
        tuple(item for item in inputs if item.name in names), (Output(stage.name, stage.shape, stage.doc, stage.unit),)
    )


def parameters(call: Callable[..., Any]) -> list[str]:
    """What a stage's function takes."""
    return list(inspect.signature(call).parameters)


def named_call(stage: Stage) -> Callable[..., Mapping[str, Any]]:
    """A stage's function as a call of a contract: it takes everything and uses what it names."""
    takes = parameters(stage.call)

    def call(**arguments: Any) -> Mapping[str, Any]:
        return {stage.name: stage.call(**{name: value for name, value in arguments.items() if name in takes})}

    return call


def run_stage(contract: Contract, stage: Stage, case: Case, dtype: str = "float64") -> Result:
    """The minimal version's stage on a case that holds the stages before it."""
    return run(interface(contract, stage), named_call(stage), "torch", case, dtype=dtype)


def right_values(contract: Contract, case: Case) -> Case:
    """The case with the value of every stage among its inputs, in float64."""
    held = case
    for stage in contract.stages:
        result = run_stage(contract, stage, held)
        held = replace(held, inputs={**held.inputs, stage.name: result.outputs[stage.name]})
    return held


def stages_of(contract: Contract, sandbox: Sandbox, case: Case, dtype: str, allowed: float) -> list[StageFinding]:
    """What the user's file exposes of the stages, compared on a case (at the dialect of the comparison)."""
    if not contract.stages or not (sandbox.stages or sandbox.exposed):
        return []
    held = right_values(contract, case)
    return [
        *_returned(contract, sandbox, case, held, dtype, allowed),
        *_called(contract, sandbox, held, dtype, allowed),
    ]


def _returned(
    contract: Contract, sandbox: Sandbox, case: Case, held: Case, dtype: str, allowed: float
) -> Iterator[StageFinding]:
    if not sandbox.exposed:
        return
    try:
        found = sandbox.exposing(case, dtype)
    except UserCodeError as failure:
        first = next(stage for stage in contract.stages if stage.name in sandbox.exposed)
        yield StageFinding(first.name, first.doc, "returned", False, reason=str(failure))
        return
    for stage in contract.stages:
        if stage.name in found.outputs:
            right, mine = held.inputs[stage.name], found.outputs[stage.name]
            same = _near(mine, right, allowed)
            yield StageFinding(stage.name, stage.doc, "returned", same, stage.name, right, mine)


def _called(contract: Contract, sandbox: Sandbox, held: Case, dtype: str, allowed: float) -> Iterator[StageFinding]:
    for stage in contract.stages:
        if stage.name not in sandbox.stages:
            continue
        try:
            found = sandbox.stage(stage.name, held, dtype)
        except UserCodeError as failure:
            yield StageFinding(stage.name, stage.doc, "called", False, reason=str(failure))
            continue
        expected = run_stage(contract, stage, held)
        yield _judged(stage, found, expected, sandbox.backend != "numpy", allowed)


def _judged(stage: Stage, found: Result, expected: Result, sloped: bool, allowed: float) -> StageFinding:
    right, mine = expected.outputs[stage.name], found.outputs[stage.name]
    if not _near(mine, right, allowed):
        return StageFinding(stage.name, stage.doc, "called", False, stage.name, right, mine)
    for name, slope in expected.gradients.items() if sloped else ():
        own = found.gradients.get(name, np.zeros_like(slope))
        if not _near(own, slope, allowed):
            return StageFinding(stage.name, stage.doc, "called", False, GRADIENT + name, slope, own)
    return StageFinding(stage.name, stage.doc, "called", True, stage.name, right, mine)


def _near(found: np.ndarray, right: np.ndarray, allowed: float) -> bool:
    """Whether two values are one, in units of the result or of 1: a stage may be 0 where all is well."""
    return error(found, right, condition=1.0) <= allowed


def culprit(findings: Sequence[StageFinding]) -> StageFinding | None:
    """The first stage that is wrong on its own; else the first whose returned value differs."""
    wrong = [item for item in findings if not item.same]
    return next((item for item in wrong if item.how == "called"), wrong[0] if wrong else None)


def whole(contract: Contract, case: Case) -> dict[str, Any]:
    """The outputs that the stages arrive at, by name: what a test holds against the minimal version."""
    held = right_values(contract, case)
    ends = {item.name for item in contract.outputs}
    return {stage.name: held.inputs[stage.name] for stage in contract.stages if stage.name in ends}
