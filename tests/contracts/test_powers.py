"""What a contract caught is kept with what it rests on, and no longer holds once that changes."""

import dataclasses
import json

import pytest

from annotator.contracts import Kill, powers
from annotator.errors import ContractError
from annotator.workspace import Workspace
from tests.contracts import toy


@pytest.fixture
def workspace(tmp_path):
    tree = tmp_path / "vendored_refs" / "torch" / "pkg"
    tree.mkdir(parents=True)
    (tree / "__init__.py").write_text("")
    (tree / "toy.py").write_text("def f():\n    return 1\n")
    (tmp_path / "vendored_refs" / "pins.toml").write_text("")
    (tmp_path / "minimal").mkdir()
    (tmp_path / "minimal" / "toy_numpy.py").write_text("x = 1\n")
    return Workspace.find(tmp_path)


def contract(**changes):
    reference = dataclasses.replace(toy.REFERENCE, symbols=("torch:pkg.toy.f",))
    return toy.contract(implementations=(reference, toy.MINIMAL[1]), **changes)


def kill(name, probes, dtype="float64", kind="deviation"):
    return Kill("toy-mean", name, "ref", dtype, probes, 1.0, 1e-10, kind=kind)


ROWS = [
    kill("summed", ("value", "edge")),
    kill("summed", ("value",), "float32"),
    kill("other-way", (), kind="rewriting"),
    kill("other-way", ("edge",), "float32", kind="rewriting"),
]


def test_it_is_kept_by_deviation_and_dtype(workspace):
    path = powers.record(workspace, contract(), ROWS)
    assert path == workspace.proofs / "power" / "cpu.json"
    kept = powers.load(workspace)["toy-mean"]
    assert kept["deviations"] == {"summed": {"float64": "value edge", "float32": "value"}}
    assert kept["rewritings"] == {"other-way": {"float64": "", "float32": "edge"}}
    assert {"contract", "deviations", "torch:pkg.toy.f", "adapter of ref"} <= set(kept["digests"])
    assert kept["versions"]["python"]


def test_an_entry_takes_the_place_of_the_one_before_and_leaves_others(workspace):
    powers.record(workspace, dataclasses.replace(contract(), name="another"), ROWS)
    powers.record(workspace, contract(), ROWS)
    powers.record(workspace, contract(), ROWS[:1])
    kept = powers.load(workspace)
    assert set(kept) == {"another", "toy-mean"}
    assert kept["toy-mean"]["rewritings"] == {}
    assert kept["another"]["rewritings"] != {}


def test_a_survivor_is_not_recorded(workspace):
    with pytest.raises(ContractError, match=r"expected every deviation caught, found summed .*SURVIVES"):
        powers.record(workspace, contract(), [kill("summed", ())])
    assert powers.load(workspace) == {}


def test_it_is_not_stale_until_something_changes(workspace):
    powers.record(workspace, contract(), ROWS)
    kept = powers.load(workspace)["toy-mean"]
    assert powers.stale(workspace, contract(), kept) == ""
    (workspace.tree("torch") / "pkg" / "toy.py").write_text("def f():\n    return 2\n")
    assert powers.stale(workspace, contract(), kept) == "torch:pkg.toy.f changed since it was recorded"
    assert powers.check(workspace, [contract()])[0].message.endswith("run annotator conform --power --record")


def test_another_contract_is_stale(workspace):
    powers.record(workspace, contract(), ROWS)
    kept = powers.load(workspace)["toy-mean"]
    assert "contract changed" in powers.stale(workspace, contract(kind="trace"), kept)


def test_a_contract_without_an_entry_is_told(workspace):
    assert "not recorded which deviations" in powers.check(workspace, [contract()])[0].message
    powers.record(workspace, contract(), ROWS)
    assert powers.check(workspace, [contract()]) == []


@pytest.mark.parametrize("text", ["", "[]", '{"toy-mean": {}}', '{"toy-mean": 3}'])
def test_a_record_that_is_none_is_told(workspace, text):
    path = workspace.proofs / "power" / "cpu.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ContractError, match="expected what contracts caught"):
        powers.load(workspace)


def test_the_file_is_sorted(workspace):
    for name in ("b", "a"):
        path = powers.record(workspace, dataclasses.replace(contract(), name=name), ROWS)
    assert list(json.loads(path.read_text())) == ["a", "b"]
