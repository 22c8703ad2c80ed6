"""Links and uses: resolution run over whole files, and kept.

A use is found in two steps: postings tell the few files in which the name occurs at all, and only these are resolved.
What a file resolves to is kept beside the index, keyed by the digest of its bytes and the index's generation, because
it depends on other files too. Losing that cache costs time and nothing else. What resolves is imported only where the
cache has no answer.
"""

from __future__ import annotations

import gc
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from annotator.errors import IndexFileError
from annotator.index import store
from annotator.index.model import PARAMETER, Definition, Link, Raw, Use
from annotator.index.store import digest_of

if TYPE_CHECKING:
    from annotator.index.flows import Flows
    from annotator.index.resolution import Program, Source
    from annotator.workspace import Workspace

CACHE = """
CREATE TABLE IF NOT EXISTS links(
  file INTEGER PRIMARY KEY, generation TEXT NOT NULL, digest BLOB NOT NULL, pin TEXT NOT NULL,
  resolved INTEGER NOT NULL, unresolved INTEGER NOT NULL, body BLOB NOT NULL)
"""
HEAD = re.compile(r"""[rbuf]*(?:'[^']*'|"[^"]*")|#.*|\w+|[()\[\]{},*:=]""")
CALLED = re.compile(r"\s*(?:<[^<>;()]*>\s*)?(?:\(|<<<)")
CALLED_CPP = re.compile(r"\s*(?:<(?:[^<>;{}]|<(?:[^<>;{}]|<[^<>;{}]*>)*>)*>\s*)?(?:\(|<<<)")
AROUND = "('class', 'function', 'method', 'struct')"
KEPT = 100
"""Texts of files that are kept; the oldest goes first."""

Row = tuple[int, str, str, str, str]


