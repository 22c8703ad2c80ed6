"""What scip-python says that the identifiers of a pin lead to: runs it, and reads the index that it writes.

Apart from the measures because it knows nothing of our index. Of the format only what is read here is described:
documents with their paths, occurrences with their ranges, symbols and roles.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE, VERSION = "@sourcegraph/scip-python", "0.6.6"
DEFINED = 1
"""The bit of an occurrence's roles that says that it defines its symbol."""

MODULE = "/__init__:"
KINDS = ((MODULE, "module"), ("#", "class"), ("().", "function"), (")", "parameter"), (".", "variable"))
PROGRESS = re.compile(rb"^\(\d\d:\d\d:\d\d\)\s+(.*)$")

Place = tuple[str, int]
"""A file and the line on which the name of a definition stands; 0 for the file as a module."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An identifier, and where in other files of its pin it leads. Lines from 1, columns from 0, in characters."""

    path: str
    line: int
    column: int
    name: str
    targets: frozenset[Place]
    symbol: str

    @property
    def kind(self) -> str:
        """What kind of definition the symbol's last descriptor names."""
        return next((kind for end, kind in KINDS if self.symbol.endswith(end)), "other")


def find(given: Path | None, cache_folder: Path) -> Path:
    """The program: the one given, else the one in the cache folder, where it is installed if it is missing."""
    if given is not None:
        return given
    folder = cache_folder / f"scip-python-{VERSION}"
    program = folder / "node_modules" / ".bin" / "scip-python"
    if not program.exists():
        print(f"installing {PACKAGE} {VERSION} into {folder}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"{PACKAGE}@{VERSION}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return program


def index(program: Path, pin: str, tree: Path, kept: Path, *, fresh: bool = False) -> Path:
    """The index of a tree by scip-python; kept beside others by the name of the unpacked tree, which tells its bytes.

    It sees the pin alone, without other packages: only what leads from file to file inside the pin is compared.
    """
    output = kept / f"{tree.resolve().name}-{VERSION}.scip"
    if output.is_file() and not fresh:
        return output
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        project, environment = Path(folder, pin), Path(folder, "environment.json")
        shutil.copytree(tree.resolve(), project, ignore=shutil.ignore_patterns("*.dist-info"))
        environment.write_text("[]")
        command = [str(program), "index", "--project-name", pin, "--project-version", "0"]
        command += ["--environment", str(environment), "--output", str(Path(folder, "index.scip"))]
        tell(subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT), pin)
        shutil.move(Path(folder, "index.scip"), output)
    return output


def tell(process: subprocess.Popen[bytes], pin: str) -> None:
    """Passes on, on a terminal in one line, what a running scip-python says of its progress."""
    shown = sys.stderr.isatty()
    last: list[bytes] = []
    with process:
        for line in process.stdout or ():
            last = [*last[-9:], line]
            if shown and (match := PROGRESS.match(line.rstrip())):
                said = match[1].decode("utf-8", "replace")
                print(f"\r\033[Kscip-python on {pin}: {said[:80]}", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if process.returncode:
        raise SystemExit(f"scip-python failed on {pin}:\n{b''.join(last).decode('utf-8', 'replace')}")


@cache
def message() -> Any:
    """The class of the message that is an index."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="read.proto", syntax="proto3")

    def add(name: str, *fields: tuple[str, int, int, bool, str | None]) -> None:
        made = file.message_type.add(name=name)
        for called, number, kind, repeated, of in fields:
            label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            made.field.add(name=called, number=number, type=kind, label=label, type_name=of)

    number, text, inner = field.TYPE_INT32, field.TYPE_STRING, field.TYPE_MESSAGE
    occurrence = (("range", 1, number, True, None), ("symbol", 2, text, False, None), ("roles", 3, number, False, None))
    add("Occurrence", *occurrence)
    add("Document", ("path", 1, text, False, None), ("occurrences", 2, inner, True, ".Occurrence"))
    add("Index", ("documents", 2, inner, True, ".Document"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Index"))


def read(file: Path) -> Any:
    """The index in a file."""
    found = message()()
    found.ParseFromString(file.read_bytes())
    return found


def references(found: Any, tree: Path) -> Iterator[Reference]:
    """Identifiers whose symbol is defined in other files of the tree, and not in their own."""
    defined: dict[str, set[Place]] = {}
    for document in found.documents:
        for one in document.occurrences:
            if one.roles & DEFINED and not one.symbol.startswith("local "):
                line = 0 if one.symbol.endswith(MODULE) else one.range[0] + 1
                defined.setdefault(one.symbol, set()).add((document.path, line))
    for document in found.documents:
        lines = (tree / document.path).read_text(encoding="utf-8", errors="replace").split("\n")
        for one in document.occurrences:
            targets = defined.get(one.symbol, set())
            if one.roles & DEFINED or not targets or any(path == document.path for path, _ in targets):
                continue
            line, begin, *_, end = one.range
            begin, end = (characters(lines[line], column) for column in (begin, end))
            name = lines[line][begin:end]
            yield Reference(document.path, line + 1, begin, name, frozenset(targets), one.symbol)


def characters(line: str, units: int) -> int:
    """How many characters the first units of UTF-16 are."""
    return units if line.isascii() else len(line.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "replace"))


def digest(file: Path) -> str:
    """A short digest of an index, to say which one was compared with."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]
