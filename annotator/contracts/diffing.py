"""Is mine the same? Holds a user's function against every reference of a contract, each at its own dialect.

float64 first, where any difference is one of meaning; then float32, where it may also be one of arithmetic. The user's
function runs in a `sandbox`; references and the oracle run here.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from annotator.contracts.comparison import GRADIENT, bound, errors, split
from annotator.contracts.conforming import accepted, attached, locate, measure, references, unavailable
from annotator.contracts.findings import Witness, plain
from annotator.contracts.model import Backend, Case, Contract, Implementation
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.running import Result
from annotator.contracts.sampling import draw, witness
from annotator.contracts.sandbox import Sandbox
from annotator.errors import ContractError, UserCodeError, did_you_mean, near_matches
from annotator.pins.progress import Progress, Silent

MEMORY = 8 * 2**30
TIMEOUT = 20.0

_REPEATED = 5
"""How many cases are run a second time, to see whether the function gives the same answer twice."""


@dataclass(frozen=True)
class Comparison:
    """The user's function against one reference in one dtype, over ``cases`` cases."""

    reference: str
    dialect: Mapping[str, Any]
    dtype: str
    cases: int
    differing: int
    error: float
    bound: float
    gradient_error: float | None
    gradient_bound: float | None

    @property
    def equal(self) -> bool:
        """Whether no case differs."""
        return self.differing == 0

    def line(self) -> str:
        """The comparison in one line."""
        sits = ", ".join(f"{name}={value!r}" for name, value in self.dialect.items())
        at_dialect = f" at {sits}" if sits else ""
        verdict = f"equal on {self.cases} cases" if self.equal else f"differs on {self.differing} of {self.cases} cases"
        facts = [f"largest error {self.error:.1e} (at most {self.bound:.1e})"]
        if self.gradient_error is not None:
            facts.append(f"gradient {self.gradient_error:.1e} (at most {self.gradient_bound:.1e})")
        return f"{self.reference}{at_dialect}, {self.dtype}: {verdict}, {', '.join(facts)}"


@dataclass(frozen=True)
class Verdict:
    """What `diff` answers.

    ``equal_to`` are the references that the function equals in every dtype tried; when there are none, ``nearest`` is
    the closest one and ``witness`` the smallest input on which the two differ. ``notes`` say what was not compared.
    """

    status: Literal["equal", "different"]
    contract: str
    file: str
    function: str
    backend: str
    comparisons: tuple[Comparison, ...]
    equal_to: tuple[str, ...] = ()
    nearest: str = ""
    witness: Witness | None = None
    notes: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether it equals at least one reference."""
        return self.status == "equal"

    def to_json(self) -> dict[str, Any]:
        """Every field in JSON's types."""
        fields = {n: plain(v) for n, v in vars(self).items() if n not in ("comparisons", "witness")}
        comparisons = [{**plain(vars(item)), "equal": item.equal} for item in self.comparisons]
        return {**fields, "comparisons": comparisons, "witness": self.witness.to_json() if self.witness else None}

    def render(self) -> list[str]:
        """The verdict as lines of text: the answer first, then what it rests on."""
        who = f"{self.file}:{self.function}"
        if self.equal:
            lines = [f"{who} equals {', '.join(self.equal_to)}"]
        else:
            lines = [f"{who} differs from every reference of {self.contract}; {self.nearest} is the nearest"]
        if self.witness:
            lines += self.witness.lines()
        lines += ["", *(f"  {item.line()}" for item in self.comparisons)]
        lines += [f"  not run: {reason}" for reason in self.not_run] + [f"  note: {note}" for note in self.notes]
        return lines


