"""Proofs hold while the code that they rest on is unchanged, and no longer."""

import dataclasses
import hashlib
import json

import pytest

from annotator.catalog import contract
from annotator.contracts import Finding, proofs
from annotator.errors import ContractError
from annotator.workspace import Workspace
from tests.contracts import toy

SOURCE = """
import os

@os.fspath
def f():
    return 1


class C:
    def m(self):
        return 1


if os:
    def g():
        return 1
"""


@pytest.fixture
def workspace(tmp_path):
    tree = tmp_path / "vendored_refs" / "torch" / "pkg"
    tree.mkdir(parents=True)
    (tree / "__init__.py").write_text("")
    (tree / "toy.py").write_text(SOURCE)
    (tmp_path / "vendored_refs" / "pins.toml").write_text("")
    (tmp_path / "minimal").mkdir()
    (tmp_path / "minimal" / "toy_numpy.py").write_text("x = 1\n")
    return Workspace.find(tmp_path)


def _contract(symbol="torch:pkg.toy.f", **changes):
    reference = dataclasses.replace(toy.REFERENCE, symbols=(symbol,))
    return toy.contract(implementations=(reference, toy.MINIMAL[1]), **changes)


def _findings(status="passed"):
    return [
        Finding("toy-mean", name, "ref", dtype, "cpu", status, cases=5, error=1.23456e-17, bound=1e-10)
        for name in ("ref", "minimal-numpy")
        for dtype in ("float64", "float32")
    ]


def _record(workspace, findings=None, contract=None):
    return proofs.record(workspace, _findings() if findings is None else findings, [contract or _contract()])


def _messages(workspace, contract=None):
    return [f"{item.place}: {item.message}" for item in proofs.check(workspace, [contract or _contract()])]


def test_an_entry_holds_what_it_rests_on(workspace):
    path = _record(workspace)
    assert path == workspace.proofs / "cpu.json"
    entry = proofs.load(workspace)["cpu"][0]
    assert (entry["implementation"], entry["dtype"], entry["reference"]) == ("minimal-numpy", "float32", "ref")
    assert entry["error"] == 1.23e-17
    assert set(entry["digests"]) == {
        "contract", "adapter of ref", "adapter of minimal-numpy", "torch:pkg.toy.f", "minimal/toy_numpy.py",
    }  # fmt: skip
    assert {"python", "torch", "numpy"} <= set(entry["versions"])


def test_what_is_recorded_holds_and_is_stable(workspace):
    text = _record(workspace).read_text()
    assert _messages(workspace) == []
    assert _record(workspace, list(reversed(_findings()))).read_text() == text
    assert json.loads(text)["device"] == "cpu"


CHANGES = [
    ("vendored_refs/torch/pkg/toy.py", "def f():\n    return 1", "def f():\n    return 2", "torch:pkg.toy.f changed"),
    ("vendored_refs/torch/pkg/toy.py", "@os.fspath", "@os.fsencode", "torch:pkg.toy.f changed"),
    ("minimal/toy_numpy.py", "x = 1", "x = 2", "minimal/toy_numpy.py changed"),
    ("vendored_refs/torch/pkg/toy.py", "def f():", "def h():", "expected 'f' in toy.py"),
    ("vendored_refs/torch/pkg/toy.py", "class C:", "class D:", ""),
    ("vendored_refs/torch/pkg/toy.py", "import os\n", "import os\n\n\n", ""),
]


@pytest.mark.parametrize(("path", "old", "new", "message"), CHANGES)
def test_a_change_makes_stale_what_rests_on_it(workspace, path, old, new, message):
    _record(workspace)
    file = workspace.root / path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    found = _messages(workspace)
    assert bool(found) == bool(message)
    assert all(message in line and "tests/proofs/cpu.json: toy-mean" in line and "--record" in line for line in found)


def test_a_changed_contract_makes_its_proofs_stale(workspace):
    _record(workspace)
    knob = dataclasses.replace(_contract().knobs[0], default=1e-4)
    assert all("contract changed" in line for line in _messages(workspace, _contract(knobs=(knob,))))
    assert len(_messages(workspace, _contract(knobs=(knob,)))) == 4


def test_what_is_missing_is_named(workspace):
    assert len(_messages(workspace)) == 4
    _record(workspace, _findings()[:3])
    assert _messages(workspace) == [
        "tests/proofs/cpu.json: toy-mean, minimal-numpy at ref, float32: no proof; run annotator conform --record"
    ]


def test_what_failed_is_not_recorded(workspace):
    _record(workspace, [*_findings()[:3], dataclasses.replace(_findings()[3], status="failed")])
    assert len(proofs.load(workspace)["cpu"]) == 3
    with pytest.raises(ContractError, match="passed"):
        _record(workspace, _findings("failed"))


