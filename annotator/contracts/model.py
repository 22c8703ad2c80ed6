"""What a contract is made of. Data only, so that the catalogue can state contracts without running anything.

A contract says what a computation *is*: canonical inputs with shapes and units, the knobs on which honest
implementations differ, outputs, and the implementations bound to it. The engine (`sampling`, `running`, `comparison`)
draws cases, runs every implementation on them and compares each with the float64 oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from hypothesis.strategies import SearchStrategy

    from annotator.contracts.running import Result

Kind = Literal["value", "trace", "distribution", "trajectory"]
Backend = Literal["torch", "jax", "numpy"]
Role = Literal["reference", "minimal", "user"]
Call = Callable[..., Mapping[str, Any]]
Runner = Callable[..., "Result"]
"""``run(case, dtype="float64")``: the function under test on a case, gradients included."""
LOW = ("bfloat16", "float16")
"""The dtypes below float32, in which GPUs train and serve."""


@dataclass(frozen=True)
class Input:
    """A canonical input. ``shape`` holds axis names (``("B", "T")``); ``dtype`` is a family, a run picks its width."""

    name: str
    shape: tuple[str, ...]
    dtype: Literal["float", "int", "bool"]
    doc: str
    unit: str = ""
    differentiable: bool = False


@dataclass(frozen=True)
class Output:
    """A canonical output. ``exact`` outputs (masks, ranks, token ids) must agree bit for bit.

    ``differentiable`` is False where a reference cuts the gradient (rewards that are only logged).
    """

    name: str
    shape: tuple[str, ...]
    doc: str
    unit: str = ""
    exact: bool = False
    differentiable: bool = True


@dataclass(frozen=True)
class Knob:
    """An option on which honest implementations differ. ``choices`` are the values that cases draw from."""

    name: str
    default: Any
    choices: tuple[Any, ...]
    doc: str


@dataclass(frozen=True)
class Case:
    """One input to the contract: NumPy arrays (floats as float64) and knob values. ``label`` names an edge case."""

    inputs: Mapping[str, np.ndarray]
    knobs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""


def _accepts_all(case: Case) -> str | None:
    return None


@dataclass(frozen=True)
class Implementation:
    """Something that computes the contract.

    ``call(**inputs, **knobs)`` takes the canonical inputs as arrays of ``backend`` (float inputs in the dtype of the
    run; int as int64, bool as bool) plus every knob of the contract, and returns a mapping with every output. It must
    not change its inputs. ``sample`` (contracts of kind *distribution* only) is called as
    ``sample(**inputs, **knobs, draws=n, seed=s)`` and returns token ids ``[N, draws]``.

    ``dialect`` holds the knob values at which a reference sits (a knob that it leaves open is absent and is drawn);
    minimal implementations have every knob, so theirs is empty.
    ``symbols`` are the pinned symbols (or ``minimal/…py`` files) whose code runs; a proof is stale once they change.
    ``dtypes`` are those of every run; ``low`` those that are added on a GPU, and on the CPU where they are asked for.
    ``accepts`` returns None for a case in the implementation's domain, else the reason why not, in a few words.
    ``breaks`` names the probes of the contract that it is known not to keep (a test shows that it really does not).
    """

    name: str
    role: Role
    backend: Backend
    call: Call
    symbols: tuple[str, ...]
    dialect: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float64", "float32")
    low: tuple[str, ...] = LOW
    differentiable: bool = True
    accepts: Callable[[Case], str | None] = _accepts_all
    sample: Callable[..., Any] | None = None
    breaks: tuple[str, ...] = ()

    @property
    def all_dtypes(self) -> tuple[str, ...]:
        """Every dtype in which it runs, the widest first. What has no float32 (it counts, say) has none below it."""
        return (*self.dtypes, *(self.low if "float32" in self.dtypes else ()))


@dataclass(frozen=True)
class Probe:
    """A relation that right code keeps and that needs no reference: change the input so, and the result changes so.

    ``relation(run, case)`` runs the function under test on ``case`` and on what it makes of it, and returns the error
    of the relation (0 where it holds, in the measure of `comparison.error`), or None where the case says nothing.
    `probes` has those that many contracts share: poison, padding, permutation, split, identity, growth.
    """

    name: str
    doc: str
    relation: Callable[[Runner, Case], float | None]


@dataclass(frozen=True)
class Stage:
    """An intermediate value on the way from the inputs to an output, in the order of computation.

    ``call`` is the minimal version's own function in torch. It is called by name with what it takes of the canonical
    inputs, the stages before it and the knobs, and returns the stage's value. The last stage is an output. By stages
    `diff` tells where a user's function leaves the path: it hands the right earlier values to his code.
    """

    name: str
    shape: tuple[str, ...]
    doc: str
    call: Callable[..., Any]
    unit: str = ""


@dataclass(frozen=True)
class Operation:
    """A method of the stateful part that a contract of kind *trace* is about; ``arguments`` are integers.

    The first input of such a contract is ``operations [N, 1 + A]``: a row is an operation's number and its arguments,
    padded with 0. The last argument may be a list: its name begins with a star, its length goes before its entries.
    See `tracing`.
    """

    name: str
    arguments: tuple[str, ...]
    doc: str


@dataclass(frozen=True)
class Rewriting:
    """The right computation, written otherwise than the minimal version: on it nothing may raise an alarm."""

    name: str
    how: str
    call: Call
    backend: Backend = "torch"
    sample: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Deviation:
    """A wrong variant, kept on purpose: by it the contract's own power is measured.

    ``call`` is like `Implementation.call` in torch, ``sample`` likewise. ``wrong`` and ``right`` say it in one phrase
    each; ``seen_in`` names the public thread; ``zoo`` is its number in the zoo, if it has one; ``stage`` is the
    contract's stage at which it leaves the path, where the contract has stages.
    """

    name: str
    wrong: str
    right: str
    call: Call
    seen_in: str = ""
    zoo: int | None = None
    sample: Callable[..., Any] | None = None
    stage: str = ""


@dataclass(frozen=True)
class Contract:
    """A computation, its implementations, and the deviations that it must catch.

    ``cases()`` returns a Hypothesis strategy of `Case` (its knobs include every knob of the contract); ``edges`` are
    named cases that always run. ``oracle`` is a float64 NumPy transcription with the signature of ``call``, given where
    no reference allows float64 (else the reference itself, run in float64, is the oracle). ``probes`` need no
    reference, ``stages`` lead to an output, ``operations`` belong to kind *trace*, and ``rewritings`` are what must
    raise no alarm.
    """

    name: str
    kind: Kind
    title: str
    doc: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    knobs: tuple[Knob, ...]
    cases: Callable[[], SearchStrategy[Case]]
    edges: Callable[[], tuple[Case, ...]]
    implementations: tuple[Implementation, ...]
    deviations: tuple[Deviation, ...]
    oracle: Call | None = None
    probes: tuple[Probe, ...] = ()
    stages: tuple[Stage, ...] = ()
    operations: tuple[Operation, ...] = ()
    rewritings: tuple[Rewriting, ...] = ()

    def implementation(self, name: str) -> Implementation:
        """The implementation of that name. Raises `KeyError` when there is none."""
        for item in self.implementations:
            if item.name == name:
                return item
        raise KeyError(name)
