"""Spreads mutants over processes that can be ended: a mutant may loop for ever, or take all memory.

A worker keeps what it has prepared for its file and goes on with that file as long as there are mutants of it; then it
takes those of the file with most left. One that does not answer, or that dies, has seen its mutant killed.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import resource
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.mutants.judging import Verdict
from tests.mutants.making import Mutant

DEADLINE = 1800.0
"""Seconds for one mutant in all. A worker's own patience ends far sooner, unless it hangs in compiled code."""

PREPARATION = 3600.0
MEMORY = 8 << 30
"""Bytes that a mutant may take beyond what its worker has."""


@dataclass(frozen=True)
class Task:
    """A file, the contracts that run it with their kept oracles, and its unit tests."""

    file: str
    contracts: tuple[tuple[str, Path], ...]
    tests: tuple[Path, ...]
    twin: Path | None


def in_process(function: Callable[..., Any], *arguments: Any) -> None:
    """Runs a function in a fresh process, and returns when it has ended."""
    process = mp.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()


def record_one(name: str, path: Path) -> None:
    """Asks a contract's oracles and keeps what they say."""
    from annotator import catalog
    from tests.mutants.benches import record, save

    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    save(record(catalog.contract(name)), path)


class Pool:
    """Tries the mutants of several files, ``jobs`` at a time."""

    def __init__(self, jobs: int, told: Callable[[Mutant, Verdict], None], warn: Callable[[str], None]) -> None:
        self.jobs, self.told, self.warn = jobs, told, warn
        self.lock = threading.Lock()

    def run(self, work: Mapping[Task, Sequence[Mutant]]) -> None:
        """Returns when every mutant has its verdict."""
        self.left = {task: deque(mutants) for task, mutants in work.items() if mutants}
        self.held: dict[Task, int] = dict.fromkeys(self.left, 0)
        threads = [threading.Thread(target=self._serve) for _ in range(min(self.jobs, sum(map(len, work.values()))))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        worker = _Worker(self.warn)
        task: Task | None = None
        try:
            while True:
                task, mutant = self._next(task)
                if task is None or mutant is None:
                    return
                verdict = worker.judge(task, mutant)
                with self.lock:
                    self.told(mutant, verdict)
        finally:
            worker.end()

    def _next(self, task: Task | None) -> tuple[Task | None, Mutant | None]:
        with self.lock:
            if task is None or not self.left[task]:
                if task is not None:
                    self.held[task] -= 1
                # A file that nobody is at, else the one with most left: preparing a second worker for it must pay.
                free = [t for t, mutants in self.left.items() if mutants and (not self.held[t] or len(mutants) > 40)]
                if not free:
                    return None, None
                task = min(free, key=lambda t: (self.held[t], -len(self.left[t])))
                self.held[task] += 1
            return task, self.left[task].popleft()


class _Worker:
    """One process, started when needed and again after it was ended."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self.process: Any = None
        self.pipe: Connection | None = None
        self.task: Task | None = None

    def judge(self, task: Task, mutant: Mutant) -> Verdict:
        """The verdict of the process, or that it did not survive the mutant."""
        if self.process is None or not self.process.is_alive():
            self._start()
        if self.task != task:
            told = self._asked(task, PREPARATION)
            if not isinstance(told, list):
                raise RuntimeError(f"{task.file}: the original cannot be tried: {told}")
            if told:
                self.warn(f"{task.file}: {len(told)} questions that the original does not pass, such as {told[0]}")
            self.task = task
        answer = self._asked(mutant, DEADLINE)
        if isinstance(answer, Verdict):
            return answer
        self.end()
        return Verdict(str(answer), "the worker was lost")

    def _start(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.task = None

    def _asked(self, question: Any, seconds: float) -> Any:
        assert self.pipe is not None
        try:
            self.pipe.send(question)
            return self.pipe.recv() if self.pipe.poll(seconds) else "time-out"
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return "crash"

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.process = self.task = None


# In the worker --------------------------------------------------------------------------------------------------------


def serve(pipe: Connection) -> None:
    """Answers tasks with what the original does not pass, and mutants with verdicts, until the pipe closes."""
    _quiet()
    judge: Any = None
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        if isinstance(asked, Task):
            try:
                judge, answer = _prepared(asked)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)
        else:
            pipe.send(judge(asked))


def _prepared(task: Task) -> tuple[Any, list[str]]:
    from annotator import catalog
    from tests.mutants.benches import load
    from tests.mutants.judging import Bench, Judge, UnitTests
    from tests.mutants.planting import module_name, reached

    benches = []
    for name, path in task.contracts:
        contract = catalog.contract(name)
        oracles = load(contract, path)
        for item in contract.implementations:
            named = [module_name(symbol) for symbol in item.symbols if symbol.startswith("minimal/")]
            if item.role == "minimal" and any(module_name(task.file) in reached(each) for each in named):
                benches.append(Bench(contract, item, oracles, task.file).prepare())
    _limit_memory()
    told = [f"{bench.contract.name}: {line}" for bench in benches for line in bench.unanswered]
    naming = tuple(bench.contract for bench in benches if task.file in bench.implementation.symbols)
    return Judge(task.file, benches, UnitTests(task.file, task.tests, task.twin, naming)), told


def _quiet() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
