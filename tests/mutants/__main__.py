"""``python -m tests.mutants [TOPIC ...]``: tries the mutants of ``minimal/`` and says which ones nothing sees.

A topic is the end of a file's path without framework: ``grpo``, ``serving.sampling``; ``grpo_torch`` is one twin alone.
Results are kept in ``.cache/`` and used again while nothing changes that they depend on. Exit 0 when every mutant is
killed or argued to be equivalent, at least 95% of all are killed, and no argued one is; else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from annotator import catalog
from annotator.contracts.model import Contract
from tests.mutants.benches import EXAMPLES, digest
from tests.mutants.judging import Verdict
from tests.mutants.listing import argued, stubs
from tests.mutants.making import Mutant, mutants
from tests.mutants.planting import ROOT, module_name, reached
from tests.mutants.workers import Pool, Task, in_process, record_one

CACHE = ROOT / ".cache" / "mutants"
ENOUGH = 0.95
"""The share of mutants that must be killed."""

ENGINE = ("oracle", "sampling")
"""The modules that decide what is recorded. What else runs is seen: the original then fails its own questions."""


@dataclass(frozen=True)
class Tried:
    """A mutant, its verdict, and why it is argued to be equivalent (empty if it is not)."""

    mutant: Mutant
    verdict: Verdict
    reason: str = ""

    @property
    def state(self) -> str:
        """``killed``, ``equivalent``, ``survives``; ``refuted`` where it was argued to be equivalent, and is killed."""
        if self.verdict.killed:
            return "refuted" if self.reason else "killed"
        return "equivalent" if self.reason else "survives"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="all when none is given")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time (2)")
    parser.add_argument("--list", action="store_true", help="only say which mutants there are")
    parser.add_argument("--stubs", action="store_true", help="print survivors as entries for survivors.toml")
    parser.add_argument("--json", action="store_true", help="print every mutant with its verdict")
    parser.add_argument("--again", action="store_true", help="use no kept results")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    files = _files(options.topics)
    if not files:
        console.print(f"no topic of minimal/ ends in {', '.join(options.topics)}", style="red")
        return 2
    if options.list:
        for file in files:
            for mutant in mutants(ROOT / file, ROOT):
                print(mutant.line())
        return 0
    began = time.perf_counter()
    tried = _tried(files, options.jobs, console, again=options.again)
    if options.json:
        print(json.dumps([_plain(item) for item in tried], indent=1))
    elif options.stubs:
        print(stubs(item.mutant for item in tried if item.state == "survives"))
    else:
        _told(tried, time.perf_counter() - began)
    complete = {item.mutant.file for item in tried} == set(files)
    return 0 if complete and sound(tried) else 1


def sound(tried: Sequence[Tried]) -> bool:
    """Whether the tests see enough: nothing unargued survives, nothing argued dies, and 95% are killed."""
    killed = sum(item.verdict.killed for item in tried)
    return killed >= ENOUGH * len(tried) and all(item.state in ("killed", "equivalent") for item in tried)


# What is to be done ---------------------------------------------------------------------------------------------------


def _files(topics: Iterable[str]) -> list[str]:
    """The files of ``minimal/`` with something to mutate, of the topics asked for."""
    wanted = [topic.removeprefix("minimal.").replace("/", ".") for topic in topics]
    paths = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "minimal").glob("*/[!_]*.py"))]
    return [p for p in paths if not wanted or any(f".{n}".endswith(f".{w}") for w in wanted for n in _names(p))]


def _names(file: str) -> tuple[str, str]:
    """By what a file can be asked for: its topic, or one twin alone."""
    return _topic(file), module_name(file)


def _topic(file: str) -> str:
    name = module_name(file).removeprefix("minimal.")
    return name.removesuffix("_torch").removesuffix("_jax")


def _contracts(file: str, every: Sequence[Contract]) -> list[Contract]:
    """The contracts whose minimal version a file is; of a file that is only a part of others, those that run it."""
    own, others = [], []
    for contract in every:
        for item in contract.implementations:
            modules = [module_name(symbol) for symbol in item.symbols if symbol.startswith("minimal/")]
            if item.role == "minimal" and modules:
                own += [contract] * (modules[0] == module_name(file))
                others += [contract] * any(module_name(file) in reached(module) for module in modules)
    return own or others


def _task(file: str, contracts: Sequence[Contract]) -> Task:
    name = _topic(file).rpartition(".")[2]
    tests = [ROOT / "tests" / "minimal" / f"test_{name}.py"]
    twin = ROOT / (file.replace("_torch.", "_jax.") if "_torch." in file else file.replace("_jax.", "_torch."))
    return Task(
        file,
        tuple((contract.name, _kept(contract)) for contract in contracts),
        tuple(path for path in tests if path.exists()),
        twin if twin != ROOT / file and twin.exists() else None,
    )


def _kept(contract: Contract) -> Path:
    """Where the answers of a contract's oracles are kept: another file once anything that makes them changes."""
    return CACHE / f"{contract.name}-{digest(_sources(contract), str(EXAMPLES))}.pickle"


