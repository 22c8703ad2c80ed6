"""Brings the index up to date: finds what changed, has it extracted by several processes, writes it in one go.

A file is unchanged if its size and time stamps are, else if its digest is. A cold build writes a new file and renames
it; an incremental one is a single transaction. Either way a build that is killed leaves the state before it. A lock
file keeps two builds apart: the second waits, and then finds nothing to do.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from annotator.errors import IndexFileError
from annotator.index import store
from annotator.index.languages import SUFFIXES, module_of
from annotator.index.model import Report
from annotator.index.worker import digest_of, receive, send, stamp_of
from annotator.pins.progress import Progress
from annotator.workspace import Workspace

try:
    import fcntl
except ImportError:  # pragma: no cover - not on POSIX: builds are then not kept apart
    fcntl = None  # type: ignore[assignment]

BATCH_BYTES = 1_500_000


@dataclass(frozen=True, slots=True)
class Found:
    """A source file in a pin's tree."""

    pin: str
    path: str
    where: str
    size: int
    stamp: int
    language: str


@dataclass
class Plan:
    """What a build has to do: files to extract, files that merely moved or were touched, numbers to remove."""

    extract: list[Found] = field(default_factory=list)
    touched: list[tuple[str, int, str, int]] = field(default_factory=list)
    remove: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.extract or self.touched or self.remove)


