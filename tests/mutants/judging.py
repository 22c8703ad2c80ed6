"""Tries one mutant: is there a case, a probe, a draw or a unit test that it does not pass?

The contracts judge first, in the order of what it costs to ask them: values and gradients in float64 on the cases whose
run goes through the changed line, the same in float32, probes, the distribution of draws. What they all let pass, the
unit tests of ``tests/minimal`` see: defaults that nobody passes, gradients that are cut for the sake of the caller.
"""

from __future__ import annotations

import ast
import contextlib
import io
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from annotator.contracts import chi
from annotator.contracts.comparison import FLOAT64_BOUND, split
from annotator.contracts.conforming import case_errors, sample_p_value
from annotator.contracts.model import Case, Contract, Implementation, Probe
from annotator.contracts.running import Result, eagerly, run
from tests.mutants.benches import Recorded, Sample, samples
from tests.mutants.making import Mutant
from tests.mutants.planting import ROOT, module_name, planted, unrolled

PATIENCE = 10.0
"""Seconds of computing after which a mutant counts as caught in a loop; more where the original is slow."""


FEW = 30
"""How many of the float64 questions are asked in float32 too, and in each probe: the named edges come first.

A third of it in JAX, which compiles every operation for every shape and dtype.
"""

SHAPES = 10
"""In how many shapes JAX is asked drawn cases, for the same reason."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant. ``by`` is empty for one that survives; ``where`` names the case, probe or test."""

    by: str = ""
    where: str = ""

    @property
    def killed(self) -> bool:
        """Whether anything saw it."""
        return bool(self.by)


class TimeOut(BaseException):
    """A question that took too long. Not an `Exception`, so that nothing that is run catches it."""


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raises `TimeOut` in what computes longer. Counted in processor time, so that a busy machine kills nobody."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise TimeOut

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Question:
    """Something that right code passes: ``ask`` returns in words what is wrong, or an empty string.

    ``lines`` are those of the file that the original ran for it, ``seconds`` what it took.
    """

    kind: str
    where: str
    ask: Callable[[], str]
    lines: frozenset[int] = frozenset()
    seconds: float = 0.0


@dataclass
class Bench:
    """One contract's minimal implementation that runs a file, and every question the contract has for it."""

    contract: Contract
    implementation: Implementation
    oracles: Sequence[Recorded]
    file: str
    questions: list[Question] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def prepare(self) -> Bench:
        """Puts every question to the original: those that it does not pass are no questions (and are told)."""
        source = (ROOT / self.file).read_text(encoding="utf-8")
        with planted(module_name(self.file), source):  # as mutants are
            for question in self._all():
                began = time.process_time()
                lines: set[int] = set()
                with traced(str(ROOT / self.file), lines):
                    answer = self.answer(question, 10 * PATIENCE)
                question.lines, question.seconds = frozenset(lines), time.process_time() - began
                if answer:
                    self.unanswered.append(f"{question.kind} {question.where}: {answer}")
                else:
                    self.questions.append(question)
        return self

    def answer(self, question: Question, seconds: float) -> str:
        """What is wrong with what now stands in the file's place, in a word; empty when nothing is."""
        try:
            with _eager(self.implementation), patience(seconds):
                return question.ask()
        except TimeOut:
            return "time-out"
        except Exception:  # A right file raises nothing on these cases, so whatever this is, the mutant is seen.
            return "fault"

    def _all(self) -> Iterator[Question]:
        few = FEW // 3 if self.implementation.backend == "jax" else FEW
        seen = samples(self.oracles, self.implementation, "float64")
        seen = _in_few_shapes(seen) if self.implementation.backend == "jax" else seen
        yield from (Question("float64", _label(sample), _value(self, sample)) for sample in seen)
        rough = samples(self.oracles, self.implementation, "float32")[:few]
        yield from (Question("float32", _label(sample), _value(self, sample)) for sample in rough)
        for probe in self.contract.probes:
            if probe.name not in self.implementation.breaks:
                for sample in seen[:few]:
                    yield Question(f"probe {probe.name}", _label(sample), _probe(self, probe, sample.moved))
        if self.contract.kind == "distribution" and self.implementation.sample is not None:
            for oracle in self.oracles:
                yield Question("distribution", oracle.reference.name, _drawn(self, oracle))


def _in_few_shapes(questions: Sequence[Sample]) -> list[Sample]:
    """The named edges, and drawn cases in the first shapes that are drawn."""
    shapes: set[Any] = set()
    kept = []
    for sample in questions:
        shape = tuple(np.shape(array) for array in sample.case.inputs.values())
        if sample.case.label or shape in shapes or len(shapes) < SHAPES:
            kept.append(sample)
            shapes |= set() if sample.case.label else {shape}
    return kept


def _label(sample: Sample) -> str:
    return f"{sample.case.label or f'case {sample.index}'} as {sample.oracle.reference.name}"


