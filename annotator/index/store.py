"""The SQLite file: its schema, and every statement that writes to it.

One file holds all pins. Rows hang on a file's number, which a changed file gets anew, so postings are only ever added
to; those of numbers that no longer exist are passed over when read, and dropped by the next cold build.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from annotator.errors import IndexFileError

Rows = Iterable[tuple[Any, ...]]
SCHEMA_VERSION = "5"

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
CREATE TABLE postings(
  name TEXT NOT NULL, segment INTEGER NOT NULL, files BLOB NOT NULL, PRIMARY KEY(name, segment)) WITHOUT ROWID;
"""
INDEXES = """
CREATE UNIQUE INDEX IF NOT EXISTS files_by_path ON files(pin, path);
CREATE INDEX IF NOT EXISTS files_by_module ON files(module, pin);
CREATE INDEX IF NOT EXISTS definitions_by_name ON definitions(name);
"""
REMEDY = "run `annotator index`"


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


def open_to_write(path: Path) -> sqlite3.Connection | None:
    """The store for an incremental build, in a transaction; ``None`` if it must be built anew."""
    if not path.is_file():
        return None
    connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
    try:
        if schema_of(connection) == SCHEMA_VERSION:
            connection.execute("PRAGMA cache_size=-32000")
            return connection
    except sqlite3.DatabaseError:
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
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=60, check_same_thread=False
        )
        found = schema_of(connection)
    except sqlite3.DatabaseError as error:
        raise IndexFileError(
            str(path), expected="the index", found=f"an unreadable file ({error})", remedy=REMEDY
        ) from error
    if found != SCHEMA_VERSION:
        connection.close()
        raise IndexFileError(str(path), expected=f"index schema {SCHEMA_VERSION}", found=found or "none", remedy=REMEDY)
    connection.execute("PRAGMA mmap_size=536870912")
    return connection


def schema_of(connection: sqlite3.Connection) -> str:
    """The schema that a store was written with; empty if it has none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone():
        return ""
    row = connection.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
    return str(row[0]) if row else ""


def add(connection: sqlite3.Connection, files: Rows, rows: Rows, imports: Rows) -> None:
    """Adds files with their definitions and imports."""
    connection.executemany("INSERT INTO files VALUES(?,?,?,?,?,?,?,?,?,?,?)", files)
    connection.executemany("INSERT INTO definitions VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    connection.executemany("INSERT INTO imports VALUES(?,?,?,?,?,?,?,?,?)", imports)


def remove(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Removes files with all that hangs on them."""
    keys = [(number,) for number in numbers]
    for table, column in (("files", "id"), ("definitions", "file"), ("imports", "file")):
        connection.executemany(f"DELETE FROM {table} WHERE {column}=?", keys)


def add_postings(connection: sqlite3.Connection, segment: int, postings: dict[bytes, bytearray]) -> None:
    """Adds one segment: for each name the numbers (unsigned 32 bit, little endian) of the files in which it occurs."""
    connection.executemany(
        "INSERT INTO postings VALUES(?,?,?)",
        ((name.decode("utf-8", "replace"), segment, files) for name, files in sorted(postings.items())),
    )
