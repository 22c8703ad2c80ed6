"""How fast and how large the index is, beside what people use for the same, as Markdown tables.

    python benchmarks/index.py [--jobs 2] [--repeat 3] [--pins verl,trl,vllm,torch] [--slow trl] [--scip-python PATH]

Works on the pins of this checkout in a temporary folder; the checkout's own index is not touched. Every process is
timed as a whole. Memory of ours is the sum of the peaks of its processes, so it can only overstate. griffe and
Universal Ctags have rows where they are installed; jedi and scip-python (which needs Node), both of which run for
minutes, on the pins after ``--slow``.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from annotator.index import Index, build  # noqa: E402
from annotator.workspace import Workspace  # noqa: E402
from benchmarks import peers, scip  # noqa: E402
from benchmarks.peers import Row, Timed  # noqa: E402

PINS = ("verl", "trl", "vllm", "torch")
QUESTION = "GRPOTrainer"
"""A name of trl, which is therefore always needed."""
COLD = """
import sys, resource
from pathlib import Path
from annotator.index import build
from annotator.workspace import Workspace
root, jobs = Path(sys.argv[1]), int(sys.argv[2])
report = build(Workspace(root, root, root), sys.argv[3:], jobs=jobs)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
workers = jobs if used[1].ru_maxrss else 0
print(report.files, report.lines, report.definitions, report.seconds, sum(u.ru_utime + u.ru_stime for u in used),
      (used[0].ru_maxrss + workers * used[1].ru_maxrss) / 1024)
"""


@dataclass(frozen=True)
class Cold:
    """A cold build: what came out, wall and processor seconds, summed peak memory in MB."""

    files: int
    lines: int
    definitions: int
    seconds: float
    processor: float
    megabytes: float


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median(action: Callable[[], object], repeat: int) -> float:
    """Median seconds of several runs."""
    return statistics.median(timed(action) for _ in range(repeat))


def say(text: str) -> None:
    """Tells on standard error what runs now, so that the tables alone are on standard output."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def workspace(trees: dict[str, Path]) -> Iterator[Workspace]:
    """An empty workspace with links to trees."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, tree in trees.items():
            (root / name).symlink_to(tree.resolve())
        yield Workspace(root, root, root)


def cold(place: Workspace, names: list[str], jobs: int) -> Cold:
    """A cold build in a process of its own."""
    place.index.unlink(missing_ok=True)
    command = [sys.executable, "-c", COLD, str(place.root), str(jobs), *names]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return Cold(*map(int, out[:3]), *map(float, out[3:]))


def find(place: Workspace) -> list[str]:
    """The command of a query, as a user runs it."""
    return [sys.executable, "-m", "annotator", "-C", str(place.root), "find", QUESTION]


def quietly(command: list[str]) -> None:
    """Runs a command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, capture_output=True)


def longest(index: Index) -> tuple[str, str, int]:
    """The Python file whose length is nearest to 3,000 lines."""
    query = "SELECT pin, path, lines FROM files WHERE language='python' AND path LIKE '%.py' ORDER BY abs(lines - 3000)"
    pin, path, lines = index.connection.execute(query + " LIMIT 1").fetchone()
    return pin, path, lines


def resolve(place: Workspace, pin: str, path: str) -> None:
    """Links of one file in a fresh index, without the cache of links."""
    place.index.with_name("links.sqlite").unlink(missing_ok=True)
    with Index.open(place) as index:
        index.links(pin, path)


def change(place: Workspace, name: str, path: str, names: list[str], jobs: int) -> None:
    """One file changed by one line, and a build."""
    with (place.tree(name) / path).open("a") as stream:
        stream.write(f"\nchanged = {time.time_ns()}\n")
    assert build(place, names, jobs=jobs).parsed == 1