def build(
    workspace: Workspace,
    names: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Report:
    """Indexes the trees of the pins that are there, as far as they changed.

    Args:
        workspace: where trees and index lie.
        names: pins to look at; those not named stay as they are. Default: every pin of the lock whose tree is
            there, and pins without a tree leave the index.
        progress: told of every batch of files that is extracted.
        jobs: processes; default: one a core, at most 8.

    Raises:
        IndexFileError: a named pin has no tree, or the index cannot be written.
    """
    started = time.perf_counter()
    present = trees(workspace, names)
    try:
        workspace.state.mkdir(parents=True, exist_ok=True)
        with locked(workspace.index):
            return refresh(
                workspace.index, present, names is None, progress, jobs or min(os.cpu_count() or 1, 8), started
            )
    except (sqlite3.OperationalError, OSError) as error:
        raise IndexFileError(
            str(workspace.index),
            expected="room and leave to write the index",
            found=str(error),
            remedy="mend that and run `annotator index`; the index before this build is kept",
        ) from error


def trees(workspace: Workspace, names: Sequence[str] | None) -> dict[str, Path]:
    """The trees of the pins, by name.

    Raises:
        IndexFileError: a pin that was asked for has no tree.
    """
    if names is None:
        from annotator.pins import read_lock

        known = list(read_lock(workspace.lock)) if workspace.lock.is_file() else []
        return {name: workspace.tree(name) for name in known if workspace.tree(name).is_dir()}
    for name in names:
        if not workspace.tree(name).is_dir():
            raise IndexFileError(name, expected="its tree", found="none", remedy=f"run `annotator fetch {name}`")
    return {name: workspace.tree(name) for name in names}


@contextmanager
def locked(index: Path) -> Iterator[None]:
    """Holds the lock of builds; waits while another build has it."""
    with open(index.with_suffix(".lock"), "a") as stream:
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def refresh(
    index: Path, present: dict[str, Path], all_pins: bool, progress: Progress | None, jobs: int, started: float
) -> Report:
    """The build itself, under the lock."""
    connection = store.open_to_write(index)
    if connection is None:
        return cold(index, present, progress, jobs, started)
    try:
        connection.execute("BEGIN")
        plan = changes(connection, present, all_pins)
        skipped: list[str] = []
        if plan:
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            store.remove(connection, plan.remove)
            connection.executemany(
                "UPDATE files SET mtime=?, path=?, module=? WHERE id=?",
                ((s, p, module_of(p), n) for p, s, _, n in plan.touched),
            )
            skipped = ingest(connection, plan.extract, progress, jobs)
            stamp_generation(connection)
        report = totals(connection, len(plan.extract) - len(skipped), len(plan.remove), skipped, started)
        connection.execute("COMMIT")
        return report
    finally:
        connection.close()


def cold(index: Path, present: dict[str, Path], progress: Progress | None, jobs: int, started: float) -> Report:
    """Builds a new file beside the old one and renames it into place."""
    fresh = index.with_suffix(".new")
    connection = store.create(fresh)
    try:
        found = [file for pin, tree in present.items() for file in walk(pin, tree)]
        skipped = ingest(connection, found, progress, jobs)
        for statement in filter(str.strip, store.INDEXES.split(";")):
            connection.execute(statement)
        stamp_generation(connection)
        report = totals(connection, len(found) - len(skipped), 0, skipped, started)
        connection.execute("COMMIT")
        connection.close()
        os.replace(fresh, index)
        return report
    finally:
        connection.close()
        fresh.unlink(missing_ok=True)


def stamp_generation(connection: sqlite3.Connection) -> None:
    """Marks that the index changed, so that what was derived from it is derived anew."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES('generation', ?)", (os.urandom(8).hex(),))


def totals(connection: sqlite3.Connection, parsed: int, removed: int, skipped: list[str], started: float) -> Report:
    """The report; the count of definitions is kept in the store, because counting rows is slow."""
    files, lines = connection.execute("SELECT count(*), coalesce(sum(lines), 0) FROM files").fetchone()
    if parsed or removed or not connection.execute("SELECT 1 FROM meta WHERE key='definitions'").fetchone():
        connection.execute("INSERT OR REPLACE INTO meta SELECT 'definitions', count(*) FROM definitions")
    definitions = int(connection.execute("SELECT value FROM meta WHERE key='definitions'").fetchone()[0])
    return Report(files, parsed, removed, lines, definitions, time.perf_counter() - started, tuple(skipped))


def walk(pin: str, tree: Path) -> Iterator[Found]:
    """Source files of a tree. Links inside it are not followed, so a loop of links ends nothing."""
    root = os.path.realpath(tree)
    stack = [(root, "")]
    while stack:
        folder, inside = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("__pycache__", ".git"):
                    stack.append((entry.path, f"{inside}{entry.name}/"))
            elif (language := SUFFIXES.get(os.path.splitext(entry.name)[1])) and entry.is_file(follow_symlinks=False):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield Found(pin, f"{inside}{entry.name}", entry.path, status.st_size, stamp_of(status), language)


def changes(connection: sqlite3.Connection, present: dict[str, Path], all_pins: bool) -> Plan:
    """Compares the trees with the store."""
    plan = Plan()
    known: dict[str, dict[str, tuple[int, int, int, bytes]]] = {}
    for number, pin, path, size, mtime, digest in connection.execute(
        "SELECT id, pin, path, size, mtime, digest FROM files"
    ):
        known.setdefault(pin, {})[path] = (number, size, mtime, digest)
    for pin, tree in present.items():
        compare(plan, pin, tree, known.pop(pin, {}))
    if all_pins:
        plan.remove += [number for files in known.values() for number, *_ in files.values()]
    return plan


def compare(plan: Plan, pin: str, tree: Path, known: dict[str, tuple[int, int, int, bytes]]) -> None:
    """Adds one pin's changes to the plan. A file whose content is that of a vanished one is a rename."""
    fresh: list[Found] = []
    for found in walk(pin, tree):
        old = known.pop(found.path, None)
        if old is None:
            fresh.append(found)
        elif old[1] != found.size or old[2] != found.stamp:
            if digest_at(found.where) == old[3]:
                plan.touched.append((found.path, found.stamp, pin, old[0]))
            else:
                plan.remove.append(old[0])
                plan.extract.append(found)
    gone = {digest: number for number, _, _, digest in known.values()}
    for found in fresh:
        number = gone.pop(digest_at(found.where), None) if gone else None
        if number is None:
            plan.extract.append(found)
        else:
            plan.touched.append((found.path, found.stamp, pin, number))
    moved = {number for *_, number in plan.touched}
    plan.remove += [number for number, *_ in known.values() if number not in moved]


def digest_at(path: str) -> bytes:
    """Digest of a file's content; empty if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return digest_of(stream.read())
    except OSError:
        return b""


def batches(files: list[Found], first: int) -> Iterator[list[tuple[int, Found]]]:
    """Numbered files in batches of about equal size, in order, so that rows arrive nearly sorted."""
    batch: list[tuple[int, Found]] = []
    size = 0
    for number, found in enumerate(files, first):
        batch.append((number, found))
        size += found.size + 2000
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def ingest(connection: sqlite3.Connection, files: list[Found], progress: Progress | None, jobs: int) -> list[str]:
    """Extracts files and writes what they hold; gives those that could not be read."""
    if not files:
        return []
    first, segment = next_number(connection, "numbers"), next_number(connection, "segment")
    table = dict(enumerate(files, first))
    postings: dict[bytes, bytearray] = {}
    skipped: list[str] = []
    if progress:
        progress.start("reading", len(files))
    for results, names in extracted(list(batches(files, first)), jobs):
        skipped += write(connection, table, results)
        for name, numbers in names.items():
            if (sofar := postings.get(name)) is None:
                postings[name] = bytearray(numbers)
            else:
                sofar += numbers
        if progress:
            progress.advance("reading", len(results))
    if progress:
        progress.finish("reading")
    store.add_postings(connection, segment, postings)
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES(?, ?)",
        (("segment", str(segment)), ("numbers", str(first + len(files) - 1))),
    )
    return skipped


def next_number(connection: sqlite3.Connection, counter: str) -> int:
    """The number after the last that was given; numbers of files that are gone are not given again."""
    row = connection.execute("SELECT value FROM meta WHERE key=?", (counter,)).fetchone()
    return int(row[0]) + 1 if row else 1


def write(connection: sqlite3.Connection, table: dict[int, Found], results: list[Any]) -> list[str]:
    """Writes the results of one batch; gives the files that could not be read."""
    files, rows, imports, skipped = [], [], [], []
    for number, facts, *declared in results:
        found = table[number]
        if not declared:
            skipped.append(f"{found.pin}/{found.path}: {facts}")
            continue
        digest, size, stamp, lines, identifiers, broken = facts
        module = module_of(found.path)
        files.append(
            (number, found.pin, found.path, digest, size, stamp, found.language, module, lines, identifiers, broken)
        )
        if module:
            rows.append(
                (
                    number,
                    0,
                    module.rpartition(".")[2],
                    "",
                    "module",
                    1,
                    0,
                    max(lines, 1),
                    f"module {module}",
                    "",
                    "",
                    "",
                )
            )
        rows += declared[0]
        imports += declared[1]
    store.add(connection, files, rows, imports)
    return skipped


def extracted(work: list[list[tuple[int, Found]]], jobs: int) -> Iterator[tuple[list[Any], dict[bytes, bytes]]]:
    """Results of batches as they come: here for little work, else from ``jobs`` processes."""
    messages = [[(number, found.where, found.language) for number, found in batch] for batch in work]
    if jobs == 1 or len(messages) < 2:
        from annotator.index.worker import work as extract_batch

        for message in messages:
            yield extract_batch(message)
        return
    yield from Crew(messages, min(jobs, len(messages))).results()


class Crew:
    """Worker processes, a thread of this process serving each. At most two results a worker wait to be taken."""

    def __init__(self, messages: list[Any], jobs: int) -> None:
        self.todo: Queue[Any] = Queue()
        for message in messages:
            self.todo.put(message)
        self.expected = len(messages)
        self.done: Queue[Any] = Queue(maxsize=2 * jobs)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(
                os.pathsep
            ),
        }
        command = [sys.executable, "-c", "from annotator.index.worker import main; main()"]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            for _ in range(jobs)
        ]
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.serve, args=(process,), daemon=True) for process in self.processes]

    def serve(self, process: subprocess.Popen[bytes]) -> None:
        """Feeds one worker; one that dies ends the build, and what was there before stays."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while not self.stopped.is_set():
                message = self.todo.get_nowait()
                send(process.stdin, message)
                answer = receive(process.stdout)
                if answer is None:
                    raise OSError(f"a worker ended with code {process.wait()}")
                self.done.put(answer)
        except Empty:
            pass
        except OSError as error:
            self.done.put(error)

    def results(self) -> Iterator[Any]:
        """All results, in the order in which they come."""
        for thread in self.threads:
            thread.start()
        try:
            for _ in range(self.expected):
                answer = self.done.get()
                if isinstance(answer, OSError):
                    raise answer
                yield answer
        finally:
            self.close()

    def close(self) -> None:
        """Ends the workers and waits for them."""
        self.stopped.set()
        for process in self.processes:
            process.kill()
        while any(thread.is_alive() for thread in self.threads):
            try:
                self.done.get(timeout=0.05)
            except Empty:
                continue
        for process in self.processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