def _value(bench: Bench, sample: Sample) -> Callable[[], str]:
    made, limits = bench.implementation, sample.oracle.limits[sample.dtype]

    def ask() -> str:
        parts = case_errors(
            sample.oracle,  # type: ignore[arg-type]
            made.call,
            made.backend,
            sample.case,
            sample.dtype,
            gradient=made.differentiable,
        )
        value, gradient = split(parts)
        return "value" if value > limits[0] else "gradient" if gradient > limits[1] else ""

    return ask


def _probe(bench: Bench, probe: Probe, case: Case) -> Callable[[], str]:
    made = bench.implementation

    def runner(changed: Case, dtype: str = "float64") -> Result:
        return run(bench.contract, made.call, made.backend, changed, dtype=dtype, gradient=made.differentiable)

    def ask() -> str:
        error = probe.relation(runner, case)
        return "probe" if error is not None and error > FLOAT64_BOUND else ""

    return ask


def _drawn(bench: Bench, oracle: Recorded) -> Callable[[], str]:
    made = bench.implementation

    def ask() -> str:
        cases = [oracle.cases[i] for i in oracle.chosen["float64"]]
        p, _ = sample_p_value(oracle, made.sample, made.backend, cases, "float64")  # type: ignore[arg-type]
        return "distribution" if p < chi.FALSE_ALARM else ""

    return ask


@contextlib.contextmanager
def _eager(implementation: Implementation) -> Iterator[None]:
    """JAX operation by operation: to compile every mutant as a whole would take a second each."""
    if implementation.backend != "jax":
        yield
        return
    with eagerly(implementation.call), unrolled():
        yield


@contextlib.contextmanager
def traced(file: str, lines: set[int]) -> Iterator[None]:
    """Adds the lines of a file that run meanwhile."""

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add(frame.f_lineno)
        return inside

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return inside if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


class Judge:
    """Tries the mutants of one file. What killed the last ones is asked first, for neighbours die of the same."""

    def __init__(self, file: str, benches: Sequence[Bench], tests: UnitTests | None = None) -> None:
        self.file, self.tests = file, tests
        self.asked = [(bench, question) for bench in benches for question in bench.questions]

    def __call__(self, mutant: Mutant) -> Verdict:
        """The first thing that sees the mutant. It is planted for every question anew, so that none spoils the next."""
        try:
            with contextlib.redirect_stdout(io.StringIO()), planted(module_name(self.file), mutant.source):
                return self._of_outline(mutant) or self._of_contracts(mutant) or self._of_tests(mutant) or Verdict()
        except Exception as error:
            return Verdict("import", type(error).__name__)

    def _of_contracts(self, mutant: Mutant) -> Verdict | None:
        for i, (bench, question) in enumerate(self.asked):
            if mutant.lines and not mutant.lines & question.lines:
                continue
            answer = bench.answer(question, max(PATIENCE, 20 * question.seconds))
            if answer:
                if question.kind == "float64":
                    self.asked.insert(0, self.asked.pop(i))
                by = f"{answer} in float32" if question.kind == "float32" else answer
                return Verdict(by, f"{bench.contract.name}: {question.where}")
        return None

    def _of_outline(self, mutant: Mutant) -> Verdict | None:
        """What a changed head of a function says by itself, before anything is run."""
        told = self.tests.outline(mutant) if self.tests and not mutant.lines else ""
        return Verdict("unit test", told) if told else None

    def _of_tests(self, mutant: Mutant) -> Verdict | None:
        failed = self.tests.failed() if self.tests else ""
        return Verdict("unit test", failed) if failed else None


@dataclass(frozen=True)
class UnitTests:
    """The tests of a file in ``tests/minimal``, and what others there hold of its twin and of its contracts."""

    file: str
    paths: tuple[Path, ...] = ()
    twin: Path | None = None
    contracts: tuple[Contract, ...] = ()

    def outline(self, mutant: Mutant) -> str:
        """What `test_twins` asks of the text (here of the mutant's, which lies in no file) and `test_defaults`."""
        from tests.minimal.test_defaults import other_defaults
        from tests.minimal.test_twins import outline, outline_of

        module = sys.modules[module_name(self.file)]
        if any(other_defaults(module, contract) for contract in self.contracts):
            return "test_defaults.py::test_defaults_are_those_of_the_contract"
        if self.twin is None or outline(ast.parse(mutant.source).body) == outline_of(self.twin):
            return ""
        return "test_twins.py::test_same_names_in_the_same_order"

    def failed(self) -> str:
        """The first test that the planted mutant does not pass, or an empty string."""
        if not self.paths:
            return ""
        for name in [name for name in sys.modules if name.startswith("tests.minimal.test_")]:
            del sys.modules[name]  # They hold functions of the original.
        other = "torch" if self.file.endswith("_jax.py") else "jax"
        seen = _First()
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-k", f"not {other}", f"--rootdir={ROOT}"]
        try:
            with contextlib.redirect_stdout(io.StringIO()), patience(12 * PATIENCE):
                pytest.main([*options, *map(str, self.paths)], plugins=[seen])
        except TimeOut:
            return "time-out"
        return seen.failed


class _First:
    """Keeps the name of the first test that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.removeprefix("tests/minimal/")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.removeprefix("tests/minimal/")
