"""Which files are kept, what digest they have together, and what becomes of stale, damaged or foreign trees."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from annotator.errors import DigestError, PinError
from annotator.pins import fetch, tree, verify
from annotator.pins.trees import keeper, scan, tree_digest
from annotator.workspace import Workspace
from tests.pins.support import SOURCES, table, wheel, workspace

GLOBS = [
    ("a/**", "a/b/c.py", True),
    ("a/**", "b/a/c.py", False),
    ("a/*", "a/b.py", True),
    ("a/*", "a/b/c.py", False),
    ("**/*.py", "c.py", True),
    ("a/**/*.py", "a/c.py", True),
    ("a/**/*.py", "a/b/b/c.py", True),
    ("a/**/*.py", "a/b/c.pyi", False),
    ("{a,b}/**/*.{py,pyi}", "b/c.pyi", True),
    ("{a,b}/**/*.{py,pyi}", "ab/c.pyi", False),
    ("a+b/?.py", "a+b/c.py", True),
    ("a.b", "aXb", False),
    ("LICENSE", "x/LICENSE", False),
]


@pytest.mark.parametrize(("glob", "path", "kept"), GLOBS)
def test_globs(glob: str, path: str, kept: bool) -> None:
    assert keeper([glob])(path) is kept
    assert keeper(["nothing", glob])(path) is kept


def test_no_glob_keeps_nothing() -> None:
    assert not keeper([])("")


def test_tree_digest_is_the_stated_one() -> None:
    one, two = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    stated = hashlib.sha256(f"a/b\0{two}\na/c\0{one}\n".encode()).hexdigest()
    assert tree_digest({"a/c": one, "a/b": two}) == stated
    for other in (
        {"a/c": one},
        {"a/c": two, "a/b": one},
        {"a/c": one, "a/B": two},
        {"a/c": one, "a/b": two, "a/d": one},
    ):
        assert tree_digest(other) != stated


@pytest.fixture
def toy(tmp_path: Path) -> Workspace:
    """A checkout with the toy fetched from a file."""
    data = wheel()
    (tmp_path / "toy-1.0-py3-none-any.whl").write_bytes(data)
    place = workspace(tmp_path, toy=table("wheel", data))
    fetch(place, mirrors={"toy": tmp_path}, offline=True)
    return place


def test_a_whole_tree_verifies(toy: Workspace) -> None:
    verify(toy, "toy")
    (tree(toy, "toy") / "toy" / "__pycache__").mkdir()
    (tree(toy, "toy") / "toy" / "__pycache__" / "x.pyc").write_bytes(b"")
    verify(toy, "toy")


def spoil(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("path", "data", "found"),
    [
        ("toy/deep/leaf.py", SOURCES["toy/deep/leaf.py"].replace("42", "43").encode(), "found sha256"),
        ("toy/deep/leaf.py", None, "found no such file"),
        ("toy/more.py", b"", "found a file that the pin does not have"),
    ],
)
def test_a_damaged_tree_is_noticed_and_repaired(toy: Workspace, path: str, data: bytes | None, found: str) -> None:
    place = tree(toy, "toy") / path
    place.unlink() if data is None else spoil(place, data)
    with pytest.raises(DigestError) as caught:
        verify(toy, "toy")
    assert str(caught.value).startswith(f"vendored_refs/toy/{path}: expected the bytes of toy 1.0, {found}")
    assert "run `annotator fetch toy --verify`" in str(caught.value)

    mirrors = {"toy": toy.root.parent}
    assert fetch(toy, mirrors=mirrors)[0].skipped, "without `repair` a tree that is there is not hashed"
    assert not fetch(toy, mirrors=mirrors, repair=True)[0].skipped
    verify(toy, "toy")
    assert fetch(toy, mirrors=mirrors, repair=True)[0].skipped


def test_a_damaged_manifest_is_not_believed(toy: Workspace) -> None:
    stored = toy.cache / "trees"
    for path in stored.glob("*.manifest.json"):
        path.write_text('{"toy/__init__.py": "00"}', encoding="utf-8")
    verify(toy, "toy")
    spoil(tree(toy, "toy") / "toy" / "__init__.py", b"x = 1\n")
    with pytest.raises(DigestError, match=r"expected the bytes of toy 1\.0"):
        verify(toy, "toy")


def test_without_a_tree_the_remedy_is_named(tmp_path: Path) -> None:
    place = workspace(tmp_path, toy=table("wheel", wheel()))
    with pytest.raises(PinError) as caught:
        tree(place, "toy")
    assert str(caught.value) == "vendored_refs/toy: expected the tree of toy 1.0, found none; run `annotator fetch toy`"
    with pytest.raises(PinError, match=r"toi: expected a pin .* did you mean toy\?"):
        tree(place, "toi")


def test_a_tree_of_another_lock_is_stale_and_replaced(toy: Workspace) -> None:
    old = tree(toy, "toy")
    data = wheel(SOURCES | {"toy/__init__.py": "NAME = 'new'\n"})
    (toy.root.parent / "toy-1.0-py3-none-any.whl").write_bytes(data)
    moved = workspace(toy.root.parent, toy=table("wheel", data))
    with pytest.raises(PinError, match="found one of other bytes; run `annotator fetch toy`"):
        tree(moved, "toy")
    fetch(moved, mirrors={"toy": toy.root.parent}, offline=True)
    assert (tree(moved, "toy") / "toy" / "__init__.py").read_text(encoding="utf-8") == "NAME = 'new'\n"
    assert old.is_dir(), "another checkout may still use it"


def test_the_users_own_folder_is_used_and_left_alone(toy: Workspace) -> None:
    place = toy.tree("toy")
    place.unlink()
    (place / "toy").mkdir(parents=True)
    (place / "toy" / "__init__.py").write_text("NAME = 'mine'\n", encoding="utf-8")
    assert fetch(toy, offline=True)[0].skipped
    assert tree(toy, "toy") == place.resolve()
    assert set(scan(place)) == {"toy/__init__.py"}
    with pytest.raises(DigestError, match="or remove your own copy first"):
        fetch(toy, offline=True, repair=True)
    assert set(scan(place)) == {"toy/__init__.py"}


def test_where_links_cannot_be_made_the_tree_is_copied(toy: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no links here")

    toy.tree("toy").unlink()
    monkeypatch.setattr(os, "symlink", refuse)
    fetch(toy, offline=True)
    assert toy.tree("toy").is_dir()
    assert not toy.tree("toy").is_symlink()
    verify(toy, "toy")
    assert fetch(toy, offline=True)[0].skipped
    # A copy of ours of another lock is replaced, unlike a folder of the user's.
    data = wheel(SOURCES | {"toy/__init__.py": ""})
    (toy.root.parent / "toy-1.0-py3-none-any.whl").write_bytes(data)
    moved = workspace(toy.root.parent, toy=table("wheel", data))
    assert not fetch(moved, mirrors={"toy": toy.root.parent}, offline=True)[0].skipped
    verify(moved, "toy")
