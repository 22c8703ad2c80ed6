"""Fetching from a registry that misbehaves: what is verified, what is kept, what is said."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from annotator.errors import AnnotatorError, DigestError, FetchError, PinError, UnsafeArchiveError
from annotator.pins import fetch, fetching, registry, relock, tree, verify
from annotator.pins.lock import read_lock
from annotator.workspace import Workspace
from tests.pins.support import Registry, kept_tree, sdist, sha256, table, wheel, workspace

WHEEL, SDIST, LARGE = wheel(), sdist(), wheel(padding=1_000_000)
NAMES = {"wheel": "toy-1.0-py3-none-any.whl", "members": "toy-1.0-py3-none-any.whl", "sdist": "toy-1.0.tar.gz"}
DATA = {"wheel": WHEEL, "members": LARGE, "sdist": SDIST}


@pytest.fixture(params=list(DATA))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, **changes: object) -> tuple[Workspace, Registry]:
    server = Registry({NAMES[kind]: DATA[kind]})
    return workspace(tmp_path, toy=table(kind, DATA[kind], **changes)), server


def use(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url)


def leftovers(place: Workspace) -> list[str]:
    """What a failed fetch must not leave: trees, drafts, links."""
    found = list((place.cache / "trees").glob("*")) if (place.cache / "trees").exists() else []
    return [str(path) for path in (*found, *place.state.glob("toy"), *place.state.glob(".*"))]


def test_fetch_verifies_places_and_then_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    place, server = served(tmp_path, monkeypatch, kind)
    with server:
        use(server, monkeypatch)
        (first,) = fetch(place)
        assert not first.skipped
        asked = len(server.asked)
        began = time.perf_counter()
        (second,) = fetch(place)
        assert time.perf_counter() - began < 0.1
    assert second.skipped
    assert len(server.asked) == asked
    assert first.path == second.path == tree(place, "toy")
    assert place.tree("toy").is_symlink()
    verify(place, "toy")
    assert sorted(p.name for p in first.path.rglob("*.py")) == ["__init__.py", "__init__.py", "leaf.py"]


def test_with_a_cached_artifact_no_network_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place, server = served(tmp_path, monkeypatch, kind)
    with server:
        use(server, monkeypatch)
        fetch(place)
    place.tree("toy").unlink()
    (place.cache / "trees").rename(place.cache / "gone")
    (again,) = fetch(place)
    assert again.received == 0
    verify(place, "toy")


def test_no_network_and_nothing_cached(tmp_path: Path, kind: str) -> None:
    place = workspace(tmp_path, toy=table(kind, DATA[kind]), second=table(kind, DATA[kind]))
    for offline, found in (
        (False, "no answer from the registry (ConnectionError)"),
        (True, "the network is not to be used"),
    ):
        with pytest.raises(FetchError) as caught:
            fetch(place, offline=offline)
        assert str(caught.value) == (
            f"toy, second: expected its artifact in the cache, or a network, found nothing cached and {found}; "
            "connect once and run `annotator fetch`, or give the source with --mirror NAME=PATH"
        )
    assert leftovers(place) == []


def test_a_broken_line_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    place, server = served(tmp_path, monkeypatch, kind)
    server.faults = ["cut", "busy", "cut"]
    monkeypatch.setattr(registry, "CHUNK", 1 if kind != "members" else registry.CHUNK)
    with server:
        use(server, monkeypatch)
        fetch(place)
    verify(place, "toy")
    if kind != "members":
        starts = [asked for path, asked in server.asked if "/files/" in path]
        half, rest = len(DATA[kind]) // 2, len(DATA[kind]) - len(DATA[kind]) // 2
        assert starts == [None, f"bytes={half}-", f"bytes={half}-", f"bytes={half + rest // 2}-"]
        assert server.sent - len(server.page()) == len(DATA[kind]), "no byte came twice"


def test_a_truncated_download_keeps_its_part_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, server = served(tmp_path, monkeypatch, "wheel")
    server.faults = ["cut", "gone"]
    monkeypatch.setattr(registry, "CHUNK", 1)
    with server:
        use(server, monkeypatch)
        with pytest.raises(FetchError) as caught:
            fetch(place)
        half = len(WHEEL) // 2
        assert str(caught.value) == (
            f"{NAMES['wheel']}: expected {len(WHEEL):,} bytes, found {half:,} before the line broke; "
            "the part is kept; run `annotator fetch toy` again to continue"
        )
        assert leftovers(place) == []
        (done,) = fetch(place)
        assert done.received == len(WHEEL) - half
    verify(place, "toy")


def test_a_file_that_is_shorter_than_the_lock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, server = served(tmp_path, monkeypatch, "wheel")
    server.files, server.stated = {NAMES["wheel"]: WHEEL[:-100]}, {NAMES["wheel"]: sha256(WHEEL)}
    with server:
        use(server, monkeypatch)
        for _ in range(2):
            with pytest.raises(FetchError, match=f"found {len(WHEEL) - 100:,} before the line broke"):
                fetch(place)


@pytest.mark.parametrize("fault", ["changed", "longer"])
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_wrong_bytes_are_refused_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fault: str
) -> None:
    place, server = served(tmp_path, monkeypatch, kind)
    wrong = DATA[kind][:-1] + b"?" if fault == "changed" else DATA[kind] + b"?"
    server.files, server.stated = {NAMES[kind]: wrong}, {NAMES[kind]: sha256(DATA[kind])}
    with server:
        use(server, monkeypatch)
        with pytest.raises(DigestError) as caught:
            fetch(place)
    wanted = (
        f"sha256 {sha256(DATA[kind])}, found {sha256(wrong)}" if fault == "changed" else f"{len(DATA[kind]):,} bytes"
    )
    assert f"{NAMES[kind]}: expected {wanted}" in str(caught.value)
    assert "nothing was unpacked" in str(caught.value)
    assert leftovers(place) == []
    assert list((place.cache / "artifacts").glob("*")) == []


def test_the_registry_states_another_digest_than_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place, server = served(tmp_path, monkeypatch, kind)
    server.stated = {NAMES[kind]: "0" * 64}
    with server:
        use(server, monkeypatch)
        with pytest.raises(DigestError, match=r"found 0000.* in the registry's index"):
            fetch(place)
    assert not [path for path, _ in server.asked if "/files/" in path], "nothing was downloaded"


@pytest.mark.parametrize(
    ("changes", "kind", "error", "message"),
    [
        ({"tree": "0" * 64}, "wheel", DigestError, "toy: 5 kept files: expected tree digest 0000"),
        ({"record": "0" * 64}, "members", DigestError, "RECORD: expected sha256 0000"),
        (
            {"artifact": "toy-2.0.whl"},
            "wheel",
            FetchError,
            "toy-2.0.whl: expected it in the registry's toy, found none of that name",
        ),
        ({"project": "toi"}, "wheel", FetchError, "toi: expected a project of the registry"),
    ],
)
def test_a_lock_that_asks_for_something_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    kind: str,
    error: type[Exception],
    message: str,
) -> None:
    place, server = served(tmp_path, monkeypatch, kind, **changes)
    with server:
        use(server, monkeypatch)
        with pytest.raises(error) as caught:
            fetch(place)
    assert message in str(caught.value)
    assert leftovers(place) == []


def test_members_brings_only_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, server = served(tmp_path, monkeypatch, "members")
    with server:
        use(server, monkeypatch)
        (done,) = fetch(place)
    assert done.received < len(LARGE) // 5
    assert sum("/files/" in path for path, _ in server.asked) <= 4


def test_members_from_a_registry_without_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, server = served(tmp_path, monkeypatch, "members")
    server.ranges = False
    with server:
        use(server, monkeypatch)
        fetch(place)
    verify(place, "toy")


def test_a_changed_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole wheel is never here to hash, so each member must be caught by RECORD."""
    evil = wheel({"toy/__init__.py": "import evil\n"}, padding=1_000_000)
    place, server = served(tmp_path, monkeypatch, "members", size=len(evil))
    server.files, server.stated = {NAMES["members"]: evil}, {NAMES["members"]: sha256(LARGE)}
    with server:
        use(server, monkeypatch)
        with pytest.raises(DigestError, match="RECORD"):
            fetch(place)
    assert leftovers(place) == []