def _sources(contract: Contract) -> list[Path]:
    own = ROOT / "annotator" / "catalog" / f"{contract.name.replace('-', '_')}.py"
    engine = [ROOT / "annotator" / "contracts" / f"{name}.py" for name in ENGINE]
    return [own, *(path for path in engine if path.exists())]


# Doing it -------------------------------------------------------------------------------------------------------------


def _tried(files: Sequence[str], jobs: int, console: Console, *, again: bool) -> list[Tried]:
    every = [catalog.contract(name) for name in catalog.names()]
    tasks = [_task(file, _contracts(file, every)) for file in files]
    _record({pair for task in tasks for pair in task.contracts}, jobs, console)
    lost = {name for task in tasks for name, path in task.contracts if not path.exists()}
    if lost:
        console.print(f"left out, since no oracle could be run: {', '.join(sorted(lost))}", style="red")
    tasks = [task for task in tasks if not lost & {name for name, _ in task.contracts}]
    store = Store(CACHE / "verdicts.json")
    work: dict[Task, list[Mutant]] = {}
    done: dict[str, Verdict] = {}
    with _bar(console) as bar:
        line = bar.add_task("mutants", total=None)
        total = {}
        for task in tasks:
            marks = Marks(task)
            total[task] = mutants(ROOT / task.file, ROOT)
            for mutant in total[task]:
                known = None if again else store.verdict(mutant, marks)
                if known is not None:
                    done[mutant.source] = known
                else:
                    work.setdefault(task, []).append(mutant)
        bar.update(line, total=sum(map(len, total.values())), completed=len(done))
        marks_of = {task.file: Marks(task) for task in tasks}

        def told(mutant: Mutant, verdict: Verdict) -> None:
            done[mutant.source] = verdict
            store.keep(mutant, marks_of[mutant.file], verdict)
            bar.update(line, advance=1, description=mutant.file.removeprefix("minimal/"))

        try:
            Pool(jobs, told, console.print).run(work)
        finally:
            store.write()
    reasons = argued()
    return [Tried(mutant, done[mutant.source], reasons.get(mutant.key, "")) for task in tasks for mutant in total[task]]


def _record(wanted: set[tuple[str, Path]], jobs: int, console: Console) -> None:
    """Has missing answers recorded, each in a process of its own."""
    missing = sorted((name, path) for name, path in wanted if not path.exists())
    with _bar(console) as bar, ThreadPoolExecutor(jobs) as threads:
        line = bar.add_task("oracles", total=len(missing))

        def one(pair: tuple[str, Path]) -> None:
            in_process(record_one, *pair)
            bar.update(line, advance=1, description=pair[0])

        list(threads.map(one, missing))


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


