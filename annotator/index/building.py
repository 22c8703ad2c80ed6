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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

from annotator.errors import IndexFileError
from annotator.index import store
from annotator.index.languages import SUFFIXES, module_of
from annotator.index.model import Report
from annotator.index.store import digest_of, stamp_of
from annotator.index.worker import PATIENCE, receive, send
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


class Known(NamedTuple):
    """A file as the store has it."""

    number: int
    size: int
    stamp: int
    digest: bytes
    language: str


@dataclass
class Plan:
    """What a build has to do: files to extract, files that merely moved or were touched, numbers to remove."""

    extract: list[Found] = field(default_factory=list)
    touched: list[tuple[int, str, int]] = field(default_factory=list)
    remove: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.extract or self.touched or self.remove)


def build(
    workspace: Workspace,
    names: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    fresh: bool = False,
) -> Report:
    """Indexes the trees of the pins that are there, as far as they changed.

    Args:
        workspace: where trees and index lie.
        names: pins to look at; those not named stay as they are. Default: every pin of the lock whose tree is
            there, and pins without a tree leave the index.
        progress: told of every batch of files that is extracted.
        jobs: processes; default: one a core, at least 2 and at most 8. With 1 it is done in this process.
        fresh: build anew what is looked at, as if there were no index; nothing else is in it afterwards.

    Raises:
        IndexFileError: a named pin has no tree, or the index cannot be written.
    """
    started = time.perf_counter()
    present = trees(workspace, names)
    try:
        workspace.state.mkdir(parents=True, exist_ok=True)
        with locked(workspace.index):
            unfinished(workspace.index).unlink(missing_ok=True)
            count = jobs or max(2, min(os.cpu_count() or 1, 8))
            if fresh:
                return cold(workspace.index, present, progress, count, started)
            return refresh(workspace.index, present, names is None, progress, count, started)
    except sqlite3.OperationalError as error:
        raise full(workspace.index, error) from error
    except sqlite3.DatabaseError as error:
        raise store.damaged(workspace.index, error) from error
    except OSError as error:
        raise full(workspace.index, error) from error


def full(index: Path, error: Exception) -> IndexFileError:
    """What to say when the index cannot be written."""
    return IndexFileError(
        str(index),
        expected="room and leave to write the index",
        found=str(error),
        remedy="mend that and run `annotator index`; the index before this build is kept",
    )


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


def unfinished(index: Path) -> Path:
    """Where a cold build writes; what lies there before one begins was left by one that was killed."""
    return index.with_suffix(".new")


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
            store.rename(connection, plan.touched)
            skipped = ingest(connection, plan.extract, progress, jobs)
            if plan.remove or plan.touched or len(skipped) < len(plan.extract):
                stamp_generation(connection)
        report = totals(connection, len(plan.extract) - len(skipped), len(plan.remove), skipped, started)
        connection.execute("COMMIT")
        return report
    finally:
        connection.close()


def cold(index: Path, present: dict[str, Path], progress: Progress | None, jobs: int, started: float) -> Report:
    """Builds a new file beside the old one and renames it into place."""
    fresh = unfinished(index)
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
        store.settle(fresh)
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
    known: dict[str, dict[str, Known]] = {}
    query = "SELECT pin, path, id, size, mtime, digest, language FROM files"
    for pin, path, *facts in connection.execute(query):
        known.setdefault(pin, {})[path] = Known(*facts)
    for pin, tree in present.items():
        compare(plan, pin, tree, known.pop(pin, {}))
    if all_pins:
        plan.remove += [old.number for files in known.values() for old in files.values()]
    return plan