def test_a_damaged_cached_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, server = served(tmp_path, monkeypatch, "wheel")
    (place.cache / "artifacts").mkdir(parents=True)
    cached = place.cache / "artifacts" / NAMES["wheel"]
    cached.write_bytes(WHEEL[:-1] + b"?")
    with pytest.raises(DigestError):
        fetch(place, offline=True)
    with server:
        use(server, monkeypatch)
        fetch(place)
    assert cached.read_bytes() == WHEEL


def test_a_bomb_behind_a_right_digest(tmp_path: Path) -> None:
    bomb = wheel({"toy/__init__.py": "0" * (65 << 20)})
    (tmp_path / NAMES["wheel"]).write_bytes(bomb)
    place = workspace(tmp_path, toy=table("wheel", bomb))
    with pytest.raises(UnsafeArchiveError, match=r"'toy/__init__\.py': expected at most 67,108,864 bytes, found more"):
        fetch(place, mirrors={"toy": tmp_path})
    assert leftovers(place) == []


@pytest.mark.parametrize(
    ("mirrors", "message"),
    [
        ({"toy": "nowhere"}, "--mirror toy=nowhere: expected toy-1.0-py3-none-any.whl or its folder"),
        ({"toi": "."}, "toi: expected a pin"),
    ],
)
def test_a_mirror_that_is_none(tmp_path: Path, mirrors: dict[str, str], message: str) -> None:
    with pytest.raises(PinError) as caught:
        fetch(workspace(tmp_path, toy=table("wheel", WHEEL)), mirrors=mirrors)
    assert message in str(caught.value)