def ours(trees: dict[str, Path], jobs: int, repeat: int) -> list[tuple[str, str, str, str]]:
    """The rows about our own figures, with their targets."""
    names = list(trees)
    with workspace(trees) as place, tempfile.TemporaryDirectory() as folder:
        (place.root / "vendored_refs").mkdir()
        (place.root / "vendored_refs" / "pins.toml").touch()
        changing = Path(folder, names[0])
        shutil.copytree(trees[names[0]].resolve(), changing)
        (place.root / names[0]).unlink()
        (place.root / names[0]).symlink_to(changing)
        builds = [cold(place, names, jobs) for _ in range(repeat)]
        report = sorted(builds, key=lambda one: one.seconds)[len(builds) // 2]
        unchanged = median(lambda: build(place, names, jobs=jobs), repeat)
        with Index.open(place) as index:
            pin, path, lines = longest(index)
            first = index.paths(names[0])[0]
        changed = median(lambda: change(place, names[0], first, names, jobs), repeat)
        seen = Workspace(place.root, place.cache, place.root / "vendored_refs")
        for name in ("index.sqlite", *names):
            (seen.state / name).symlink_to(place.root / name)
        quietly(find(seen))
        asked = median(lambda: quietly(find(seen)), 3 * repeat)
        bare = median(lambda: quietly([sys.executable, "-c", "pass"]), 3 * repeat)
        resolving = median(lambda: resolve(place, pin, path), repeat)
        size = place.index.stat().st_size / 1e6
    rate = report.lines / report.seconds
    return [
        ("cold", f"{report.lines:,} lines, {report.files:,} files", f"{report.seconds:.1f} s", "25 s"),
        ("cold, processor time", f"{report.definitions:,} definitions", f"{report.processor:.1f} s", ""),
        ("cold, lines a second", ", ".join(names), f"{rate:,.0f}", ""),
        ("cold, peak memory of all processes", "", f"{report.megabytes:.0f} MB", "1,200 MB"),
        ("nothing changed", "", f"{unchanged:.2f} s", "1 s"),
        ("one file changed", "", f"{changed:.2f} s", "1 s"),
        ("find with uses, whole process", f"Python alone {bare * 1e3:.0f} ms", f"{asked * 1e3:.0f} ms", "150 ms"),
        ("resolve a file, anew", f"{pin}/{path}, {lines:,} lines", f"{resolving * 1e3:.0f} ms", "300 ms"),
        ("index on disk", "", f"{size:.0f} MB", "400 MB"),
    ]


def beside(trees: dict[str, Path], chosen: list[str], given: Path | None) -> Iterator[Row | str]:
    """A row per tool and pin, ours in one process too; a line about a tool that is not here."""
    for tool in (peers.ctags, peers.griffe, peers.jedi):
        for pin in chosen if tool is peers.jedi else trees:
            say(f"{tool.__name__} on {pin}")
            row = tool(pin, trees[pin])
            if row is None:
                yield f"{tool.__name__} is not installed here."
                break
            yield row
    if chosen:
        program = scip.find(given, Workspace.find(ROOT).cache)
        for pin in chosen:
            say(f"scip-python on {pin}")
            yield peers.scip_python(pin, trees[pin], program)
    for pin, tree in trees.items():
        say(f"ours on {pin}")
        yield from alone(pin, tree)


def alone(pin: str, tree: Path) -> Iterator[Row]:
    """Rows of ours on one pin, in one process: all its definitions, and where the names of some files lead."""
    with workspace({pin: tree}) as place:
        built = cold(place, [pin], 1)
        paths = peers.files(tree, (".py",))
        some = paths[len(paths) // 40 :: max(1, len(paths) // 20)][:20]
        with Index.open(place) as index:
            inside = [path.relative_to(tree.resolve()).as_posix() for path in some]
            took = timed(lambda: [index.links(pin, path) for path in inside])
    name, memory = "ours, one process", built.megabytes
    yield Row(name, "definitions; names lead on demand", pin, built.lines, Timed(built.seconds, memory))
    yield Row(name, f"where names lead, in {len(some)} files", pin, peers.lines(some), Timed(took, memory))


def growth(trees: dict[str, Path], jobs: int) -> Iterator[tuple[str, ...]]:
    """Rows for a tenth, three tenths and all of the files, spread evenly; ``find`` inside a process that runs."""
    for percent in (10, 30, 100):
        say(f"{percent}% of the files")
        with tempfile.TemporaryDirectory() as folder:
            part = {name: Path(folder, name) for name in trees}
            for name, tree in trees.items():
                thin(tree.resolve(), part[name], percent)
            with workspace(part) as place:
                built = cold(place, list(part), jobs)
                size = place.index.stat().st_size / 1e6
                with Index.open(place) as index:
                    index.find(QUESTION)
                    asked = median(lambda: index.find(QUESTION), 5)
        each = built.seconds / built.lines * 1e6
        figures = (f"{built.seconds:.1f}", f"{each:.1f}", f"{built.megabytes:.0f}", f"{size:.0f}", f"{asked * 1e3:.1f}")
        yield f"{percent}%", f"{built.lines:,}", *figures


def thin(tree: Path, to: Path, percent: int) -> None:
    """Copies that share of a tree's source files."""
    every = 0
    for path in peers.files(tree, peers.SOURCES["all"]):
        every += percent
        if every >= 100:
            every -= 100
            target = to / path.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def table(*rows: tuple[str, ...]) -> None:
    """Prints a Markdown table; the first row is its head."""
    for number, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if not number:
            print("| " + " | ".join("---" for _ in row) + " |")
    print()


def main() -> None:
    """Runs everything and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pins", default=",".join(PINS), help="trl is always needed")
    parser.add_argument("--slow", default="", help="pins for jedi and scip-python, which take minutes")
    parser.add_argument("--scip-python", type=Path, help="the program; without it, it is installed into the cache")
    options = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    here = Workspace.find(ROOT)
    trees = {name: here.tree(name) for name in options.pins.split(",") if here.tree(name).is_dir()}
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.jobs} processes"
    print(f"{machine}, load {load:.1f} at the start\n")
    say("ours")
    table(("measure", "of", "result", "target"), *ours(trees, options.jobs, options.repeat))
    found = list(beside(trees, [name for name in options.slow.split(",") if name], options.scip_python))
    rows = [row for row in found if isinstance(row, Row)]
    table(("tool", "what it knows then", "pin", "lines", "seconds", "lines/s", "MB"), *map(row_of, rows))
    for line in found:
        if isinstance(line, str):
            print(line + "\n")
    head = ("of the files", "lines", "cold, s", "s a million lines", "memory, MB", "index, MB", "find, ms")
    table(head, *growth(trees, options.jobs))


def row_of(row: Row) -> tuple[str, ...]:
    """A row of the table of tools."""
    figures = (f"{row.lines:,}", f"{row.timed.seconds:.1f}", f"{row.rate:,.0f}", f"{row.timed.megabytes:.0f}")
    return row.tool, row.does, row.pin, *figures


if __name__ == "__main__":
    main()
