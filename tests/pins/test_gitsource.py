"""Pins of kind git, from a repository that the test makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from git import Actor, Repo

from annotator.errors import DigestError, FetchError, PinError, UnsafeArchiveError
from annotator.pins import fetch, load, relock, tree, verify
from annotator.workspace import Workspace
from tests.pins.support import sha256, workspace

WHO = Actor("A", "a@example.org")
FILES = {
    "core/a.h": "int a();\n",
    "core/deep/b.h": "int b();\r\n",
    "core/odd [name]*.h": "int odd();\n",
    "other/c.h": "int c();\n",
    "core/a.py": "A = 1\n",
}


def upstream(root: Path, files: dict[str, str] = FILES, **links: str) -> tuple[Path, str]:
    """A repository of two commits, the first tagged v1.0; returns its path and the first commit."""
    place = root / "upstream"
    with Repo.init(place) as repository:
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(text.encode())
        for name, target in links.items():
            (place / "core" / name).symlink_to(target)
        # Attributes that would change bytes on checkout: they must not act on ours.
        (place / ".gitattributes").write_text("*.h text eol=crlf\n", encoding="utf-8")
        repository.index.add([*files, *(f"core/{name}" for name in links), ".gitattributes"])
        first = repository.index.commit("one", author=WHO, committer=WHO).hexsha
        repository.create_tag("v1.0")
        (place / "core" / "a.h").write_text("int later();\n", encoding="utf-8")
        repository.index.add(["core/a.h"])
        repository.index.commit("two", author=WHO, committer=WHO)
    return place, first


def lock(root: Path, commit: str, **changes: Any) -> Workspace:
    fields: dict[str, Any] = {
        "version": "1.0",
        "kind": "git",
        "license": "MIT",
        "repository": "some/toy",
        "ref": "v1.0",
        "commit": commit,
        "paths": ["core/**/*.h"],
        "optional": True,
    }
    return workspace(root, toy_cpp=fields | changes)


def test_only_the_kept_files_of_the_commit_come(tmp_path: Path) -> None:
    source, commit = upstream(tmp_path)
    place = lock(tmp_path, commit)
    assert fetch(place) == [], "optional: not unless named"
    (done,) = fetch(place, ["toy-cpp"], mirrors={"toy-cpp": source})
    found = {
        path.relative_to(done.path).as_posix(): path.read_bytes() for path in done.path.rglob("*") if path.is_file()
    }
    assert found == {
        name: text.encode() for name, text in FILES.items() if name.startswith("core/") and name.endswith(".h")
    }
    assert fetch(place, ["toy-cpp"])[0].skipped
    verify(place, "toy-cpp")
    assert [path.name for path in (place.cache / "trees").iterdir() if path.name.startswith(".")] == []


def test_relock_gives_the_tree_digest_and_it_is_checked(tmp_path: Path) -> None:
    source, commit = upstream(tmp_path)
    line = relock(lock(tmp_path, commit), "toy-cpp", mirror=source)
    digest = line.removeprefix('tree = "').removesuffix('"')
    assert len(digest) == 64
    place = lock(tmp_path, commit, tree=digest)
    fetch(place, ["toy-cpp"], mirrors={"toy-cpp": str(source)})
    verify(place, "toy-cpp")
    wrong = lock(tmp_path, commit, tree=sha256(b""))
    with pytest.raises(DigestError, match="toy-cpp: 3 kept files: expected tree digest"):
        fetch(wrong, ["toy-cpp"], mirrors={"toy-cpp": source})


def test_absent_it_says_how_to_get_it(tmp_path: Path) -> None:
    place = lock(tmp_path, "0" * 40)
    with pytest.raises(PinError) as caught:
        tree(place, "toy-cpp")
    assert str(caught.value).endswith("expected the tree of toy-cpp 1.0, found none; run `annotator fetch toy-cpp`")
    with pytest.raises(FetchError, match="nothing cached and the network is not to be used"):
        fetch(place, ["toy-cpp"], offline=True)
    with pytest.raises(PinError, match="expected a pin that can be imported, found one that is only read"):
        load("toy-cpp", place)


def test_bad_sources(tmp_path: Path) -> None:
    source, commit = upstream(tmp_path)
    rows: list[tuple[dict[str, Any], object, type[Exception], str]] = [
        ({"commit": "1" * 40, "ref": "v9"}, source, FetchError, f"toy-cpp: expected commit {'1' * 40}"),
        ({"commit": "1" * 40}, source, DigestError, f"toy-cpp: tag v1.0: expected commit {'1' * 40}, found {commit}"),
        ({"paths": ["nothing/**"]}, source, FetchError, "expected files of nothing/**, found none in that commit"),
        ({}, tmp_path / "nowhere", FetchError, "or give a clone with --mirror toy-cpp=PATH"),
        ({}, "ext::sh -c touch% evil", FetchError, "transport 'ext' not allowed"),
        ({}, "--upload-pack=evil", FetchError, "toy-cpp: expected commit"),
    ]
    for changes, mirror, error, message in rows:
        place = lock(tmp_path, changes.get("commit", commit), **{k: v for k, v in changes.items() if k != "commit"})
        with pytest.raises(error) as caught:
            fetch(place, ["toy-cpp"], mirrors={"toy-cpp": str(mirror)})
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not list((place.cache / "trees").glob("*"))
        assert not list(tmp_path.rglob("evil"))


def test_a_kept_link_is_refused_and_another_is_not(tmp_path: Path) -> None:
    source, commit = upstream(tmp_path, **{"link.h": "/etc/passwd"})
    place = lock(tmp_path, commit)
    with pytest.raises(UnsafeArchiveError, match=r"toy-cpp: 'core/link\.h': expected plain files .* found a link"):
        fetch(place, ["toy-cpp"], mirrors={"toy-cpp": source})
    fetch(lock(tmp_path, commit, paths=["core/a.h"]), ["toy-cpp"], mirrors={"toy-cpp": source})
