"""How fast and how large the index is, beside griffe (which reads the API only), as a Markdown table.

    python benchmarks/index.py [--jobs 2] [--repeat 3] [--pins verl,trl]

Works on the pins of this checkout in a temporary folder; the checkout's own index is not touched. Memory is the sum
of the peaks of this build's processes, so it can only overstate.
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
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from annotator.index import Index, build  # noqa: E402
from annotator.index.model import Report  # noqa: E402
from annotator.workspace import Workspace  # noqa: E402

PINS = ("verl", "trl", "vllm", "torch")
FIND = """
import sys
from pathlib import Path
from annotator.index import Index
from annotator.workspace import Workspace
root = Path(sys.argv[1])
print(len(Index.open(Workspace(root, root, root)).find("compute_grpo_outcome_advantage")))
"""
GRIFFE = """
import sys, time, resource, griffe
from pathlib import Path
start = time.perf_counter()
package = griffe.load("verl", search_paths=[sys.argv[1]], allow_inspection=False, submodules=True)
lines = sum(path.read_bytes().count(10) for path in Path(sys.argv[1], "verl").rglob("*.py"))
print(lines, time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median(action: Callable[[], object], repeat: int) -> float:
    """Median seconds of several runs."""
    return statistics.median(timed(action) for _ in range(repeat))


def place(folder: Path, wanted: list[str]) -> tuple[Workspace, list[str]]:
    """A workspace in ``folder`` with links to the trees of this checkout, verl as a copy that may be changed."""
    here = Workspace.find(ROOT)
    names = [name for name in wanted if here.tree(name).is_dir()]
    for name in names:
        source = here.tree(name).resolve()
        if name == "verl":
            shutil.copytree(source, folder / name)
        else:
            (folder / name).symlink_to(source)
    return Workspace(folder, folder, folder), names


def cold(workspace: Workspace, names: list[str], jobs: int) -> tuple[Report, float, float]:
    """A cold build in its own process: report, processor seconds, summed peak memory in MB."""
    code = (
        "import sys, resource; from pathlib import Path; from annotator.index import build;"
        "from annotator.workspace import Workspace; r = Path(sys.argv[1]);"
        "p = build(Workspace(r, r, r), sys.argv[3:], jobs=int(sys.argv[2]));"
        "a, b = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(p.files, p.parsed, p.lines, p.definitions, p.seconds, a.ru_utime + b.ru_utime + a.ru_stime + b.ru_stime,"
        "(a.ru_maxrss + int(sys.argv[2]) * b.ru_maxrss) / 1024)"
    )
    command = [sys.executable, "-c", code, str(workspace.root), str(jobs), *names]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files, parsed, lines, definitions = map(int, out[:4])
    return Report(files, parsed, 0, lines, definitions, float(out[4])), float(out[5]), float(out[6])


def longest(index: Index) -> tuple[str, str, int]:
    """The Python file whose length is nearest to 3,000 lines."""
    query = "SELECT pin, path, lines FROM files WHERE language='python' AND path LIKE '%.py' ORDER BY abs(lines - 3000)"
    pin, path, lines = index.connection.execute(query + " LIMIT 1").fetchone()
    return pin, path, lines


def resolve(workspace: Workspace, pin: str, path: str) -> None:
    """Links of one file in a fresh index, without the cache of links."""
    workspace.index.with_name("links.sqlite").unlink(missing_ok=True)
    with Index.open(workspace) as index:
        index.links(pin, path)


def change(workspace: Workspace, names: list[str], jobs: int) -> None:
    """One file changed by one line, and a build."""
    with (workspace.tree("verl") / "verl/protocol.py").open("a") as stream:
        stream.write(f"changed = {time.time_ns()}\n")
    assert build(workspace, names, jobs=jobs).parsed == 1


def griffe(tree: Path) -> str | None:
    """A row for griffe on verl, if it is installed."""
    try:
        name = f"griffe {version('griffe')}"
    except PackageNotFoundError:
        return None
    done = subprocess.run([sys.executable, "-c", GRIFFE, str(tree)], check=True, capture_output=True, text=True)
    lines, seconds, memory = done.stdout.split()
    rate = int(lines) / float(seconds)
    speed = f"{rate:,.0f} lines/s, {float(memory):.0f} MB"
    return f"| {name}, verl, definitions only, one process | {int(lines):,} lines | {float(seconds):.2f} s | {speed} |"


def main() -> None:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pins", default=",".join(PINS), help="verl is always needed")
    options = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with tempfile.TemporaryDirectory() as folder:
        workspace, names = place(Path(folder), options.pins.split(","))
        report, processor, memory = cold(workspace, names, options.jobs)
        unchanged = median(lambda: build(workspace, names, jobs=options.jobs), options.repeat)
        changed = median(lambda: change(workspace, names, options.jobs), options.repeat)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", FIND, folder]
        find = median(lambda: subprocess.run(command, env=environment, check=True, capture_output=True), options.repeat)
        bare = median(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), options.repeat)
        with Index.open(workspace) as index:
            pin, path, lines = longest(index)
            stats = index.stats()
        resolving = median(lambda: resolve(workspace, pin, path), options.repeat)
        size = workspace.index.stat().st_size / 1e6
        peer = griffe(workspace.tree("verl"))
        machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.jobs} processes"
        print(f"{machine}, load {load:.1f} at the start\n")
        rows = [
            ("measure", "of", "result", "target"),
            ("---", "---", "---", "---"),
            ("cold", f"{report.lines:,} lines, {report.files:,} files", f"{report.seconds:.1f} s", "60 s"),
            ("cold, processor time", f"{report.definitions:,} definitions", f"{processor:.1f} s", ""),
            ("cold, peak memory of all processes", "", f"{memory:.0f} MB", "1,500 MB"),
            ("nothing changed", "", f"{unchanged:.2f} s", "1.5 s"),
            ("one file changed", "", f"{changed:.2f} s", "1 s"),
            ("find, whole process", f"Python alone {bare * 1e3:.0f} ms", f"{find * 1e3:.0f} ms", "150 ms"),
            ("resolve a file, anew", f"{pin}/{path}, {lines:,} lines", f"{resolving * 1e3:.0f} ms", "300 ms"),
            ("index on disk", "", f"{size:.0f} MB", "400 MB"),
            ("lines a second, with names", f"{', '.join(names)}", f"{report.lines / report.seconds:,.0f}", ""),
        ]
        for row in rows:
            print("| " + " | ".join(row) + " |")
        if peer:
            print(peer)
        for name, of in stats.items():
            broken = f"{of['broken']} files with syntax errors"
            print(f"| {name} | {of['lines']:,} lines | {of['definitions']:,} definitions | {broken} |")


if __name__ == "__main__":
    main()
