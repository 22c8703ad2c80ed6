"""Packs what a GPU machine without network needs to run the contracts: `make bundle`.

In the tarball lie the code and the tests, the files of the pins that contracts run or rest on, the wheels that such a
machine lacks (`wheels.txt`), and `run.sh`, which does the rest there. Whole files only, each of the pins' bytes: the
manifest of a pin travels along, and what is imported is compared with it as ever.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from annotator import catalog
from annotator.errors import AnnotatorError, WorkspaceError
from annotator.pins import Pin, read_lock, trees
from annotator.workspace import Workspace

HERE = Path(__file__).parent
CODE = ("annotator", "minimal", "tests", "pyproject.toml", "vendored_refs/pins.toml")
LIMIT = 60_000_000
NAME = "annotated-rl-stack"


def build(workspace: Workspace, output: Path, *, python: str, wheels: Path | None = None) -> Path:
    """Write the tarball; ``wheels`` is a folder that already holds them.

    Raises:
        AnnotatorError: a pin is not fetched, a wheel cannot be had, or the tarball is too large.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, NAME)
        copy(workspace.root, root, tracked(workspace.root, CODE))
        copy(HERE, root, ["run.sh", "standins/ray.py"])
        for pin in read_lock(workspace.lock).values():
            if not pin.optional and pin.run != "none":
                carry(workspace, pin, root)
        if wheels:
            shutil.copytree(wheels, root / "wheels")
        else:
            download(workspace.root / "requirements" / "lock.txt", python, root / "wheels")
        output.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(output, "w:xz", preset=2) as archive:
            archive.add(root, NAME, filter=anonymous)
    if output.stat().st_size > LIMIT:
        found = f"{output.stat().st_size / 1e6:.1f} MB"
        raise WorkspaceError(str(output), expected=f"at most {LIMIT / 1e6:.0f} MB", found=found)
    return output


def tracked(root: Path, paths: Iterable[str]) -> list[str]:
    """The files of the checkout below some paths that git knows."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", *paths]
    return [
        name for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0") if name
    ]


def copy(source: Path, target: Path, names: Iterable[str]) -> None:
    """Copy files, their paths kept; one that git knows and that was deleted is left out."""
    for name in names:
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target / name)


def carry(workspace: Workspace, pin: Pin, root: Path) -> None:
    """Copy a pin's files to where a tree lies, with its manifest beside it.

    What is imported from its tree comes whole. What runs as installed must be installed there, in that version; of its
    tree only the files go along on which contracts rest, so that the digests of a proof can be made.
    """
    manifest, place = trees.manifest(workspace, pin), root / "vendored_refs" / pin.name
    names = manifest if pin.run == "tree" else set(rests_on(pin.name)) & set(manifest)
    copy(trees.locate(workspace, pin), place, names)
    trees.write_manifest(trees.manifest_beside(place), manifest)


def rests_on(pin: str) -> Iterator[str]:
    """The files that symbols of contracts may lie in, and the packages on the way to them."""
    for contract in map(catalog.contract, catalog.names()):
        for symbol in (symbol for item in contract.implementations for symbol in item.symbols):
            name, _, dotted = symbol.partition(":")
            parts = dotted.split(".") if name == pin else []
            for count in range(1, len(parts) + 1):
                stem = "/".join(parts[:count])
                yield from (f"{stem}.py", f"{stem}/__init__.py")


def wanted() -> dict[str, str]:
    """The names of `wheels.txt`, each with pip's verb: to download, or, where it says "built here", to make it."""
    lines = (HERE / "wheels.txt").read_text("utf-8").splitlines()
    parts = [line.partition("#") for line in lines if line.partition("#")[0].strip()]
    return {name.strip(): "wheel" if "built here" in note else "download" for name, _, note in parts}


def download(lock: Path, python: str, folder: Path) -> None:
    """Bring the wheels here for another interpreter. What is built here is pure Python, and so fits it too.

    Raises:
        WorkspaceError: one of them cannot be had.
    """
    pinned = dict(line.split("==", 1) for line in lock.read_text("utf-8").splitlines() if "==" in line)
    by_name = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    glibc = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)] + [
        "manylinux2014_x86_64",
        "manylinux1_x86_64",
    ]
    target = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    target += [f"--platform={tag}" for tag in glibc]
    names = wanted()
    exact = {name: f"{name}=={by_name[name.lower().replace('_', '-')]}" for name in names}
    pip("download", *target, "--dest", str(folder), *(exact[name] for name in names if names[name] == "download"))
    pip("wheel", "--wheel-dir", str(folder), *(exact[name] for name in names if names[name] == "wheel"))


def pip(verb: str, *arguments: str) -> None:
    """Run pip, without dependencies.

    Raises:
        WorkspaceError: it did not do it; its last words say why.
    """
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        found = " ".join((done.stderr.strip().splitlines() or ["nothing said"])[-1].split())
        raise WorkspaceError(f"pip {verb}", expected="the wheels of bundle/wheels.txt", found=found)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the name and the clock of whoever packed it: the same files make the same tarball."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """The command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE.parent / "dist" / f"{NAME}-bundle.tar.xz")
    parser.add_argument("--python", default="3.12", help="version of the interpreter there (%(default)s)")
    parser.add_argument("--wheels", type=Path, help="take the wheels from this folder instead of the registry")
    given = parser.parse_args()
    try:
        made = build(Workspace.find(HERE), given.output, python=given.python, wheels=given.wheels)
    except AnnotatorError as error:
        sys.exit(f"error: {error}")
    print(f"{made} ({made.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