def diff(
    file: str | Path,
    function: str,
    contract: Contract,
    *,
    mapping: Mapping[str, str] | None = None,
    backend: str | None = None,
    timeout: float = TIMEOUT,
    memory: int = MEMORY,
    examples: int = 40,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Verdict:
    """Whether ``function`` in ``file`` does what the references of ``contract`` do, and where not.

    ``mapping`` renames (theirs to ours), ``backend`` is found from the file's imports unless given, ``timeout`` is in
    seconds a call, ``memory`` in bytes.

    Raises:
        UserCodeError: the function could not be run as the contract asks.
        ContractError: no reference can be run here.
    """
    began = time.perf_counter()
    renamed = _checked_mapping(contract, mapping or {}, f"{file}:{function}")
    chosen = backend_of(file) if backend is None else _known_backend(backend)
    runnable, not_run = _references(contract, device)
    with Sandbox(file, function, contract, chosen, mapping=renamed, timeout=timeout, memory=memory) as sandbox:
        session = _Session(contract, sandbox, draw(contract, examples), device, progress or Silent())
        verdict = session.verdict(runnable, function)
    seconds = round(time.perf_counter() - began, 3)
    return replace(verdict, not_run=tuple(not_run), seconds=seconds)


def _references(contract: Contract, device: str) -> tuple[list[Implementation], list[str]]:
    """Those that can be run, and why the others cannot."""
    reasons = {item.name: unavailable(item, device) for item in references(contract)}
    runnable = [item for item in references(contract) if not reasons[item.name]]
    not_run = [f"{name}: {reason}" for name, reason in reasons.items() if reason]
    if not runnable:
        raise ContractError(contract.name, expected="a reference that can be run", found="; ".join(not_run) or "none")
    return runnable, not_run


def _known_backend(backend: str) -> Backend:
    if backend not in ("torch", "jax", "numpy"):
        raise UserCodeError("--backend", expected="torch, jax or numpy", found=repr(backend))
    return backend  # type: ignore[return-value]


def _checked_mapping(contract: Contract, mapping: Mapping[str, str], place: str) -> dict[str, str]:
    known = [n.name for n in contract.inputs] + [n.name for n in contract.knobs] + [n.name for n in contract.outputs]
    for theirs, ours in mapping.items():
        if ours not in known:
            remedy = did_you_mean(near_matches(ours, known)) or f"the names are {', '.join(known)}"
            raise UserCodeError(place, expected="--map THEIRS=OURS", found=f"{theirs}={ours}", remedy=remedy)
    return dict(mapping)


def backend_of(file: str | Path) -> Backend:
    """The backend that a file computes with: the first of torch and jax that it imports, else NumPy.

    Raises:
        UserCodeError: the file cannot be read or parsed.
    """
    for name in _imports(file):
        if name in ("torch", "jax"):
            return name  # type: ignore[return-value]
    return "numpy"


def _imports(file: str | Path) -> list[str]:
    try:
        tree = ast.parse(Path(file).read_bytes(), str(file))
    except OSError as error:
        raise UserCodeError(str(file), expected="a Python file", found=error.strerror or "unreadable") from error
    except SyntaxError as error:
        place = f"{file}:{error.lineno or 1}"
        raise UserCodeError(place, expected="a file that imports", found=f"SyntaxError: {error.msg}") from error
    except ValueError as error:
        raise UserCodeError(str(file), expected="a Python file", found=str(error)) from error
    found = []
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        found += [(node.lineno, name.partition(".")[0]) for name in names]  # type: ignore[attr-defined]
    return [name for _, name in sorted(found)]


@dataclass
class _Session:
    """One `diff` under way: the user's results so far, and what they are held against."""

    contract: Contract
    sandbox: Sandbox
    cases: tuple[Case, ...]
    device: str
    progress: Progress
    results: dict[tuple[Any, ...], Result] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def verdict(self, runnable: Sequence[Implementation], function: str) -> Verdict:
        """float64 against all references, then float32 against those that it equals."""
        self._start(runnable[0])
        comparisons: list[Comparison] = []
        candidates = list(runnable)
        for dtype in self._dtypes():
            tried = [c for item in candidates if (c := self._compare(item, dtype)) is not None]
            comparisons += tried
            same = {c.reference for c in tried if c.equal}
            if tried and not same:
                return self._different(function, comparisons, tried)
            candidates = [item for item in candidates if item.name in same or dtype not in _dtypes_of(item)]
        if not comparisons:
            raise ContractError(self.contract.name, expected="cases in the domain of a reference", found="none")
        equal = tuple(item.name for item in candidates if any(c.reference == item.name for c in comparisons))
        return self._made("equal", function, comparisons, equal_to=equal)

    def _start(self, first: Implementation) -> None:
        """One call, from which the outputs, their dtypes and the gradient are learned; then the repeatability check."""
        case = at(self.cases[0], first.dialect)
        result = self._user(case, self.cases[0], "float64")
        missing = [item.name for item in self.contract.outputs if item.name not in result.outputs]
        if missing:
            self.notes.append(f"not returned, hence not compared: {', '.join(missing)}")
            kept = tuple(item for item in self.contract.outputs if item.name in result.outputs)
            self.contract = replace(self.contract, outputs=kept)
        if self.sandbox.backend == "numpy" and any(item.differentiable for item in self.contract.inputs):
            self.notes.append("NumPy: values only, no gradients")
        self._repeat(first)

    def _repeat(self, first: Implementation) -> None:
        step = max(1, len(self.cases) // _REPEATED)
        chosen = [at(case, first.dialect) for case in self.cases[::step]]
        before = [self._fresh(case) for case in chosen]
        for case, old in zip(reversed(chosen), reversed(before), strict=True):
            self._same_twice(case, old, self._fresh(case))

    def _fresh(self, case: Case) -> Result:
        return self.sandbox.run(case, dtype="float64", device=self.device, gradient=False, eager=True)

    def _same_twice(self, case: Case, old: Result, new: Result) -> None:
        for name, array in old.outputs.items():
            other = new.outputs[name]
            if array.shape != other.shape or not np.array_equal(array, other, equal_nan=array.dtype.kind == "f"):
                raise UserCodeError(
                    self.sandbox.place,
                    expected="the same result on the same input",
                    found=f"two different values of {name!r}",
                    remedy="fix the seed inside the function, and keep no state between calls",
                )

    def _dtypes(self) -> list[str]:
        """float64 unless the function narrows what it is given, then float32."""
        narrowed = [
            f"{name} ({dtype})"
            for result in self.results.values()
            for name, dtype in result.dtypes.items()
            if dtype in ("float32", "float16", "bfloat16")
        ]
        if not narrowed:
            return ["float64", "float32"]
        self.notes.append(f"given float64 it returns {', '.join(sorted(set(narrowed)))}: compared in float32 only")
        return ["float32"]

    @property
    def _differentiates(self) -> bool:
        return self.sandbox.backend != "numpy" and any(item.differentiable for item in self.contract.inputs)

    def _user(self, moved: Case, case: Case, dtype: str) -> Result:
        """The user's result, run once for each setting of the knobs that it takes."""
        taken = tuple(sorted((n, repr(v)) for n, v in moved.knobs.items() if n in self.sandbox.takes))
        key = (id(case), taken, dtype)
        if key not in self.results:
            gradient = self._differentiates
            self.results[key] = self.sandbox.run(moved, dtype=dtype, device=self.device, gradient=gradient)
            if self.sandbox.undifferentiated:
                self._note(f"cannot be differentiated: {self.sandbox.undifferentiated}")
        return self.results[key]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _parts(self, oracle: Oracle, case: Case, dtype: str) -> tuple[Result, Result, dict[str, float]]:
        """Found, expected, and the error of each part."""
        expected = oracle(case, dtype)
        found = self._user(at(case, oracle.reference.dialect), case, dtype)
        if self._differentiates:
            found = attached(found, expected)
        parts = errors(oracle.contract, found, expected, condition=lambda key: oracle.condition(case, dtype, key))
        return found, expected, parts

    def _compare(self, reference: Implementation, dtype: str) -> Comparison | None:
        """Against one reference; None where the reference does not run in that dtype or takes none of the cases."""
        oracle = Oracle(self.contract, reference, self.device)
        chosen = accepted(self.cases, reference)
        if dtype not in _dtypes_of(reference) or not chosen:
            return None
        chosen, limits = self._limits(oracle, chosen, dtype)
        self.progress.start(f"{reference.name} {dtype}", len(chosen))
        both = []
        for i in chosen:
            both.append(split(self._parts(oracle, self.cases[i], dtype)[2]))
            self.progress.advance(f"{reference.name} {dtype}", 1)
        self.progress.finish(f"{reference.name} {dtype}")
        return self._summed(oracle, dtype, both, limits)

    def _summed(
        self, oracle: Oracle, dtype: str, both: list[tuple[float, float]], limits: tuple[float, float]
    ) -> Comparison:
        differing = sum(value > limits[0] or gradient > limits[1] for value, gradient in both)
        sloped = self._differentiates and oracle.slope is not None
        reference = oracle.reference
        return Comparison(
            reference.name,
            dict(reference.dialect),
            dtype,
            len(both),
            differing,
            max((value for value, _ in both), default=0.0),
            limits[0],
            max((gradient for _, gradient in both), default=0.0) if sloped else None,
            limits[1] if sloped else None,
        )

    def _limits(self, oracle: Oracle, chosen: list[int], dtype: str) -> tuple[list[int], tuple[float, float]]:
        """The bounds in force, and the cases that they hold for."""
        if dtype == "float64":
            return chosen, (bound(dtype, 0.0), bound(dtype, 0.0))
        reference = oracle.reference
        base = measure(
            oracle,
            reference.call,
            reference.backend,
            self.cases,
            chosen,
            dtype,
            self.device,
            gradient=reference.differentiable,
        )
        good = [i for i in chosen if i in base.errors and max(split(base.errors[i])) < float("inf")]
        value, gradient = base.worst(good)
        return good, (bound(dtype, value), bound(dtype, gradient))

    def _different(self, function: str, all_: list[Comparison], tried: list[Comparison]) -> Verdict:
        """With the nearest reference: the fewest differing cases, then the smallest error."""
        nearest = min(tried, key=lambda c: (c.differing / max(c.cases, 1), _finite(c.error), c.reference))
        shown = self._witness(nearest)
        if nearest.dtype == "float32" and any(c.dtype == "float64" for c in all_):
            self._note("equal in float64: the difference is one of arithmetic in float32")
        return self._made("different", function, all_, nearest=nearest.reference, witness=shown)

    def _witness(self, nearest: Comparison) -> Witness | None:
        oracle = Oracle(self.contract, self.contract.implementation(nearest.reference), self.device)
        limits = (nearest.bound, nearest.gradient_bound if nearest.gradient_bound is not None else float("inf"))

        if nearest.error > nearest.bound:
            limits = (limits[0], float("inf"))  # A difference in value is easier to read than one in a gradient.

        def differs(case: Case) -> bool:
            if not accepted([case], oracle.reference):
                return False
            return any(
                e > limit for e, limit in zip(split(self._parts(oracle, case, nearest.dtype)[2]), limits, strict=True)
            )

        case = witness(self.contract, differs, budget=250, known=self.cases)
        if case is None:
            return None
        found, expected, parts = self._parts(oracle, case, nearest.dtype)
        return self._explained(
            locate(self.contract, at(case, oracle.reference.dialect), found, expected, limits, parts)
        )

    def _explained(self, shown: Witness) -> Witness:
        """Says what a missing gradient is."""
        lost = shown.part.startswith(GRADIENT) and shown.found is not None and not shown.found.any()
        if lost and not shown.reason:
            return replace(shown, reason="no gradient arrives here")
        return shown

    def _made(
        self, status: Literal["equal", "different"], function: str, items: list[Comparison], **more: Any
    ) -> Verdict:
        sandbox = self.sandbox
        return Verdict(
            status,
            self.contract.name,
            sandbox.file,
            function,
            sandbox.backend,
            tuple(items),
            notes=tuple(self.notes),
            **more,
        )


def _dtypes_of(reference: Implementation) -> tuple[str, ...]:
    """float64 always: the oracle is there even where the reference itself is not."""
    return tuple({"float64", *reference.dtypes})


def _finite(value: float) -> float:
    return min(value, 1e300)


def template(contract: Contract) -> str:
    """A starting file for `diff`: the signature, with shapes, units and what to return."""
    knobs = "".join(f", {knob.name}={knob.default!r}" for knob in contract.knobs)
    names = ", ".join(item.name for item in contract.inputs)
    name = contract.name.replace("-", "_")
    lines = [
        f'"""{contract.title}: a starting file for `annotator diff FILE:{name} {contract.name}`."""',
        "",
        "import torch",
        "",
        "",
    ]
    lines += [f"def {name}({names}{knobs}):", f'    """{contract.title}.', "", "    Args:"]
    lines += [
        f"        {i.name}: {i.dtype} [{', '.join(i.shape)}]. {_sentence(i.doc, i.unit)}" for i in contract.inputs
    ]
    lines += [f"        {k.name}: one of {', '.join(map(repr, k.choices))}. {_sentence(k.doc)}" for k in contract.knobs]
    lines += ["", "    Returns a mapping with:"]
    lines += [f"        {o.name}: [{', '.join(o.shape)}]. {_sentence(o.doc, o.unit)}" for o in contract.outputs]
    lines += ['    """', "    raise NotImplementedError", ""]
    return "\n".join(lines)


def _sentence(text: str, unit: str = "") -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}{f' ({unit})' if unit else ''}."