def compare(plan: Plan, pin: str, tree: Path, known: dict[str, Known]) -> None:
    """Adds one pin's changes to the plan. A file whose content is that of a vanished one is a rename."""
    fresh: list[Found] = []
    for found in walk(pin, tree):
        old = known.pop(found.path, None)
        if old is None:
            fresh.append(found)
        elif old.size != found.size or old.stamp != found.stamp:
            if digest_at(found.where) == old.digest:
                plan.touched.append((old.number, found.path, found.stamp))
            else:
                plan.remove.append(old.number)
                plan.extract.append(found)
    gone = {(old.digest, old.language): old.number for old in known.values()}
    for found in fresh:
        number = gone.pop((digest_at(found.where), found.language), None) if gone and speakable(found.path) else None
        if number is None:
            plan.extract.append(found)
        else:
            plan.touched.append((number, found.path, found.stamp))
    moved = {number for number, *_ in plan.touched}
    plan.remove += [old.number for old in known.values() if old.number not in moved]


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
    odd = [file for file in files if not speakable(file.path)]
    files = [file for file in files if speakable(file.path)]
    unnamed = [f"{file.pin}/{os.fsencode(file.path)!r}: its name is not UTF-8" for file in odd]
    if not files:
        return unnamed
    first, segment = next_number(connection, "numbers"), next_number(connection, "segment")
    table = dict(enumerate(files, first))
    postings: dict[bytes, bytearray] = {}
    skipped = unnamed
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


def speakable(path: str) -> bool:
    """Whether a path can be written down."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def next_number(connection: sqlite3.Connection, counter: str) -> int:
    """The number after the last that was given; numbers of files that are gone are not given again."""
    row = connection.execute("SELECT value FROM meta WHERE key=?", (counter,)).fetchone()
    return int(row[0]) + 1 if row else 1


def write(connection: sqlite3.Connection, table: dict[int, Found], results: list[Any]) -> list[str]:
    """Writes the results of one batch; gives the files that could not be read."""
    files, rows, imports, operators, skipped = [], [], [], [], []
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
            rows.append(store.module_row(number, module, lines))
        rows += declared[0]
        imports += declared[1]
        operators += declared[2]
    store.add(connection, files, rows, imports, operators)
    return skipped


def extracted(work: list[list[tuple[int, Found]]], jobs: int) -> Iterator[tuple[list[Any], dict[bytes, bytes]]]:
    """Results of batches as they come: from ``jobs`` processes, or from this one, where nothing bounds them."""
    messages = [[(number, found.where, found.language) for number, found in batch] for batch in work]
    if jobs == 1:
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
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(
                os.pathsep
            ),
        }
        self.command = [sys.executable, "-c", f"from annotator.index.worker import main; main({PATIENCE})"]
        self.stopped = threading.Event()
        self.processes = [self.worker() for _ in range(jobs)]
        self.threads = [threading.Thread(target=self.serve, args=(at,), daemon=True) for at in range(jobs)]

    def worker(self) -> subprocess.Popen[bytes]:
        """A new worker, apart from this process's group: what is typed at the terminal is for the build."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command, stdin=pipe, stdout=pipe, env=self.environment, process_group=0)

    def serve(self, at: int) -> None:
        """Feeds one worker. A failure ends the build, and what was there before stays."""
        try:
            while not self.stopped.is_set():
                message = self.todo.get_nowait()
                self.done.put(self.answer(at, message) or self.singly(at, message))
        except Empty:
            pass
        except Exception as error:  # whatever it is: a thread that said nothing would be waited for without end
            self.done.put(error if isinstance(error, OSError) else OSError(f"a worker said nonsense: {error}"))

    def answer(self, at: int, message: list[Any]) -> Any:
        """What a worker makes of a batch; ``None`` if a file killed it, and then there is another worker."""
        process = self.processes[at]
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            send(process.stdin, message)
        if (answer := receive(process.stdout)) is not None or self.stopped.is_set():
            return answer
        if (code := process.wait()) >= 0:
            raise OSError(f"a worker ended with code {code}")
        dismissed(process)
        self.processes[at] = self.worker()
        return None

    def singly(self, at: int, message: list[Any]) -> Any:
        """A batch file by file, without those that kill their worker."""
        results: list[Any] = []
        postings: dict[bytes, bytes] = {}
        for one in message if not self.stopped.is_set() else ():
            found, names = self.answer(at, [one]) or ([(one[0], "reading it takes too long, or too much memory")], {})
            results += found
            for name, numbers in names.items():
                postings[name] = postings.get(name, b"") + numbers
        return results, postings

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
            process.kill()
            dismissed(process)


def dismissed(process: subprocess.Popen[bytes]) -> None:
    """Waits for a worker that was killed, and closes what led to it."""
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
