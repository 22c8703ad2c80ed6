"""The SQLite file: its schema, and every statement that writes to it.

One file holds all pins. Rows hang on a file's number, which a changed file gets anew, so postings are only ever added
to; those of numbers that no longer exist are passed over when read, and dropped by the next cold build.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from annotator.errors import IndexFileError
from annotator.index.languages import module_of

Rows = Iterable[tuple[Any, ...]]
SCHEMA_VERSION = "8"

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files(
  id INTEGER PRIMARY KEY, pin TEXT NOT NULL, path TEXT NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL,
  mtime INTEGER NOT NULL, language TEXT NOT NULL, module TEXT NOT NULL, lines INTEGER NOT NULL,
  identifiers INTEGER NOT NULL, broken INTEGER NOT NULL);
CREATE TABLE definitions(
  file INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, qualname TEXT NOT NULL, kind TEXT NOT NULL,
  line INTEGER NOT NULL, column INTEGER NOT NULL, end_line INTEGER NOT NULL, signature TEXT NOT NULL, doc TEXT NOT NULL,
  decorators TEXT NOT NULL, hint TEXT NOT NULL, PRIMARY KEY(file, ordinal)) WITHOUT ROWID;
CREATE TABLE imports(
  file INTEGER NOT NULL, ordinal INTEGER NOT NULL, name TEXT NOT NULL, module TEXT NOT NULL, member TEXT NOT NULL,
  level INTEGER NOT NULL, scope TEXT NOT NULL, line INTEGER NOT NULL, conditional INTEGER NOT NULL,
  PRIMARY KEY(file, ordinal)) WITHOUT ROWID;
CREATE TABLE operators(
  file INTEGER NOT NULL, ordinal INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, overload TEXT NOT NULL,
  role TEXT NOT NULL, key TEXT NOT NULL, line INTEGER NOT NULL, column INTEGER NOT NULL, schema TEXT NOT NULL,
  target TEXT NOT NULL, scope TEXT NOT NULL, library TEXT NOT NULL, condition TEXT NOT NULL,
  PRIMARY KEY(file, ordinal)) WITHOUT ROWID;
CREATE TABLE postings(
  name TEXT NOT NULL, segment INTEGER NOT NULL, files BLOB NOT NULL, PRIMARY KEY(name, segment)) WITHOUT ROWID;
"""
INDEXES = """
CREATE UNIQUE INDEX IF NOT EXISTS files_by_path ON files(pin, path);
CREATE INDEX IF NOT EXISTS files_by_module ON files(module, pin);
CREATE INDEX IF NOT EXISTS definitions_by_name ON definitions(name, qualname);
CREATE INDEX IF NOT EXISTS operators_by_name ON operators(name);
"""
BROKEN = (sqlite3.DatabaseError, UnicodeDecodeError, struct.error)
"""What reading a damaged file raises."""
REMEDY = "run `annotator index`"


def digest_of(data: bytes) -> bytes:
    """The digest by which content is known."""
    return hashlib.sha256(data).digest()[:16]


def stamp_of(status: os.stat_result) -> int:
    """What is another whenever a file changed: the modification time alone is no proof, because anyone can set it."""
    return (status.st_mtime_ns + status.st_ctime_ns) % (1 << 63)


