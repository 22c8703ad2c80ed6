"""The code that is read is the code that is run. Each load has a process of its own, as imports do not come undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from annotator.pins import fetch, tree
from annotator.workspace import Workspace
from tests.pins.support import INFO, SOURCES, table, wheel, workspace

ROOT = Path(__file__).parents[2]
SHOW = """
import json, sys
from annotator.errors import AnnotatorError
from annotator.pins import load
found = []
for symbol in sys.argv[1:]:
    try:
        if symbol.startswith("do "):
            exec(symbol[3:])
        else:
            found.append([load(symbol).__name__, load(symbol).__file__])
    except AnnotatorError as error:
        found.append([type(error).__name__, str(error)])
print(json.dumps(found))
"""
FILES = SOURCES | {
    "toy/lazy.py": "def late():\n    from toy.deep import leaf\n\n    return leaf.answer()\n",
    "toy/needy.py": "import no_such_dependency\n",
}


def toy(tmp_path: Path, **changes: object) -> Workspace:
    data = wheel(FILES)
    (tmp_path / "toy-1.0-py3-none-any.whl").write_bytes(data)
    place = workspace(tmp_path, toy=table("wheel", data, **changes))
    fetch(place, mirrors={"toy": tmp_path}, offline=True)
    return place


def loads(place: Workspace, *symbols: str, path: Path | None = None) -> list[list[str]]:
    """What ``load`` gives for each symbol (``do …`` runs code), one after the other in one fresh process."""
    environment = os.environ | {
        "ANNOTATOR_ROOT": str(place.root),
        "ANNOTATOR_CACHE": str(place.cache),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *([str(path)] if path else [])]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHOW, *symbols],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8").replace(old, new)
    path.unlink()
    path.write_text(text, encoding="utf-8")


def install(place: Workspace, folder: Path, version: str = "1.0") -> Path:
    """Something that looks like the installed distribution: the files of the tree, with metadata."""
    for path in tree(place, "toy").rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(tree(place, "toy"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    metadata = folder / INFO / "METADATA"
    metadata.write_text(f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n", encoding="utf-8")
    return folder


def test_a_module_is_imported_from_the_tree_with_its_metadata(tmp_path: Path) -> None:
    place = toy(tmp_path)
    root = tree(place, "toy")
    assert loads(
        place,
        "toy",
        "toy:toy.deep.leaf",
        "toy:toy.deep.leaf.answer",
        "do import importlib.metadata as m; found.append([m.version('toy'), str(sys.path[0])])",
        "do found.append([str(sys.modules['toy.deep.leaf'].answer()), ''])",
    ) == [
        ["toy", str(root / "toy/__init__.py")],
        ["toy.deep.leaf", str(root / "toy/deep/leaf.py")],
        ["toy.deep.leaf", str(root / "toy/deep/leaf.py")],
        ["1.0", str(root)],
        ["42", ""],
    ]
    assert not list(root.rglob("__pycache__")), "the shared tree stays as it was unpacked"


def test_the_tree_wins_over_an_installed_one(tmp_path: Path) -> None:
    place = toy(tmp_path)
    other = install(place, tmp_path / "site", "9.9")
    assert loads(place, "toy", path=other) == [["toy", str(tree(place, "toy") / "toy/__init__.py")]]
    ((kind, message),) = loads(place, "do import toy", "toy", path=other)
    assert kind == "PinError"
    assert "toy: expected toy from vendored_refs/toy, found " in message
    assert "load it before anything imports toy" in message


@pytest.mark.parametrize(
    "symbols", [("toy:toy.deep.leaf",), ("toy:toy.lazy", "do sys.modules['toy.lazy'].late()")], ids=["now", "late"]
)
def test_a_changed_file_does_not_run(tmp_path: Path, symbols: tuple[str, ...]) -> None:
    place = toy(tmp_path)
    spoil(tree(place, "toy") / "toy/deep/leaf.py", "def answer", "open('ran', 'w')\n\ndef answer")
    kind, message = loads(place, *symbols)[-1]
    assert kind == "DigestError"
    assert message.startswith("vendored_refs/toy/toy/deep/leaf.py: expected the bytes of toy 1.0 (sha256 ")
    assert not Path("ran").exists()


def test_a_file_that_the_pin_does_not_have_does_not_run(tmp_path: Path) -> None:
    place = toy(tmp_path)
    (tree(place, "toy") / "toy/extra.py").write_text("", encoding="utf-8")
    ((kind, message),) = loads(place, "do load('toy'); import toy.extra")
    assert kind == "DigestError"
    assert "vendored_refs/toy/toy/extra.py: expected a file of toy 1.0, found sha256" in message


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    place = toy(tmp_path)
    rows = {
        "toi": "toi: expected a pin of vendored_refs/pins.toml, found none of that name; did you mean toy?",
        "toy:toi.deep": "toy:toi.deep: expected a module of the pin, found none of that name; did you mean toy?",
        "toy:other": "found none of that name; it has toy",
        "toy:toy.needy": "toy:toy.needy: expected it to import, found ModuleNotFoundError: "
        "No module named 'no_such_dependency'; install what provides no_such_dependency",
    }
    for (kind, message), expected in zip(loads(place, *rows), rows.values(), strict=True):
        assert kind == "PinError"
        assert expected in message
    place.tree("toy").unlink()
    assert "found none; run `annotator fetch toy`" in loads(place, "toy")[0][1]


@pytest.fixture
def installed(tmp_path: Path) -> tuple[Workspace, Path]:
    place = toy(tmp_path, run="installed", distribution="toy", differs=["toy/version.py"])
    return place, install(place, tmp_path / "site")


def test_the_installed_one_is_imported_when_its_bytes_are_the_pins(installed: tuple[Workspace, Path]) -> None:
    place, site = installed
    assert loads(place, "toy:toy.deep.leaf", path=site) == [["toy.deep.leaf", str(site / "toy/deep/leaf.py")]]


@pytest.mark.parametrize(
    ("path", "new", "error"),
    [
        ("toy/deep/leaf.py", "43", "DigestError"),
        ("toy/version.py", "43", ""),
        ("toy/extra.py", "43", "DigestError"),
        ("toy/needy.py", "never imported", ""),
    ],
)
def test_installed_files_that_differ(installed: tuple[Workspace, Path], path: str, new: str, error: str) -> None:
    place, site = installed
    (site / path).write_text(f"VALUE = '{new}'\n", encoding="utf-8")
    name = path.removesuffix(".py").replace("/", ".")
    first = "toy" if "needy" in path else f"do load('toy'); import {name}; load('toy')"
    found = loads(place, first, path=site)
    if error:
        assert found[0][0] == error
        assert f"installed {path}: expected " in found[0][1]
        assert "pip install --force-reinstall --no-deps toy==1.0" in found[0][1]
    else:
        assert not found or found[0][0] == "toy"


def test_the_installed_version_is_compared(installed: tuple[Workspace, Path]) -> None:
    place, site = installed
    expected = "toy: expected toy 1.0 installed, found "
    assert loads(place, "toy") == [["PinError", f"{expected}none; pip install toy==1.0"]]
    install(place, site, "1.0+cpu")
    assert loads(place, "toy", path=site)[0][0] == "toy"
    install(place, site, "1.1")
    assert loads(place, "toy", path=site) == [["PinError", f"{expected}1.1; pip install toy==1.0"]]
