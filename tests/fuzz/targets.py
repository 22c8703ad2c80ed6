"""What the index promises of any input. A target takes bytes, and raises where a promise is broken."""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from annotator.errors import AnnotatorError, SymbolNotFound
from annotator.index import Index, build, linking_cpp, store
from annotator.index.blanking import blank, blank_more
from annotator.index.extraction import Extract, Row, extract, names, sentence, signature
from annotator.index.languages import decode, module_of, normal
from annotator.index.linking import Linker
from annotator.index.linking_cpp import base_names, parameters
from annotator.index.model import Link, Raw
from annotator.index.registering import split_name
from annotator.index.resolution import Program
from annotator.index.scopes_cpp import bare, unargued
from annotator.workspace import Workspace
from tests.index.trees import workspace, write

CERTAINTIES = {"exact", "inferred", "unresolved"}


def text(data: bytes) -> None:
    """Any bytes are text, and its UTF-8 says the same."""
    read = decode(data)
    assert normal(data).decode("utf-8") == read.encode("utf-8", "replace").decode("utf-8")


def extracted(data: bytes, language: str) -> Extract:
    """What is taken from a file is inside it, names stand where they are said to, and the same comes out twice."""
    found = extract(data, language)
    assert found == extract(data, language)
    lines = normal(data).decode("utf-8").split("\n")
    for row in found.rows:
        assert 1 <= row.line <= row.end_line <= len(lines) + 1, row
        assert row.qualname.endswith(row.name), row
        if row.name.isidentifier():
            assert lines[row.line - 1][row.column :].startswith(row.name), (row, lines[row.line - 1])
    assert all(1 <= one.line <= len(lines) for one in found.imports)
    assert not any(b" " in name for name in found.names)
    if language == "python":
        nested(found.rows)
    return found


def nested(rows: list[Row]) -> None:
    """What is defined inside of something has its qualified name before its own."""
    for row in rows:
        outer = row.qualname.removesuffix(row.name).removesuffix(".")
        assert not outer or any(
            one.qualname == outer and one.line <= row.line and row.end_line <= one.end_line for one in rows
        ), row


def blanked(data: bytes) -> None:
    """What is hidden from the parser leaves every line and every offset where it was."""
    source = normal(data)
    for seen in (blank(source), blank_more(source)):
        assert len(seen) == len(source)
        assert [len(line) for line in seen.split(b"\n")] == [len(line) for line in source.split(b"\n")]


def glued(data: bytes) -> None:
    """Small functions that read pieces of source take any piece."""
    source, written = normal(data), decode(data)
    assert len(sentence(source)) <= 240
    assert len(signature(source)) <= 600
    words, literals = names(source, [])
    assert not literals
    assert all(word in source for word in words)
    assert "<" not in unargued(written) or ">" not in unargued(written) or "<" not in base_names(written)
    for arrow in (False, True):
        assert not set(bare(written, arrow)) & set(" <>&*")
    for one in base_names(written):
        assert one == one.strip()
    parameters.__wrapped__(written, written[:3])
    split_name(written)


def linked(data: bytes, language: str) -> None:
    """Links of a file that is alone in its pin: in order, apart, and each over the name that it says."""
    path = f"pkg/file.{'py' if language == 'python' else 'cpp'}"
    connection = alone(extracted(data, language), data, path, language)
    try:
        if language == "python":
            program = Program(connection)
            found = Linker(program, program.source(1), data).links()
        else:
            found = linking_cpp.links(connection, 1, "pin", data)
    finally:
        connection.close()
    check(found, normal(data).decode("utf-8").split("\n"))


def check(found: list[Raw], lines: list[str]) -> None:
    """The promises about links."""
    end = (0, 0)
    for link in found:
        assert link.certainty in CERTAINTIES, link
        assert (link.line, link.column) >= end, (link, end)
        assert lines[link.line - 1][link.column : link.end_column] == link.name, (link, lines[link.line - 1])
        assert link.certainty == "exact" or link.reason, link
        end = (link.line, link.end_column)


