"""The lock is read strictly: every wrong table has its own message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from annotator.errors import LockError
from annotator.pins import Pin, read_lock
from tests.pins.support import table, toml, wheel

DATA = wheel()
LOCK = Path(__file__).parents[2] / "vendored_refs" / "pins.toml"


def read(tmp_path: Path, text: str) -> dict[str, Pin]:
    path = tmp_path / "vendored_refs" / "pins.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_lock(path)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (
        "unknown key",
        {"licence": "MIT"},
        "vendored_refs/pins.toml:14 [toy]: expected a known key, found 'licence'; did you mean license?",
    ),
    ("unknown key, nothing near", {"zzz": 1}, "found 'zzz'; remove it"),
    (
        "missing version",
        {"version": None},
        "vendored_refs/pins.toml:1 [toy]: expected the field 'version', found none; add it",
    ),
    (
        "missing digest",
        {"sha256": None},
        "'sha256', found none; add it, or run `annotator fetch toy --relock` to compute it",
    ),
    ("missing tree", {"tree": None}, "expected the field 'tree'"),
    ("installed needs its distribution", {"run": "installed"}, "expected the field 'distribution'"),
    ("wrong type", {"size": "12"}, ":10 [toy]: expected size to be a whole number, found '12'"),
    ("truth is no number", {"size": True}, "expected size to be a whole number, found True"),
    ("a string for a list", {"paths": "toy/**"}, "expected paths to be a list of strings"),
    ("no paths", {"paths": []}, "expected paths to hold something"),
    ("no bytes", {"size": 0}, "expected size to hold something, found 0"),
    ("optional is a truth", {"optional": "yes"}, "expected optional to be true or false"),
    ("upstream is a table", {"upstream": {"a/": 1}}, "expected upstream to be a table of strings"),
    ("kind", {"kind": "egg"}, "expected kind to be wheel, members, sdist or git, found 'egg'"),
    ("run", {"run": "perhaps"}, "expected run to be tree, installed or none"),
    ("short digest", {"sha256": "abc"}, "expected sha256 to be 64 hexadecimal digits, found 'abc'"),
    ("commit", {"commit": "v1"}, "expected commit to be 40 hexadecimal digits"),
    ("artifact with a folder", {"artifact": "../toy.whl"}, "expected artifact to be a bare file name"),
    ("version with a folder", {"version": "../1"}, "expected version to be a version"),
    ("repository", {"repository": "toy"}, "expected repository to be owner/name"),
    ("empty text", {"license": ""}, "expected license to be not empty"),
    ("glob upwards", {"paths": ["../x"]}, "expected globs inside the tree, found '../x'"),
    ("a field of another kind", {"record": "0" * 64}, "found 'record' in a pin of kind wheel; remove it"),
]


@pytest.mark.parametrize(("changes", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_table_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LockError) as caught:
        read(tmp_path, toml({"toy": table("wheel", DATA, **changes)}))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[toy\n", "expected TOML, found"),
        ("toy = 3\n", "expected a table [toy], found 3"),
        ("[Toy]\n", "expected a pin name of a-z, 0-9 and -, found 'Toy'"),
        ("[licenses]\n", "expected a pin name"),
        ("['../toy']\n", "expected a pin name"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LockError, match=r"pins\.toml") as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="expected a readable lock"):
        read_lock(tmp_path / "vendored_refs" / "pins.toml")


def test_a_good_table_is_read_whole(tmp_path: Path) -> None:
    fields = table("members", DATA, upstream={"a/": "b/"}, optional=True, differs=["toy/version.py"])
    pin = read(tmp_path, toml({"toy": fields}))["toy"]
    found = {
        key: list(value) if isinstance(value, tuple) else value for key, value in vars(pin).items() if key in fields
    }
    assert found == fields


def test_measured_fields_may_be_absent_only_where_they_are_being_computed(tmp_path: Path) -> None:
    fields = table("wheel", DATA, sha256=None, size=None, tree=None)
    with pytest.raises(LockError):
        read(tmp_path, toml({"toy": fields}))
    path = tmp_path / "vendored_refs" / "pins.toml"
    assert read_lock(path, unmeasured="toy")["toy"].sha256 == ""
    with pytest.raises(LockError):
        read_lock(path, unmeasured="other")


PERMALINKS = [
    (
        "torch",
        "torch/optim/adamw.py",
        (),
        "pytorch/pytorch/blob/cf30153c4c131c8164ee7798e5022d810682e2cb/torch/optim/adamw.py",
    ),
    ("torch", "torch/include/ATen/core/Tensor.h", (3,), "/aten/src/ATen/core/Tensor.h#L3"),
    ("torch", "torch/include/c10/core/Device.h", (3, 9), "/c10/core/Device.h#L3-L9"),
    ("torch", "torchgen/packaged/ATen/native/native_functions.yaml", (), "/aten/src/ATen/native/native_functions.yaml"),
    ("torch", "torchgen/packaged/autograd/derivatives.yaml", (7, 7), "/tools/autograd/derivatives.yaml#L7"),
    ("verl", "verl/a b.py", (1,), "verl-project/verl/blob/v0.9.1/verl/a%20b.py#L1"),
    ("vllm", "csrc/ops.h", (), "vllm-project/vllm/blob/v0.31.0/csrc/ops.h"),
]


@pytest.mark.parametrize(("name", "path", "lines", "end"), PERMALINKS)
def test_permalinks_of_the_lock(name: str, path: str, lines: tuple[int, ...], end: str) -> None:
    assert read_lock(LOCK)[name].permalink(path, *lines).endswith(end)


def test_the_lock_holds_the_pins_of_this_release() -> None:
    pins = read_lock(LOCK)
    assert {name: (pin.version, pin.kind, pin.run, pin.optional) for name, pin in pins.items()} == {
        "verl": ("0.9.1", "wheel", "tree", False),
        "trl": ("1.16.0", "wheel", "tree", False),
        "vllm": ("0.31.0", "sdist", "installed", False),
        "torch": ("2.13.0", "members", "installed", False),
        "stable-baselines3": ("2.9.2", "wheel", "tree", False),
        "liger-kernel": ("0.8.5", "wheel", "tree", False),
        "torch-cpp": ("2.13.0", "git", "none", True),
    }
    notices = (LOCK.parent / "licenses" / "NOTICE.md").read_text(encoding="utf-8")
    assert [name for name in pins if f"`{name}`" not in notices] == []