@dataclass(frozen=True)
class Marks:
    """Digests of what a verdict depends on: what can kill a mutant, and what could still kill a survivor."""

    task: Task

    def killed(self) -> str:
        """Of the modules that run and the recorded answers."""
        files = [ROOT / (name.replace(".", "/") + ".py") for name in reached(module_name(self.task.file))]
        return digest(files, *(str(path.name) for _, path in self.task.contracts))

    def survived(self) -> str:
        """Of these, of the unit tests and of the judge."""
        judge = [Path(__file__).with_name(name) for name in ("judging.py", "planting.py")]
        return digest([*self.task.tests, *judge], self.killed())


class Store:
    """Verdicts of earlier runs, in a file that git ignores."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = self._read()
        self.new: dict[str, list[str]] = {}
        self.written = time.monotonic()

    def _read(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return found

    def verdict(self, mutant: Mutant, marks: Marks) -> Verdict | None:
        """The verdict of the same mutant under the same marks."""
        by, where, mark = self.known.get(self._key(mutant), ("", "", ""))
        return Verdict(by, where) if mark == self._mark(marks, by) else None

    def keep(self, mutant: Mutant, marks: Marks, verdict: Verdict) -> None:
        """Adds one, and writes the file now and then."""
        self.new[self._key(mutant)] = [verdict.by, verdict.where, self._mark(marks, verdict.by)]
        if time.monotonic() - self.written > 10:
            self.write()

    def write(self) -> None:
        """Writes the file, whole or not at all; what another run has added meanwhile stays."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({**self._read(), **self.new}))
        part.replace(self.path)
        self.written = time.monotonic()

    @staticmethod
    def _key(mutant: Mutant) -> str:
        return f"{mutant.file} {digest((), mutant.source)}"

    @staticmethod
    def _mark(marks: Marks, by: str) -> str:
        return marks.survived() if by in ("", "unit test") else marks.killed()


# Telling it -----------------------------------------------------------------------------------------------------------


def _told(tried: Sequence[Tried], seconds: float) -> None:
    console = Console(width=150, highlight=False)
    table = Table(box=None, pad_edge=False)
    kinds = ("mutants", "by value", "gradient", "float32", "probe", "draws", "tests", "fault", "loop", "equivalent")
    for name in ("file", *kinds, "survive", "killed"):
        table.add_column(name, justify="left" if name == "file" else "right")
    for file in dict.fromkeys(item.mutant.file for item in tried):
        table.add_row(file.removeprefix("minimal/"), *_row([item for item in tried if item.mutant.file == file]))
    table.add_row("all", *_row(tried), style="bold")
    console.print(table)
    for state, word in (("survives", "survives"), ("refuted", "argued to be equivalent, yet killed")):
        for item in tried:
            if item.state == state:
                print(f"{word}: {item.mutant.line()} {item.verdict.where}".rstrip())
    print(f"{seconds:.0f} s")


def _row(tried: Sequence[Tried]) -> list[str]:
    by = Counter(_kind(item.verdict) for item in tried)
    states = Counter(item.state for item in tried)
    share = sum(item.verdict.killed for item in tried) / max(len(tried), 1)
    counts = [by[kind] for kind in ("value", "gradient", "float32", "probe", "distribution", "unit test")]
    faults, loops = by["fault"] + by["import"] + by["crash"], by["time-out"]
    numbers = [len(tried), *counts, faults, loops, states["equivalent"], states["survives"]]
    return [*(str(n) if n else "" for n in numbers), f"{share:.1%}"]


def _kind(verdict: Verdict) -> str:
    return "float32" if verdict.by.endswith("float32") else verdict.by


def _plain(item: Tried) -> dict[str, str]:
    fields = {name: value for name, value in asdict(item.mutant).items() if name not in ("source", "lines")}
    return {**fields, "state": item.state, "by": item.verdict.by, "where": item.verdict.where, "reason": item.reason}


if __name__ == "__main__":
    sys.exit(main())