class Resolver:
    """Links and uses over one opened index."""

    def __init__(self, connection: sqlite3.Connection, workspace: Workspace) -> None:
        self.connection, self.workspace = connection, workspace
        row = connection.execute("SELECT value FROM meta WHERE key='generation'").fetchone()
        self.generation = f"{row[0] if row else ''}-{rules()}"
        self.targets: dict[tuple[int, int], Definition | None] = {}
        self.modules: dict[str, Definition | None] = {}
        self.parameters: dict[tuple[int, int, str], Definition | None] = {}
        self.texts: dict[tuple[str, str], list[str]] = {}

    @cached_property
    def program(self) -> Program:
        """All Python files as one program."""
        from annotator.index.bodies import PinnedBodies
        from annotator.index.resolution import Program

        program = Program(self.connection)
        program.bodies = PinnedBodies(program, self.read)
        return program

    @cached_property
    def flows(self) -> Flows:
        """What the expressions of the files may stand for, for the call graph."""
        from annotator.index.flows import Flows

        return Flows(self)

    @cached_property
    def cache(self) -> sqlite3.Connection:
        """The cache of resolved files; begun anew where it is damaged, in memory where it cannot be written."""
        where = self.workspace.index.with_name("links.sqlite")
        for attempt in (where, where, ":memory:"):
            connection = sqlite3.connect(attempt, isolation_level=None, timeout=2, check_same_thread=False)
            try:
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute(CACHE)
                connection.execute("DELETE FROM links WHERE generation != ?", (self.generation,))
                return connection
            except sqlite3.OperationalError:
                connection.close()
            except sqlite3.DatabaseError:
                connection.close()
                self.forget()
        raise AssertionError("a database in memory can always be opened")

    def forget(self) -> None:
        """Removes a cache that is damaged."""
        self.close()
        self.__dict__.pop("cache", None)
        where = self.workspace.index.with_name("links.sqlite")
        for path in (where, where.with_name(f"{where.name}-journal")):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def kept(self, number: int, digest: bytes) -> list[Raw] | None:
        """Links of a file that the cache has."""
        query = "SELECT body FROM links WHERE file=? AND generation=? AND digest=?"
        try:
            row = self.cache.execute(query, (number, self.generation, digest)).fetchone()
            return [Raw(*link) for link in json.loads(zlib.decompress(row[0]))] if row else None
        except sqlite3.OperationalError:  # another process writes it
            return None
        except (sqlite3.DatabaseError, zlib.error, TypeError, ValueError):
            self.forget()
            return None

    @cached_property
    def cpp_files(self) -> dict[int, tuple[str, str]]:
        """Pin and path of the C++ files by their numbers."""
        from annotator.index.linking_cpp import cpp_files

        return cpp_files(self.connection)

    def close(self) -> None:
        """Closes the cache."""
        if "cache" in self.__dict__:
            self.cache.close()

    def exported(self, pin: str, dotted: str) -> Definition | None:
        """The definition that ``dotted`` leads to by imports and inheritance, if it stays inside the pins."""
        parts = dotted.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:cut])
            if not self.program.exists(pin, module):
                continue
            value = self.program.module(module, pin)
            for name in parts[cut:]:
                value = self.program.attribute(value, name)
            if value.kind in ("entry", "instance") and value.file is not None and value.entry is not None:
                return value.file.definition(value.entry)
            return self.module_definition(f"{value.pin}:{value.name}") if value.kind == "module" else None
        return None

    def file(self, pin: str, path: str) -> Row:
        """Number and facts of a file.

        Raises:
            IndexFileError: the index has no such file.
        """
        query = "SELECT id, pin, path, module, language FROM files WHERE pin=? AND path=?"
        row: Row | None = self.connection.execute(query, (pin, path)).fetchone()
        if row is None:
            raise IndexFileError(f"{pin}/{path}", expected="a file of the index", found="none", remedy=store.REMEDY)
        return row

    def read(self, pin: str, path: str) -> bytes:
        """The bytes of a pin's file.

        Raises:
            IndexFileError: it cannot be read.
        """
        where: Path = self.workspace.tree(pin) / path
        try:
            return where.read_bytes()
        except OSError as error:
            found = str(error.strerror or error)
            raise IndexFileError(
                str(where), expected="the file that was indexed", found=found, remedy=store.REMEDY
            ) from error

    def raw_links(self, row: Row, data: bytes) -> list[Raw]:
        """Links of a file as they are kept."""
        number, digest = row[0], digest_of(data)
        kept = self.kept(number, digest)
        if kept is not None:
            return kept
        from annotator.index import linking_cpp
        from annotator.index.linking import Linker

        if row[4] == "python":
            links = Linker(self.program, self.program.source(number), data).links()
        else:
            links = linking_cpp.links(self.connection, number, row[1], data, self.cpp_files)
        unresolved = sum(link.certainty == "unresolved" for link in links)
        body = zlib.compress(json.dumps(links, separators=(",", ":")).encode(), 1)
        values = (number, self.generation, digest, row[1], len(links) - unresolved, unresolved, body)
        with suppress(sqlite3.DatabaseError):  # another process writes it, or the disk is full: do without
            self.cache.execute("INSERT OR REPLACE INTO links VALUES(?,?,?,?,?,?,?)", values)
        return links

    def links(self, pin: str, path: str) -> list[Link]:
        """See ``Index.links``."""
        row = self.file(pin, path)
        return [self.link(one) for one in self.raw_links(row, self.read(pin, path))]

    def link(self, one: Raw) -> Link:
        """A link with its target."""
        target, external = None, one.external or None
        if one.ordinal == -2:
            target = self.module_definition(one.external)
            external = None if target else one.external.partition(":")[2]
        elif one.ordinal >= 0:
            target = self.target(one.file, one.ordinal)
        elif one.ordinal <= PARAMETER:
            target = self.parameter(one.file, PARAMETER - one.ordinal, one.name)
            if target is None:
                return Link(one.line, one.column, one.end_column, one.name, None, None, "exact", "keyword")
        return Link(one.line, one.column, one.end_column, one.name, target, external, one.certainty, one.reason)

    def parameter(self, file: int, ordinal: int, name: str) -> Definition | None:
        """A parameter of the function with that file number and ordinal, if it has one of that name."""
        key = (file, ordinal, name)
        if key not in self.parameters:
            function = self.target(file, ordinal)
            self.parameters[key] = function and self.parameter_of(function, name)
        return self.parameters[key]

    def parameter_of(self, function: Definition, name: str) -> Definition | None:
        """A parameter of a function, found in the text of its head."""
        from annotator.index.languages import decode

        key = (function.pin, function.path)
        if key not in self.texts:
            if len(self.texts) >= KEPT:
                self.texts.pop(next(iter(self.texts)))
            self.texts[key] = decode(self.read(*key)).split("\n")
        depth, before = 0, ""
        for number, text in enumerate(self.texts[key][function.line - 1 : function.end_line], function.line):
            for match in HEAD.finditer(text, function.column + len(function.name) if number == function.line else 0):
                if match[0] == name and depth == 1 and before in ("(", ",", "*"):
                    return replace(
                        function, qualname=f"{function.qualname}.{name}", name=name, kind="parameter", line=number,
                        column=match.start(), end_line=number, signature=text.strip(), doc="", decorators=(),
                    )  # fmt: skip
                depth += (match[0] in ("(", "[", "{")) - (match[0] in (")", "]", "}"))
                before = match[0] if depth < 2 and match[0][0] != "#" else before
                if depth == 0 and match[0] == ")":
                    return None
        return None

    def target(self, file: int, ordinal: int) -> Definition | None:
        """The definition of a file number and ordinal."""
        key = (file, ordinal)
        if key not in self.targets and (loaded := self.loaded(file)) and (entry := loaded.at(ordinal)):
            self.targets[key] = loaded.definition(entry)
        if key not in self.targets:
            from annotator.index.lookup import SELECT, definition_of

            row = self.connection.execute(SELECT + "WHERE d.file=? AND d.ordinal=?", key).fetchone()
            self.targets[key] = definition_of(row) if row else None
        return self.targets[key]

    def loaded(self, file: int) -> Source | None:
        """A file whose definitions were loaded to resolve something."""
        return self.program.sources.get(file) if "program" in self.__dict__ else None

    def module_definition(self, symbol: str) -> Definition | None:
        """The definition of a module; a package without ``__init__`` has none."""
        if symbol not in self.modules:
            pin, _, module = symbol.partition(":")
            files = self.program.files_of(pin, module)
            self.modules[symbol] = files[0].definition(files[0].entries[""][0]) if files else None
        return self.modules[symbol]

    def posted(self, name: str) -> set[int]:
        """Numbers of the files in which a name occurs; a literal's name begins with a quote."""
        return store.posted(self.connection, name)

    def files_with(self, name: str, others: tuple[str, ...]) -> list[tuple[str, str]]:
        """Pin and path of the Python files in which a name occurs, and at least one of some others."""
        numbers = self.posted(name) & set().union(*(self.posted(other) for other in others))
        statement = "SELECT pin, path FROM files WHERE id=? AND language='python'"
        rows = (self.connection.execute(statement, (number,)).fetchone() for number in sorted(numbers))
        return [row for row in rows if row]

    def candidates(self, definition: Definition) -> list[Row]:
        """Files in which the name occurs: the definition's own first, then its folder, its pin, its language."""
        numbers = self.posted(definition.name)
        if definition.language == "python":
            numbers |= self.posted(f'"{definition.name}') & (self.posted("getattr") | self.posted("hasattr"))
        folder = definition.path.rpartition("/")[0]
        rows: list[Row] = []
        ordered = sorted(numbers)
        for start in range(0, len(ordered), 500):
            part = ordered[start : start + 500]
            query = f"SELECT id, pin, path, module, language FROM files WHERE id IN ({','.join('?' * len(part))})"
            rows += self.connection.execute(query, part).fetchall()

        def distance(row: Row) -> tuple[bool, bool, bool, bool, str, str]:
            _, pin, path, _, language = row
            own, same = (pin, path) == (definition.pin, definition.path), pin == definition.pin
            aside = "/tests/" in f"/{path}" or "/testing/" in path
            return not own, language != definition.language, not same, aside or not path.startswith(folder), pin, path

        return sorted(rows, key=distance)

    def same(self, definition: Definition) -> tuple[set[tuple[int, int]], str]:
        """Keys of all definitions of the symbol (overloads, branches, stub and source), and its key as a module."""
        from annotator.index.lookup import COLUMNS, SOURCE

        query = f"SELECT d.file, d.ordinal, {COLUMNS} {SOURCE} WHERE d.name=? AND f.pin=?"
        rows = self.connection.execute(query, (definition.name, definition.pin))
        keys = {(row[0], row[1]) for row in rows if row[4] == definition.module and row[5] == definition.qualname}
        return keys, f"{definition.pin}:{definition.module}" if definition.kind == "module" else ""

    def uses(self, definition: Definition, limit: int | None = None) -> list[Use]:
        """See ``Index.uses``."""
        found: list[Use] = []
        for use in self.each_use(definition):
            found.append(use)
            if limit is not None and len(found) >= limit:
                break
        return found

    def each_use(self, definition: Definition) -> Iterator[Use]:
        """Uses, file by file."""
        keys, module = self.same(definition)
        for row in self.candidates(definition):
            _, pin, path, _, _ = row
            try:
                data = self.read(pin, path)
            except IndexFileError:
                continue
            hits = [
                link
                for link in self.raw_links(row, data)
                if ((link.file, link.ordinal) in keys or (link.ordinal == -2 and link.external == module))
                and not self.is_definition(link, row[0])
            ]
            if hits:
                yield from self.described(row, data, hits)

    def is_definition(self, link: Raw, file: int) -> bool:
        """Whether a link is the name of its own target where that is defined."""
        if link.file != file:
            return False
        target = self.target(link.file, link.ordinal)
        return target is not None and (target.line, target.column) == (link.line, link.column)

    def described(self, row: Row, data: bytes, hits: list[Raw]) -> Iterator[Use]:
        """Uses with their line's text and the definition around."""
        from annotator.index.languages import decode

        number, pin, path, module, _ = row
        lines = decode(data).split("\n")
        query = f"SELECT qualname, line, end_line FROM definitions WHERE file=? AND kind IN {AROUND} ORDER BY ordinal"
        spans = self.connection.execute(query, (number,)).fetchall()
        for link in hits:
            around = [qualname for qualname, first, last in spans if first <= link.line <= last]
            within = f"{pin}:{'.'.join(filter(None, (module, around[-1] if around else '')))}"
            text = lines[link.line - 1].strip() if link.line <= len(lines) else ""
            called = is_called(lines, link, row[4])
            yield Use(pin, path, link.line, link.column, text, within, link.certainty, called)

    def tally(self) -> dict[str, tuple[int, int, int]]:
        """Per pin: files resolved so far, identifiers that resolve, identifiers that do not."""
        query = "SELECT pin, count(*), sum(resolved), sum(unresolved) FROM links WHERE generation=? GROUP BY pin"
        try:
            rows = self.cache.execute(query, (self.generation,)).fetchall()
        except sqlite3.DatabaseError:
            self.forget()
            return {}
        return {pin: (files, good, bad) for pin, files, good, bad in rows}


@contextmanager
def without_cycles() -> Iterator[None]:
    """Looks for no cycles meanwhile: trees and tables have many objects and few cycles, and the search takes long."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@cache
def rules() -> str:
    """A digest of what resolves: what other rules found is not taken for what these would find."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return digest_of(b"".join(file.read_bytes() for file in files)).hex()[:8]


def is_called(lines: list[str], link: Raw | Link, language: str = "python") -> bool:
    """Whether what stands behind an identifier calls it: an argument list, in C++ template arguments before it.

    A C++ call may go on in the next lines, and a kernel's launch mostly does; in Python these are other statements.
    """
    if link.line > len(lines):
        return False
    if language == "python":
        return CALLED.match(lines[link.line - 1], link.end_column) is not None
    rest = [lines[link.line - 1][link.end_column :], *lines[link.line : link.line + 6]]
    return CALLED_CPP.match(" ".join(line.rstrip("\\ ") for line in rest)) is not None
