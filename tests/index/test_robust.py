"""Builds and stores under bad luck: odd files, a full disk, damage, kills at any moment, builds and readers at once."""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from annotator.errors import AnnotatorError, IndexFileError
from annotator.index import Index, build, building
from annotator.workspace import Workspace
from tests.index.trees import workspace, write

ROOT = Path(__file__).parents[2]
FEW = {
    "p/a.py": "def a(): return b()\ndef b(): pass\n",
    "p/b.py": "from p.a import a\na()\n",
    "p/c.h": "int c(int x);\n",
}
MANY = {f"p/n{n}.py": f"def n{n}(): pass\n" * 100 + "# " + "x" * 30_000 + "\n" for n in range(60)}
KILLS = int(os.environ.get("ANNOTATOR_KILLS", "15"))
"""Kills of each kind; set it to hundreds for a long look."""

NONSENSE = b"def f(" + b"*/" * 1000 + b"): pass\n"
"""Takes the parser a second and 400 MB, and four times that at twice the length."""

RUN = """
import resource, sys
from pathlib import Path
from annotator.index import build
from annotator.workspace import Workspace
root, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print(build(Workspace(root, root / "cache", root / "state"), ["p"], jobs=2, fresh=sys.argv[3] == "True").files)
"""


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    found = workspace(tmp_path, p=dict(FEW))
    build(found, ["p"], jobs=1)
    return found