def alone(found: Extract, data: bytes, path: str, language: str) -> sqlite3.Connection:
    """A store in memory that holds one file."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(store.TABLES)
    module = module_of(path)
    facts = (b"", len(data), 0, language, module, found.lines, found.identifiers, int(found.broken))
    head = (1, 0, "file", "", "module", 1, 0, max(found.lines, 1), "module", "", "", "")
    rows = [(1, number, *row) for number, row in enumerate(found.rows, 1)]
    imports = [(1, number, *one) for number, one in enumerate(found.imports)]
    operators = [(1, number, *one) for number, one in enumerate(found.operators)]
    store.add(connection, [(1, "pin", path, *facts)], [head, *rows] if module else rows, imports, operators)
    return connection


FEW: dict[str, str | bytes] = {
    "p/__init__.py": "from .a import *\nfrom .b import B as C\n",
    "p/a.py": "def one(x): return two(x)\ndef two(y): pass\nclass A:\n    z: int = 1\n    def m(self): return self.z\n",
    "p/b.py": "from p.a import one, A\nclass B(A):\n    def m(self): return one(super().m())\n",
    "p/c.h": "namespace n { struct S { int f(int x); }; }\n",
    "p/c.cpp": "int n::S::f(int x) { return x; }\n",
}


@cache
def made() -> tuple[Workspace, bytes]:
    """A small workspace that is built once, and the bytes of its index."""
    folder = tempfile.TemporaryDirectory()
    found = workspace(Path(folder.name), p=FEW)
    made.folder = folder  # type: ignore[attr-defined] # which lives as long as the process
    build(found, ["p"], jobs=1)
    return found, found.index.read_bytes()


@cache
def opened() -> Index:
    """The index of the small workspace."""
    return Index.open(made()[0])


def asked(data: bytes) -> None:
    """Any question has an answer, and every answer is itself found by its symbol."""
    index, question = opened(), decode(data)[:200]
    for one in index.find(question):
        assert index.definition(one.symbol).symbol == one.symbol
    with suppress(SymbolNotFound):
        index.definition(question)
    assert all(index.find(near) for near in index.near("", question))


def answers(index: Index) -> list[object]:
    """What an index says of the small workspace."""
    found: list[object] = [index.links("p", path) for path in sorted(FEW)]
    found += [index.uses(index.definition(symbol)) for symbol in ("p:p.a.one", "p:p.a.A.m", "p:n::S::f")]
    return [*found, index.find("f"), index.pins()]


def damaged(data: bytes) -> None:
    """A damaged store has answers or an error in our words that says what to do; without a page, no false answers.

    Where single bytes of a text are others, nobody can tell: SQLite keeps no checksums.
    """
    around, sound = made()
    place = Workspace(around.root, around.cache, around.state / "damaged")
    place.state.mkdir(exist_ok=True)
    if not (place.state / "p").exists():
        (place.state / "p").symlink_to(around.tree("p"))
    chance, odd = random.Random(data), bytearray(sound)
    how = chance.choice(("cut", "page", "bytes"))
    if how == "cut":
        del odd[chance.randrange(1, len(odd)) :]
    elif how == "page":
        at = chance.randrange(len(odd) // 8192) * 8192
        odd[at : at + 8192] = bytes(8192)
    for _ in range(chance.choice([1, 5, 200]) if how == "bytes" else 0):
        odd[chance.randrange(len(odd))] = chance.choice(data or b"\0")
    place.index.write_bytes(bytes(odd))
    place.index.with_name("links.sqlite").unlink(missing_ok=True)
    told, found = "", None
    try:
        with Index.open(place) as index:
            found = answers(index)
            index.stats()
    except SymbolNotFound:
        assert how == "bytes"
    except AnnotatorError as error:
        told = error.remedy
    assert not told or "annotator index" in told
    assert told or how == "bytes" or found == answers(opened())


PLACES = ["p/__init__.py", "p/a.py", "p/b.py", "p/c.pyi", "p/q/__init__.py", "p/q/d.py", "p/e.h", "p/e.cu", "f.cpp"]


def arranged(data: bytes, chance: random.Random) -> dict[str, str | bytes]:
    """Files made of the pieces of an input, with imports between them."""
    lines = data.splitlines(keepends=True)
    cuts = sorted(chance.randrange(len(lines) + 1) for _ in range(4))
    parts = [b"".join(lines[a:b]) for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    ties = [b"", b"from p.a import *\n", b"from . import b, q\n", b"from .q.d import a as x\n", b"import p.q.d\n"]
    return {
        path: (chance.choice(ties) if path.endswith(("py", "pyi")) else b"") + part
        for path, part in zip(chance.sample(PLACES, len(parts)), parts, strict=True)
    }


def whole(data: bytes) -> None:
    """Builds that follow each other end where a build of the last tree alone does; all that they say holds."""
    chance = random.Random(data)
    with tempfile.TemporaryDirectory() as folder:
        first, second = arranged(data, chance), arranged(data, chance)
        one = workspace(Path(folder) / "one", p=first)
        build(one, ["p"], jobs=1)
        for path in sorted(first.keys() - second.keys() if chance.random() < 0.8 else ()):
            (one.tree("p") / path).unlink()
        write(one.tree("p"), second)
        build(one, ["p"], jobs=1)
        there = sorted(str(path.relative_to(one.tree("p"))) for path in one.tree("p").rglob("*.*"))
        other = workspace(Path(folder) / "two", p={path: (one.tree("p") / path).read_bytes() for path in there})
        build(other, ["p"], jobs=1)
        assert said(one, there) == said(other, there)


def said(place: Workspace, paths: list[str]) -> list[object]:
    """What an index says of each of its files; each link is over its name, each definition is found."""
    found: list[object] = []
    with Index.open(place) as index:
        assert index.paths("p") == paths
        for path in paths:
            lines = decode((place.tree("p") / path).read_bytes()).split("\n")
            links = index.links("p", path)
            for link in links:
                assert lines[link.line - 1][link.column : link.end_column] == link.name, link
                assert link.target is None or inside(link, index), link
            found.append((path, index.definitions("p", path), links))
            for one in index.definitions("p", path)[:6]:
                found.append(index.uses(one, limit=20))
    return found


def inside(link: Link, index: Index) -> bool:
    """Whether the target of a link is a definition of the index, or a parameter of one."""
    target = link.target
    return target is not None and (target.kind == "parameter" or target in index.definitions(target.pin, target.path))


TARGETS: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "text": ("python", text),
    "glue": ("cpp", glued),
    "blank": ("cpp", blanked),
    "ask": ("python", asked),
    "extract-python": ("python", lambda data: extracted(data, "python")),
    "extract-cpp": ("cpp", lambda data: extracted(data, "cpp")),
    "links-python": ("python", lambda data: linked(data, "python")),
    "links-cpp": ("cpp", lambda data: linked(data, "cpp")),
    "damage": ("python", damaged),
    "whole": ("python", whole),
    "whole-cpp": ("cpp", whole),
}
"""Name → the language that its inputs are made of, and the function."""

SLOWER = {"ask": 5, "links-python": 5, "links-cpp": 5, "damage": 20, "whole": 200, "whole-cpp": 200}
"""Of how many inputs a slow target gets one."""
