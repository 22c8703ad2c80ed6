"""Data for the search in the page: a name is found by what it and its parts begin with, and leads where it is read."""

import json
from pathlib import Path
from typing import Any

import pytest

from annotator.site import symbols
from annotator.site.atlas import current
from annotator.workspace import Workspace

from .conftest import write


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("GRPOTrainer", ["grpotrainer", "trainer"]),
        ("compute_grpo_advantage", ["computegrpoadvantage", "grpoadvantage", "advantage"]),
        ("__init__", ["init"]),
        ("top2Gating", ["top2gating", "2gating", "gating"]),
        ("operator=", ["operator"]),
        ("_", []),
    ],
)
def test_parts_of_names(name: str, parts: list[str]) -> None:
    assert symbols.beginnings(name) == parts


def test_many_names_are_cut_into_stretches_and_the_likeliest_of_a_crowd_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(symbols, "CROWD", 4)
    monkeypatch.setattr(symbols, "BEST", 2)
    names = {"tensor": 0, "tension": 1, "tend": 0, "tenTest": 7, "tenor": 0, "alpha": 0}
    firsts, shelves = symbols.stretches(names)
    assert firsts == sorted(firsts)
    assert len(firsts) == len(shelves) == 2
    assert {name for shelf in shelves for some in shelf for name in some} == set(names)
    crowds = symbols.best(names)
    assert set(crowds) == {"t", "te", "ten"}
    assert crowds["ten"][0] == ["tend", "tenor"]
    assert crowds["ten"][7] == []


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def defined(site: Path, name: str) -> list[tuple[str, int, str, str]]:
    contents = read(site / "symbols/manifest.json")
    number = max(at for at, first in enumerate(contents["names"]) if first <= name)
    shelf = read(site / f"symbols/names/{number}.json")
    return [
        (f"{shelf['folders'][folder]}/{file}", line, kind, within)
        for folder, file, line, kind, within in shelf["names"].get(name, [])
    ]


def test_every_definition_of_the_index_is_listed(workspace: Workspace, tmp_path: Path) -> None:
    atlas = current(workspace)
    symbols.write(atlas, tmp_path)
    for one in atlas.index.every():
        within = one.qualname.removesuffix(one.name).rstrip(".")
        assert (f"{one.pin}/{one.path}", one.line, one.kind, within) in defined(tmp_path, one.name)
    assert defined(tmp_path, "absent") == []
    assert defined(tmp_path, "apply") == [("demo/demo/maths.py", 15, "method", "Scale")]


def test_of_one_name_the_first_are_listed_and_the_rest_is_counted(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbols, "SAME", 2)
    rows = [("demo", f"{n}.py", 1, "function", "") for n in range(5)] + [("demo", "0.py", 9, "function", "")]
    packed = symbols._packed({"f": rows})
    assert packed == {
        "folders": ["demo"],
        "names": {"f": [[0, "0.py", 1, "function", ""], [0, "1.py", 1, "function", ""]]},
        "more": {"f": 3},
    }


def test_where_files_are_read(workspace: Workspace, tmp_path: Path) -> None:
    atlas = current(workspace)
    symbols.write(atlas, tmp_path / "some")
    some = read(tmp_path / "some/symbols/manifest.json")
    assert some["paged"] == ["demo/demo/main.py", "demo/demo/maths.py"]
    assert some["upstream"] == {"demo": "https://github.com/example/demo/blob/v1.2.3/"}
    atlas.whole = True
    symbols.write(atlas, tmp_path / "all")
    assert read(tmp_path / "all/symbols/manifest.json")["paged"] is True


def test_the_data_is_made_once_an_index(workspace: Workspace, tmp_path: Path) -> None:
    symbols.write(current(workspace), tmp_path / "one")
    symbols.write(current(workspace), tmp_path / "two")
    first, second = (tmp_path / name / "symbols/names/0.json" for name in ("one", "two"))
    assert first.samefile(second)
    write(workspace.tree("demo") / "demo/other.py", "def fresh():\n    pass\n")
    from annotator.index import build

    build(workspace)
    symbols.write(current(workspace), tmp_path / "three")
    assert defined(tmp_path / "three", "fresh") == [("demo/demo/other.py", 1, "function", "")]
    assert defined(tmp_path / "one", "fresh") == []