def create(path: Path) -> sqlite3.Connection:
    """A new, empty store for a cold build; not yet safe against a crash, because it is renamed into place when done."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.executescript(
        "PRAGMA page_size=8192; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-32000;"
        "PRAGMA locking_mode=EXCLUSIVE; BEGIN;" + TABLES
    )
    connection.execute("INSERT INTO meta VALUES('schema', ?)", (SCHEMA_VERSION,))
    return connection


def settle(path: Path) -> None:
    """Waits until a file is on the disk, so that no power cut leaves its name without its content."""
    with open(path, "rb+") as stream:
        os.fsync(stream.fileno())


def open_to_write(path: Path) -> sqlite3.Connection | None:
    """The store for an incremental build, in a transaction; ``None`` if it must be built anew."""
    if not path.is_file():
        return None
    connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    try:
        if schema_of(connection) == SCHEMA_VERSION:
            connection.execute("PRAGMA cache_size=-32000")
            return connection
    except BROKEN:
        pass
    connection.close()
    return None


def open_to_read(path: Path) -> sqlite3.Connection:
    """The store, read only.

    Raises:
        IndexFileError: it is missing, of another schema, or no store at all.
    """
    if not path.is_file():
        raise IndexFileError(str(path), expected="the index", found="none", remedy=REMEDY)
    try:
        connection, found = opened(path, "ro")
    except BROKEN as error:
        raise IndexFileError(
            str(path), expected="the index", found=f"an unreadable file ({error})", remedy=REMEDY
        ) from error
    if found != SCHEMA_VERSION:
        connection.close()
        raise IndexFileError(str(path), expected=f"index schema {SCHEMA_VERSION}", found=found or "none", remedy=REMEDY)
    connection.execute("PRAGMA mmap_size=536870912")
    return connection


def opened(path: Path, mode: str) -> tuple[sqlite3.Connection, str]:
    """A connection and the schema of what it leads to. What a killed build had begun is taken back first."""
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=60, check_same_thread=False
    )
    try:
        return connection, schema_of(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK or mode == "rw":
            raise
        opened(path, "rw")[0].close()
        return opened(path, mode)
    except BROKEN:
        connection.close()
        raise


def damaged(path: Path, error: Exception) -> IndexFileError:
    """What to say when the file can be opened and not be read."""
    return IndexFileError(
        str(path), expected="the index", found=f"a damaged file ({error})", remedy="run `annotator index --fresh`"
    )


def sound(connection: sqlite3.Connection) -> bool:
    """Whether a store is whole, as far as SQLite can tell, and has the tables that it should."""
    statement = "SELECT name, sql FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(TABLES + INDEXES)
        try:
            return (
                connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
                and connection.execute(statement).fetchall() == expected.execute(statement).fetchall()
            )
        except BROKEN:
            return False


def schema_of(connection: sqlite3.Connection) -> str:
    """The schema that a store was written with; empty if it has none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
        return ""
    row = connection.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
    return str(row[0]) if row else ""


def add(connection: sqlite3.Connection, files: Rows, rows: Rows, imports: Rows, operators: Rows) -> None:
    """Adds files with their definitions, imports and registrations of operators."""
    connection.executemany("INSERT INTO files VALUES(?,?,?,?,?,?,?,?,?,?,?)", files)
    connection.executemany("INSERT INTO definitions VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    connection.executemany("INSERT INTO imports VALUES(?,?,?,?,?,?,?,?,?)", imports)
    connection.executemany("INSERT INTO operators VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)", operators)


def module_row(number: int, module: str, lines: int) -> tuple[object, ...]:
    """The definition of a module, which comes before all others of its file."""
    name = module.rpartition(".")[2]
    return (number, 0, name, "", "module", 1, 0, max(lines, 1), f"module {module}", "", "", "")


def rename(connection: sqlite3.Connection, touched: Iterable[tuple[int, str, int]]) -> None:
    """Gives files, by their numbers, other paths and stamps; what they hold stays."""
    for number, path, stamp in touched:
        module = module_of(path)
        connection.execute("UPDATE files SET mtime=?, path=?, module=? WHERE id=?", (stamp, path, module, number))
        if module:
            (lines,) = connection.execute("SELECT lines FROM files WHERE id=?", (number,)).fetchone()
            connection.execute("DELETE FROM definitions WHERE file=? AND ordinal=0", (number,))
            marks = ",".join("?" * 12)
            connection.execute(f"INSERT INTO definitions VALUES({marks})", module_row(number, module, lines))


def remove(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Removes files with all that hangs on them."""
    keys = [(number,) for number in numbers]
    for table, column in (("files", "id"), ("definitions", "file"), ("imports", "file"), ("operators", "file")):
        connection.executemany(f"DELETE FROM {table} WHERE {column}=?", keys)


def posted(connection: sqlite3.Connection, name: str) -> set[int]:
    """Numbers of the files in which a name occurs; a literal's name begins with a quote."""
    numbers: set[int] = set()
    for (packed,) in connection.execute("SELECT files FROM postings WHERE name=?", (name,)):
        numbers.update(struct.unpack(f"<{len(packed) // 4}I", packed))
    return numbers


def add_postings(connection: sqlite3.Connection, segment: int, postings: dict[bytes, bytearray]) -> None:
    """Adds one segment: for each name the numbers (unsigned 32 bit, little endian) of the files in which it occurs."""
    connection.executemany(
        "INSERT INTO postings VALUES(?,?,?)",
        ((name.decode("utf-8", "replace"), segment, files) for name, files in sorted(postings.items())),
    )
