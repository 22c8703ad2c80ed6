"""What people use for the same, timed: scip-python, jedi, griffe and Universal Ctags, each a process of its own.

Apart from the measure of ours because it knows nothing of it. A peer that is not installed has no row,
and the table says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import scip

GRIFFE = """
import sys, griffe
for name in sys.argv[2:]:
    griffe.load(name, search_paths=[sys.argv[1]], allow_inspection=False, submodules=True)
"""
JEDI = """
import sys, jedi
project = jedi.Project(sys.argv[1])
for path in sys.argv[2:]:
    script = jedi.Script(path=path, project=project)
    for name in script.get_names(all_scopes=True, references=True):
        try:
            name.goto(follow_imports=True)
        except Exception:
            pass
"""
JEDI_FILES = 3
"""How many files jedi resolves of a pin, spread evenly over it: all would take hours."""

SOURCES = {"python": (".py", ".pyi"), "all": (".py", ".pyi", ".h", ".hpp", ".cpp", ".cc", ".c", ".cu", ".cuh", ".inl")}


@dataclass(frozen=True)
class Timed:
    """A process that has ended: what it took, and the largest memory of its largest process."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Row:
    """One tool on one pin. ``does`` says what it knows afterwards."""

    tool: str
    does: str
    pin: str
    lines: int
    timed: Timed

    @property
    def rate(self) -> float:
        """Lines a second."""
        return self.lines / self.timed.seconds


def run(command: Sequence[str], folder: Path | None = None) -> Timed:
    """Runs a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return Timed(seconds, usage.ru_maxrss / 1024)


def files(tree: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Source files of a tree, in the order of their names."""
    return sorted(path for path in tree.resolve().rglob("*") if path.suffix in suffixes and path.is_file())


def lines(paths: Sequence[Path]) -> int:
    """Lines of files together."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def ctags(pin: str, tree: Path) -> Row | None:
    """Universal Ctags over all languages of ours."""
    program = shutil.which("ctags")
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout if program else ""
    if not said.startswith("Universal Ctags"):
        return None
    name = "Universal Ctags " + said.split()[2].rstrip(",")
    with tempfile.NamedTemporaryFile("w") as listed, tempfile.NamedTemporaryFile() as tags:
        paths = files(tree, SOURCES["all"])
        listed.write("\n".join(map(str, paths)))
        listed.flush()
        mapped = "--map-C++=+.cu.cuh.inl"
        timed = run([str(program), "--languages=Python,C,C++", mapped, "-f", tags.name, "-L", listed.name])
    return Row(name, "definitions", pin, lines(paths), timed)


def installed(*distributions: str) -> str:
    """The version of the first distribution that is installed; empty if none is."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def griffe(pin: str, tree: Path) -> Row | None:
    """griffe, without importing what it reads."""
    found = installed("griffe", "griffelib")
    if not found:
        return None
    packages = sorted(path.name for path in tree.resolve().iterdir() if (path / "__init__.py").is_file())
    timed = run([sys.executable, "-c", GRIFFE, str(tree.resolve()), *packages])
    read = [path for name in packages for path in files(tree / name, SOURCES["python"])]
    return Row(f"griffe {found}", "definitions of Python", pin, lines(read), timed)


def jedi(pin: str, tree: Path) -> Row | None:
    """jedi: where each name of a few files leads."""
    found = installed("jedi")
    if not found:
        return None
    paths = files(tree, (".py",))
    chosen = paths[len(paths) // (2 * JEDI_FILES) :: max(1, len(paths) // JEDI_FILES)][:JEDI_FILES]
    timed = run([sys.executable, "-c", JEDI, str(tree.resolve()), *map(str, chosen)])
    return Row(f"jedi {found}", f"where names lead, in {len(chosen)} files", pin, lines(chosen), timed)


def scip_python(pin: str, tree: Path, program: Path) -> Row:
    """scip-python: definitions, and where each name leads."""
    with tempfile.TemporaryDirectory() as folder:
        project, environment = Path(folder, pin), Path(folder, "environment.json")
        shutil.copytree(tree.resolve(), project, ignore=shutil.ignore_patterns("*.dist-info"))
        environment.write_text("[]")
        command = [str(program), "index", "--project-name", pin, "--project-version", "0"]
        command += ["--environment", str(environment), "--output", str(Path(folder, "index.scip"))]
        timed = run(command, project)
        read = lines(files(project, SOURCES["python"]))
    return Row(f"scip-python {scip.VERSION}", "definitions, and where names lead", pin, read, timed)