def test_a_killed_fetch_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, server = served(tmp_path, monkeypatch, "wheel")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with server:
        use(server, monkeypatch)
        with monkeypatch.context() as patched:
            patched.setattr(fetching, "check_tree", killed)
            with pytest.raises(KeyboardInterrupt):
                fetch(place)
        assert leftovers(place) == []
        fetch(place)
    verify(place, "toy")


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / NAMES["wheel"]).write_bytes(WHEEL)
    place = workspace(tmp_path, toy=table("wheel", WHEEL))
    slug = read_lock(place.lock)["toy"].slug
    (place.cache / "trees" / f".{slug}.killed" / "tree").mkdir(parents=True)
    (place.cache / "trees" / f".{slug}.manifest.json.killed").touch()
    fetch(place, mirrors={"toy": tmp_path})
    assert sorted(path.name for path in (place.cache / "trees").iterdir()) == [slug, f"{slug}.manifest.json"]


@pytest.mark.parametrize("alone", [True, False], ids=["waiting", "racing"])
def test_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """Two checkouts with one cache; also without the lock file, as on systems that have none."""
    mirrors = {"toy": tmp_path}
    (tmp_path / NAMES["wheel"]).write_bytes(WHEEL)
    if not alone:
        monkeypatch.setattr(fetching, "_alone", lambda path: nullcontext(False))
    places = [workspace(tmp_path / str(number), toy=table("wheel", WHEEL)) for number in range(4)]
    shared = [Workspace(root=place.root, cache=tmp_path / "cache", state=place.state) for place in places]
    failed: list[BaseException] = []

    def one(place: Workspace) -> None:
        try:
            fetch(place, mirrors=mirrors)
        except AnnotatorError as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(place,)) for place in shared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for place in shared:
        verify(place, "toy")


def test_one_failure_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = workspace(
        tmp_path,
        bad=table("wheel", WHEEL, tree="0" * 64),
        toy=table("wheel", WHEEL),
        worse=table("wheel", WHEEL, size=1),
    )
    (tmp_path / NAMES["wheel"]).write_bytes(WHEEL)
    with pytest.raises(PinError) as caught:
        fetch(place, mirrors=dict.fromkeys(("bad", "toy", "worse"), tmp_path))
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("bad: 5 kept files: expected tree digest 0000")
    assert f"expected 1 bytes, found {len(WHEEL):,}" in lines[1]
    verify(place, "toy")


def test_optional_pins_are_fetched_only_by_name(tmp_path: Path) -> None:
    (tmp_path / NAMES["wheel"]).write_bytes(WHEEL)
    place = workspace(tmp_path, toy=table("wheel", WHEEL, optional=True))
    assert fetch(place, mirrors={"toy": tmp_path}) == []
    assert [done.name for done in fetch(place, ["toy"], mirrors={"toy": tmp_path})] == ["toy"]


def test_progress_is_told_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    class Book:
        def __init__(self) -> None:
            self.total, self.done, self.finished = 0, 0, 0

        def start(self, task: str, total: int | None) -> None:
            assert task == "toy"
            self.total = total or 0

        def advance(self, task: str, amount: int) -> None:
            self.done += amount

        def finish(self, task: str) -> None:
            self.finished += 1

    place, server = served(tmp_path, monkeypatch, kind)
    book = Book()
    with server:
        use(server, monkeypatch)
        fetch(place, progress=book)
    assert book.done == book.total > 0
    assert book.finished == 1


def test_relock_computes_what_the_lock_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fields = table(kind, DATA[kind])
    place, server = served(tmp_path, monkeypatch, kind, sha256=None, size=None, tree=None, record=None)
    with server:
        use(server, monkeypatch)
        lines = relock(place, "toy")
    assert f'tree = "{kept_tree(DATA[kind], kind)}"' in lines
    place.lock.write_text(place.lock.read_text(encoding="utf-8") + lines + "\n", encoding="utf-8")
    pin = read_lock(place.lock)["toy"]
    assert (pin.sha256, pin.size, pin.tree, pin.record) == (
        fields["sha256"],
        fields["size"],
        fields["tree"],
        fields.get("record"),
    )


def test_ranges_near_each_other_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    members = []
    for name, offset in (("a.py", 0), ("big.so", 100), ("b.py", 100_000), ("c.py", 100_200), ("d.so", 100_300)):
        info = zipfile.ZipInfo(name)
        info.header_offset = offset
        members.append(info)
    keep = lambda path: path.endswith(".py")  # noqa: E731
    assert registry.plan(members, keep, 200_000) == [(0, 100), (100_000, 100_300)]
    monkeypatch.setattr(registry, "GAP", 100_000)
    assert registry.plan(members, keep, 200_000) == [(0, 100_300)]