def start(made: Workspace, limit: int = 0, fresh: bool = False) -> subprocess.Popen[str]:
    """A build in a process of its own, whose files may have ``limit`` bytes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, str(made.root), str(limit), str(fresh)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)


def finished(process: subprocess.Popen[str]) -> int:
    """The exit code of a build that ends."""
    process.communicate(timeout=60)
    return process.returncode


def content(made: Workspace) -> list[tuple[object, ...]]:
    """All that the store says, without its numbers; its pages are sound."""
    with sqlite3.connect(made.index) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute(
            "SELECT f.path, f.digest, f.lines, d.ordinal, d.name, d.qualname, d.line, d.column, d.signature, d.hint "
            "FROM files f "
            "LEFT JOIN definitions d ON d.file = f.id ORDER BY f.path, d.ordinal"
        ).fetchall()
    connection.close()
    return rows


def clean(made: Workspace, tmp_path: Path) -> list[tuple[object, ...]]:
    """What a cold build of the same tree says."""
    other = Workspace(tmp_path / "other", tmp_path / "other", tmp_path / "other")
    other.root.mkdir()
    other.tree("p").symlink_to(made.tree("p"))
    build(other, ["p"], jobs=1)
    return content(other)


# Files


def test_odd_files_cost_no_others(made: Workspace) -> None:
    tree = made.tree("p")
    os.mkfifo(tree / "pipe.py")
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(tree / "s.py"))
        (tree / "loop.py").symlink_to("loop.py")
        (tree / "gone.py").symlink_to("nowhere.py")
        (tree / "folder.py").mkdir()
        with suppress(PermissionError):
            os.mknod(tree / "zero.py", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        report = build(made, ["p"], jobs=1)
    assert (report.files, report.skipped) == (3, ())


def test_names_that_differ_in_case_alone(made: Workspace) -> None:
    write(made.tree("p"), {"p/A.py": "def upper(): pass\n"})
    if (made.tree("p") / "p/a.py").read_text() != FEW["p/a.py"]:
        pytest.skip("this disk does not tell them apart")
    build(made, ["p"], jobs=1)
    with Index.open(made) as index:
        assert [one.symbol for name in ("upper", "a") for one in index.find(name, kind="function")] == [
            "p:p.A.upper",
            "p:p.a.a",
        ]


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder in which this process is an ordinary user, whom files can be denied to."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        if os.geteuid():
            yield where
        else:
            os.chown(where, 65534, 65534)
            os.seteuid(65534)
            try:
                yield where
            finally:
                os.seteuid(0)


def test_what_may_not_be_read_is_named_and_costs_no_others(nobody: Path) -> None:
    made = workspace(nobody, p=dict(FEW, **{"p/d.py": "x = 1\n", "q/e.py": "y = 1\n"}))
    (made.tree("p") / "p/d.py").chmod(0)
    (made.tree("p") / "q").chmod(0)
    report = build(made, ["p"], jobs=1)
    (made.tree("p") / "q").chmod(0o700)
    assert (report.files, report.skipped) == (3, ("p/p/d.py: Permission denied",))


def test_a_state_that_may_not_be_written_is_told_and_can_be_read(nobody: Path) -> None:
    made = workspace(nobody, p=dict(FEW))
    build(made, ["p"], jobs=1)
    write(made.tree("p"), {"p/d.py": "x = 1\n"})
    for path in (*made.state.glob("*.*"), made.state):
        path.chmod(0o500 if path.is_dir() else 0o400)
    with pytest.raises(IndexFileError, match="expected room and leave to write the index"):
        build(made, ["p"], jobs=1)
    with Index.open(made) as index:
        assert {use.path for use in index.uses(index.find("a")[0])} == {"p/b.py"}
    made.state.chmod(0o700)


def test_a_file_that_grows_while_it_is_read_is_read_again(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    where, real = made.tree("p") / "p/grows.py", os.fstat
    where.write_text("def one(): pass\n")

    def growing(number: int) -> os.stat_result:
        status = real(number)
        if status.st_ino == where.stat().st_ino:
            with where.open("a") as stream:
                stream.write("def two(): pass\n")
        return status

    monkeypatch.setattr("annotator.index.worker.os.fstat", growing)
    build(made, ["p"], jobs=1)
    monkeypatch.undo()
    assert build(made, ["p"], jobs=1).parsed + build(made, ["p"], jobs=1).parsed <= 1
    with Index.open(made) as index:
        assert index.find("two")[0].line == 2


def test_a_time_in_the_future_hides_no_change(made: Workspace) -> None:
    where = made.tree("p") / "p/a.py"
    os.utime(where, ns=(0, 15 * 10**18))
    build(made, ["p"], jobs=1)
    where.write_text(FEW["p/a.py"].replace("def a", "def z"))
    os.utime(where, ns=(0, 15 * 10**18))
    assert build(made, ["p"], jobs=1).parsed == 1


def test_a_folder_that_is_renamed_is_not_read_again(made: Workspace, tmp_path: Path) -> None:
    (made.tree("p") / "p").rename(made.tree("p") / "q")
    assert build(made, ["p"], jobs=1).parsed == 0
    assert content(made) == clean(made, tmp_path)
    with Index.open(made) as index:
        assert [one.symbol for one in index.find("a", kind="module")] == ["p:q.a"]


def test_a_file_that_becomes_another_language_is_read_again(made: Workspace, tmp_path: Path) -> None:
    (made.tree("p") / "p/c.h").rename(made.tree("p") / "p/c.py")
    build(made, ["p"], jobs=1)
    assert content(made) == clean(made, tmp_path)


def test_a_module_that_is_renamed_is_found_by_its_new_name(made: Workspace, tmp_path: Path) -> None:
    (made.tree("p") / "p/a.py").rename(made.tree("p") / "p/renamed.py")
    assert build(made, ["p"], jobs=1).parsed == 0
    assert content(made) == clean(made, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline.py",
        b"quo\"te's.py",
        b"\xff\xfe.py",
        "é𝔘.py".encode(),
        b"x" * 252 + b".py",
        b" .py",
        b"-.py",
        b"%s{}.py",
    ],
)
def test_odd_names(name: bytes, made: Workspace) -> None:
    where = os.path.join(os.fsencode(made.tree("p")), name)
    with open(where, "wb") as stream:
        stream.write(b"def odd(): pass\n")
    report = build(made, ["p"], jobs=1)
    assert report.files + len(report.skipped) == 4
    assert len(report.skipped) == (name == b"\xff\xfe.py"), "only what is not UTF-8 cannot be named"
    with Index.open(made) as index:
        assert len(index.find("odd")) == 1 - len(report.skipped)
        assert index.find("a")[0].symbol == "p:p.a.a"


@pytest.mark.parametrize(
    "data",
    [
        b"print 'two'\nexec 'x' in y\ndef odd(): pass\n",
        b"{% if x %}\ndef odd(): pass\n{% endif %}\n",
        b"\xef\xbb\xbfdef odd(): pass\n",
        b"# -*- coding: latin-1 -*-\nx = '\xe9'\ndef odd(): pass\n",
        b"x = '\xe9'\ndef odd(): pass\n",
        b"def odd():\r\n\treturn 1\r\n",
        b"\x0cdef odd(): pass\n",
        b"x = " + b"1 + " * 200_000 + b"1\ndef odd(): pass\n",
        b"x = " + b"(" * 2000 + b")" * 2000 + b"\ndef odd(): pass\n",
        b"def odd(): pass\n" + b"x = 'generated'\n" * 650_000,
    ],
    ids=["python2", "template", "bom", "latin1", "latin1-unsaid", "crlf", "formfeed", "long-line", "deep", "10MB"],
)
def test_odd_sources(data: bytes, made: Workspace) -> None:
    (made.tree("p") / "p" / "odd.py").write_bytes(data)
    assert build(made, ["p"], jobs=1).skipped == ()
    with Index.open(made) as index:
        assert [one.symbol for one in index.find("odd", kind="function")] == ["p:p.odd.odd"]
        if len(data) < 1_000_000:
            assert any(link.name == "odd" for link in index.links("p", "p/odd.py"))


def test_a_chain_of_imports_that_ends_where_it_began(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {
        f"p/m{n}.py": f"from p.m{(n + 1) % 40} import thing, *\nthing()\n" for n in range(40)
    }
    made = workspace(tmp_path, p=tree)
    build(made, ["p"], jobs=1)
    with Index.open(made) as index:
        assert all(link.target is None for link in index.links("p", "p/m0.py") if link.name == "thing")


# Readers that do not come back


def test_what_kills_its_reader_costs_no_others(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "PATIENCE", 0.2)
    write(made.tree("p"), {"p/nonsense.py": NONSENSE, "p/d.py": "from p.a import a\na()\n"})
    report = build(made, ["p"], jobs=2)
    assert (report.files, report.skipped) == (4, ("p/p/nonsense.py: reading it takes too long, or too much memory",))
    (made.tree("p") / "p/nonsense.py").unlink()
    assert content(made) == clean(made, tmp_path)
    with Index.open(made) as index:
        assert {use.path for use in index.uses(index.find("a")[0])} == {"p/b.py", "p/d.py"}


def test_a_worker_that_is_killed_once_is_replaced(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, killed = building.Crew.worker, []

    def dying(crew: building.Crew) -> subprocess.Popen[bytes]:
        process = real(crew)
        if not killed:
            killed.append(process.pid)
            process.kill()
        return process

    monkeypatch.setattr(building.Crew, "worker", dying)
    write(made.tree("p"), dict(MANY))
    assert build(made, ["p"], jobs=2).skipped == ()
    assert killed
    assert content(made) == clean(made, tmp_path)


@pytest.mark.parametrize("program", ["print('x' * 999)", "raise SystemExit(3)", ""])
def test_a_worker_that_talks_nonsense_ends_the_build(
    program: str, made: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(made)

    def odd(crew: building.Crew) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(building.Crew, "worker", odd)
    write(made.tree("p"), dict(MANY))
    with pytest.raises(IndexFileError, match="a worker"):
        build(made, ["p"], jobs=2)
    assert content(made) == before


# Disks


def test_a_disk_that_is_full_leaves_the_index_of_before(made: Workspace, tmp_path: Path) -> None:
    before = content(made)
    write(made.tree("p"), dict(MANY))
    process = start(made, limit=60_000)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the index before this build is kept" in error
    assert content(made) == before
    assert not made.index.with_suffix(".new").exists()
    assert finished(start(made)) == 0
    assert content(made) == clean(made, tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_small_disk(small_disk: Path, tmp_path: Path) -> None:
    made = workspace(tmp_path, p=dict(MANY))
    elsewhere = Workspace(made.root, made.cache, small_disk)
    (small_disk / "p").symlink_to(made.tree("p"))
    with pytest.raises(IndexFileError, match="expected room and leave to write the index"):
        build(elsewhere, ["p"], jobs=1)
    assert not elsewhere.index.exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    made = workspace(tmp_path, p=dict(FEW))
    made.index.mkdir()
    with pytest.raises(IndexFileError, match=r"index\.sqlite"):
        build(made, ["p"], jobs=1)


# Damage


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_told_or_harmless_and_a_fresh_build_mends_it(seed: int, made: Workspace) -> None:
    chance, whole = random.Random(seed), made.index.read_bytes()
    data = bytearray(whole)
    if seed % 3:
        for _ in range(200):
            data[chance.randrange(len(data))] = chance.randrange(256)
    else:
        del data[chance.randrange(1, len(data)) :]
    made.index.write_bytes(bytes(data))
    told: list[str] = []
    try:
        with Index.open(made) as index:
            for path in ("p/a.py", "p/b.py"):
                index.links("p", path)
            index.uses(index.find("a")[0])
            index.stats()
    except AnnotatorError as error:
        told.append(str(error))
    assert all("annotator index" in text for text in told)
    assert build(made, ["p"], jobs=1, fresh=True).files == 3
    with Index.open(made) as index:
        assert index.find("a")[0].symbol == "p:p.a.a"


def test_a_table_that_is_declared_otherwise_is_told_as_damage(made: Workspace) -> None:
    data = made.index.read_bytes()
    assert data.count(b"id INTEGER PRIMARY KEY") == 1
    made.index.write_bytes(data.replace(b"id INTEGER PRIMARY KEY", b"id INTEGEQ PRIMARY KEY"))
    with pytest.raises(IndexFileError, match="run `annotator index --fresh`"), Index.open(made) as index:
        index.links("p", "p/a.py")


def test_what_is_no_damage_is_not_told_as_damage(made: Workspace) -> None:
    with pytest.raises(TypeError, match="ours"), Index.open(made):
        raise TypeError("ours")


def test_damaged_links_are_made_anew(made: Workspace) -> None:
    with Index.open(made) as index:
        expected = index.links("p", "p/b.py")
    kept = made.index.with_name("links.sqlite")
    for data in (b"", b"junk" * 500, kept.read_bytes()[:5000]):
        kept.write_bytes(data)
        with Index.open(made) as index:
            assert index.links("p", "p/b.py") == expected


def test_links_with_odd_bytes_are_made_anew(made: Workspace) -> None:
    with Index.open(made) as index:
        expected = index.links("p", "p/b.py")
    kept = made.index.with_name("links.sqlite")
    whole, chance = kept.read_bytes(), random.Random(0)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(60):
            data[chance.randrange(len(data))] = chance.randrange(256)
        kept.write_bytes(bytes(data))
        for _ in range(2):
            with Index.open(made) as index:
                assert index.links("p", "p/b.py") == expected
                index.stats()
    kept.write_bytes(whole)
    with sqlite3.connect(kept) as connection:
        connection.execute("UPDATE links SET body=x'00'")
    connection.close()
    with Index.open(made) as index:
        assert index.links("p", "p/b.py") == expected


# Kills and company


SPILL = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size=-20")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE definitions SET doc='half'")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_reader_takes_back_what_a_killed_build_had_begun(made: Workspace) -> None:
    write(made.tree("p"), dict(MANY))
    build(made, ["p"], jobs=1)
    subprocess.run([sys.executable, "-c", SPILL, str(made.index)], check=False)
    assert Path(f"{made.index}-journal").stat().st_size > 0, "the kill came before anything was written"
    with Index.open(made) as index:
        assert {one.doc for one in index.find("n1")} == {""}
    assert not Path(f"{made.index}-journal").exists()


def test_what_a_killed_cold_build_left_is_removed(made: Workspace) -> None:
    made.index.with_suffix(".new").write_bytes(b"half")
    build(made, ["p"], jobs=1)
    assert sorted(path.name for path in made.state.iterdir()) == ["index.lock", "index.sqlite", "p"]


def children(process: subprocess.Popen[str]) -> set[int]:
    """Processes that a process has started and that still run."""
    try:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return set()
    return {int(number) for number in text.split()}


def alive(numbers: set[int]) -> set[int]:
    """Those of some workers that still run."""
    found = set()
    for number in numbers:
        with suppress(OSError):
            if b"annotator.index.worker" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.add(number)
    return found


def gone(numbers: set[int]) -> bool:
    """Whether workers end soon."""
    until = time.monotonic() + 20
    while alive(numbers) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(numbers)


@pytest.mark.slow
def test_a_build_that_is_interrupted_ends_with_its_workers(made: Workspace) -> None:
    before = content(made)
    write(made.tree("p"), dict(MANY))
    process = start(made)
    while not (workers := children(process)):
        assert process.poll() is None
    time.sleep(0.4)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert error.count("Traceback") <= 1
    assert gone(workers)
    assert process.returncode == 0 or content(made) == before


@pytest.mark.slow
@pytest.mark.parametrize("cold", [True, False])
def test_killed_at_any_moment(cold: bool, made: Workspace, tmp_path: Path) -> None:
    """Kills spread over a build's time; after each the store is the old one or the new one, whole."""
    before = content(made)
    write(made.tree("p"), dict(MANY))
    after = clean(made, tmp_path)
    begun = time.perf_counter()
    assert finished(start(made)) == 0
    took = time.perf_counter() - begun
    chance, states = random.Random(cold), set()
    for _ in range(KILLS):
        made.index.unlink(missing_ok=True)
        for path in MANY:
            (made.tree("p") / path).unlink(missing_ok=True)
        if not cold:
            build(made, ["p"], jobs=1)
        write(made.tree("p"), dict(MANY))
        process = start(made)
        time.sleep(chance.uniform(0.1, took))
        workers = children(process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert gone(workers)
        if made.index.exists():
            with Index.open(made) as index:
                assert index.find("a")[0].symbol == "p:p.a.a"
        now = content(made) if made.index.exists() else None
        assert now in ((None, after) if cold else (before, after))
        states.add(now == after)
    assert finished(start(made)) == 0
    assert content(made) == after
    assert not made.index.with_suffix(".new").exists()
    assert False in states, "no kill came early enough to matter"


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_four_builds_and_a_reader_at_once(fresh: bool, made: Workspace, tmp_path: Path) -> None:
    write(made.tree("p"), dict(MANY))
    processes = [start(made, fresh=fresh) for _ in range(4)]
    asked = 0
    with Index.open(made) as early:
        while any(process.poll() is None for process in processes):
            with Index.open(made) as index:
                assert index.find("a")[0].symbol == "p:p.a.a"
                assert {use.path for use in index.uses(index.find("a")[0])} == {"p/b.py"}
            asked += 1
        assert early.find("a")[0].symbol == "p:p.a.a"
    assert [process.communicate()[0].strip() for process in processes] == ["63"] * 4
    assert asked > 1
    assert content(made) == clean(made, tmp_path)
