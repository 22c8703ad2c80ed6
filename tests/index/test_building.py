"""Building: what is read again and what is not, and what survives when a build does not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from annotator.errors import IndexFileError, SymbolNotFound
from annotator.index import Index, build
from annotator.workspace import Workspace
from tests.index.trees import workspace, write

FILES: dict[str, str | bytes] = {
    "p/a.py": "def one(): pass\n",
    "p/b.py": "from p.a import one\none()\n",
    "p/c.py": "def three(): pass\n",
    "p/x.txt": "no",
}


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    made = workspace(tmp_path, p=FILES)
    build(made, ["p"], jobs=1)
    return made


def symbols(made: Workspace) -> set[str]:
    with Index.open(made) as index:
        return {d.symbol for path in index.paths("p") for d in index.definitions("p", path)}


def test_nothing_changed_reads_nothing(made: Workspace) -> None:
    before = made.index.read_bytes()
    report = build(made, ["p"], jobs=1)
    assert (report.files, report.parsed, report.removed, report.lines) == (3, 0, 0, 4)
    assert made.index.read_bytes() == before


def test_touched_but_equal_reads_no_tree_again(made: Workspace) -> None:
    os.utime(made.tree("p") / "p/a.py", ns=(1, 1))
    assert build(made, ["p"], jobs=1).parsed == 0


def test_same_size_and_time_but_other_content_is_seen(made: Workspace) -> None:
    where = made.tree("p") / "p/a.py"
    times = (where.stat().st_atime_ns, where.stat().st_mtime_ns)
    where.write_text("def two(): pass\n")
    os.utime(where, ns=times)
    assert build(made, ["p"], jobs=1).parsed == 1
    assert "p:p.a.two" in symbols(made)


def test_change_delete_rename_add(made: Workspace) -> None:
    tree = made.tree("p")
    (tree / "p/c.py").write_text("def changed(): pass\n")
    (tree / "p/b.py").unlink()
    (tree / "p/a.py").rename(tree / "p/renamed.py")
    write(tree, {"p/new.py": "from p.renamed import one\none()\n"})
    report = build(made, ["p"], jobs=1)
    assert (report.files, report.parsed, report.removed) == (3, 2, 2)
    assert symbols(made) == {"p:p.c", "p:p.c.changed", "p:p.renamed", "p:p.renamed.one", "p:p.new"}
    with Index.open(made) as index:
        assert {use.path for use in index.uses(index.definition("p:p.renamed.one"))} == {"p/new.py"}
        with pytest.raises(SymbolNotFound):
            index.definition("p:p.a.one")


def test_many_small_builds_equal_one(tmp_path: Path, made: Workspace) -> None:
    for number in range(5):
        write(made.tree("p"), {"p/a.py": f"def one(): pass\ndef n{number}(): pass\n"})
        build(made, ["p"], jobs=1)
    fresh = workspace(tmp_path / "fresh", p={**FILES, "p/a.py": "def one(): pass\ndef n4(): pass\n"})
    build(fresh, ["p"], jobs=1)
    assert symbols(made) == symbols(fresh)
    for one in (made, fresh):
        with Index.open(one) as index:
            assert len(index.uses(index.definition("p:p.a.one"))) == 2


class Counter:
    """What a progress bar is told."""

    total, done, finished = 0, 0, False

    def start(self, task: str, total: int | None) -> None:
        self.total = total or 0

    def advance(self, task: str, amount: int) -> None:
        self.done += amount

    def finish(self, task: str) -> None:
        self.finished = True


def test_processes_give_what_one_process_gives(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"p/m{n}.py": f"class C{n}:\n    def f{n}(self): return {n}\n" + "#" * 100_000 for n in range(60)
    }
    made = workspace(tmp_path, p=files)
    watcher = Counter()
    assert build(made, ["p"], jobs=2, progress=watcher).parsed == 60
    assert (watcher.total, watcher.done, watcher.finished) == (60, 60, True)
    assert len(symbols(made)) == 180


def test_unreadable_files_are_named_and_cost_no_others(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    write(made.tree("p"), {"p/gone.py": "x = 1\n", "p/d.py": "def four(): pass\n"})
    real = open

    def vanishing(path: str, *args: object, **options: object) -> object:
        if str(path).endswith("gone.py"):
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", vanishing)
    report = build(made, ["p"], jobs=1)
    assert report.skipped == ("p/p/gone.py: No such file or directory",)
    assert "p:p.d.four" in symbols(made)


def test_a_loop_of_links_ends(made: Workspace) -> None:
    (made.tree("p") / "loop").symlink_to(made.tree("p"))
    assert build(made, ["p"], jobs=1).files == 3


def test_missing_index_and_missing_tree_say_what_to_do(tmp_path: Path) -> None:
    made = workspace(tmp_path, p={})
    with pytest.raises(IndexFileError, match="run `annotator index`"):
        Index.open(made)
    with pytest.raises(IndexFileError, match="run `annotator fetch q`"):
        build(made, ["q"])


def test_another_schema_is_refused_by_readers_and_rebuilt_by_builds(made: Workspace) -> None:
    with sqlite3.connect(made.index) as connection:
        connection.execute("UPDATE meta SET value='0' WHERE key='schema'")
    connection.close()
    with pytest.raises(IndexFileError, match=r"expected index schema \d+, found 0; run `annotator index`"):
        Index.open(made)
    assert build(made, ["p"], jobs=1).parsed == 3
    assert "p:p.a.one" in symbols(made)


def test_a_file_that_is_no_index_is_refused_and_rebuilt(made: Workspace) -> None:
    made.index.write_bytes(b"not a database" * 1000)
    with pytest.raises(IndexFileError, match="unreadable file"):
        Index.open(made)
    assert build(made, ["p"], jobs=1).parsed == 3


RUN = """
import sys
from pathlib import Path
from annotator.index import build
from annotator.workspace import Workspace
root = Path(sys.argv[1])
build(Workspace(root, root / "cache", root / "state"), ["p"], jobs=2)
"""


def start(made: Workspace) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", RUN, str(made.root)], env=environment, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("cold", [True, False])
def test_a_killed_build_leaves_the_state_before_and_the_next_goes_on(made: Workspace, delay: float, cold: bool) -> None:
    before = symbols(made)
    if cold:
        with sqlite3.connect(made.index) as connection:
            connection.execute("UPDATE meta SET value='0' WHERE key='schema'")
        connection.close()
    write(made.tree("p"), {f"p/n{n}.py": f"def n{n}(): pass\n" * 200 + "#" * 60_000 for n in range(60)})
    process = start(made)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not cold:
        assert symbols(made) in (
            before,
            before | {f"p:p.n{n}" for n in range(60)} | {f"p:p.n{n}.n{n}" for n in range(60)},
        )
    assert build(made, ["p"], jobs=1).files == 63
    assert len(symbols(made)) == len(before) + 120
    assert not made.index.with_suffix(".new").exists()


def test_two_builds_at_once_both_end_well(made: Workspace) -> None:
    write(made.tree("p"), {f"p/n{n}.py": f"def n{n}(): pass\n" * 200 + "#" * 60_000 for n in range(60)})
    processes = [start(made), start(made)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert len(symbols(made)) == 5 + 120
    with sqlite3.connect(made.index) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        numbers = connection.execute("SELECT count(*), count(DISTINCT pin || path) FROM files").fetchone()
    connection.close()
    assert numbers == (63, 63)