def test_recording_anew_replaces_only_its_own(workspace):
    _record(workspace)
    _record(workspace, [dataclasses.replace(_findings()[0], cases=99)])
    assert sorted(item["cases"] for item in proofs.load(workspace)["cpu"]) == [5, 5, 5, 99]


def test_an_entry_of_nothing_known(workspace):
    _record(workspace)
    assert all("no such contract" in line.message for line in proofs.check(workspace, []))
    gone = toy.contract(implementations=(_contract().implementations[0],))
    assert any("has no implementation 'minimal-numpy' any more" in line for line in _messages(workspace, gone))


def _on_a_gpu(workspace, findings=None):
    return proofs.record(workspace, findings or _findings(), [_contract()], device="some-gpu")


def test_of_another_device_nothing_is_missing_and_what_is_stale_is_said(workspace):
    _record(workspace)
    _on_a_gpu(workspace, _findings()[:1])
    assert _messages(workspace) == []
    (workspace.root / "minimal/toy_numpy.py").write_text("x = 2\n")
    _record(workspace)
    assert _messages(workspace) == []  # the entry of the GPU does not rest on that file
    _on_a_gpu(workspace)
    (workspace.root / "minimal/toy_numpy.py").write_text("x = 3\n")
    _record(workspace)
    found = proofs.check(workspace, [_contract()])
    assert {item.device for item in found} == {"some-gpu"}
    assert all("tests/proofs/some-gpu.json" in item.place and "make proofs-cuda" in item.message for item in found)


def test_dtypes_below_float32_belong_to_a_gpu_or_are_asked_for():
    made = _contract()
    dtypes = {device: {dtype for _, _, dtype in proofs.plan(made, device)} for device in ("cpu", "cuda")}
    assert dtypes == {"cpu": {"float64", "float32"}, "cuda": {"float64", "float32", "bfloat16", "float16"}}
    asked = list(proofs.plan(made, "cpu", ["bfloat16"]))
    assert {(item.name, dtype) for _, item, dtype in asked} == {("ref", "bfloat16"), ("minimal-numpy", "bfloat16")}
    assert {key[3] for key in proofs.expected(made)} == dtypes["cpu"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("float64", "float32", "bfloat16", "float16")),
        ({"dtypes": ("float32",), "low": ("bfloat16",)}, ("float32", "bfloat16")),
        ({"dtypes": ("float64",)}, ("float64",)),
    ],
)
def test_what_counts_has_no_dtype_below_float32(changes, expected):
    assert dataclasses.replace(toy.REFERENCE, **changes).all_dtypes == expected


@pytest.mark.parametrize("text", ["", "{}", '{"entries": [{}]}', "[1]"])
def test_an_unreadable_file_is_named(workspace, text):
    workspace.proofs.mkdir(parents=True)
    (workspace.proofs / "cpu.json").write_text(text)
    with pytest.raises(ContractError, match=r"cpu\.json"):
        proofs.load(workspace)


SYMBOLS = [
    ("torch:pkg.toy.f", b"@os.fspath\ndef f():\n    return 1"),
    ("torch:pkg.toy.C.m", b"    def m(self):\n        return 1"),
    ("torch:pkg.toy.g", b"    def g():\n        return 1"),
    ("torch:pkg.toy", SOURCE.encode()),
    ("minimal/toy_numpy.py", b"x = 1\n"),
]


@pytest.mark.parametrize(("symbol", "source"), SYMBOLS)
def test_the_source_of_a_symbol(workspace, symbol, source):
    assert proofs.source_of(workspace, symbol) == source


@pytest.mark.parametrize("symbol", ["torch:pkg.toy.none", "torch:none.f", "verl:verl.f", "minimal/none.py"])
def test_a_symbol_that_is_not_there(workspace, symbol):
    with pytest.raises(ContractError):
        proofs.source_of(workspace, symbol)


def test_an_adapter_rests_on_the_helpers_that_it_imports(tmp_path):
    (tmp_path / "_deep.py").write_text("def deep():\n    return 1\n")
    (tmp_path / "_near.py").write_text("from ._deep import deep\n")
    (tmp_path / "_idle.py").write_text("")
    file = tmp_path / "adapter.py"
    file.write_text("import os\n\ndef call():\n    from . import _near\n    return _near\n")
    seen = {}
    exec(compile(file.read_bytes(), str(file), "exec"), seen)
    item = dataclasses.replace(contract("gae").implementation("verl"), call=seen["call"])

    def digest(changed=""):
        if changed:
            (tmp_path / changed).write_text("changed = True\n")
        return hashlib.sha256(proofs._code_of(item)).digest()

    before = digest()
    assert digest("_idle.py") == before
    assert digest("_deep.py") != before
