"""The bundle for a GPU machine: what is in it, and that it runs from an empty folder without network."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from annotator import pins
from annotator.errors import WorkspaceError
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[1]
CONTRACT = "loss-aggregation"
PINS = ("verl", "trl", "vllm", "torch")


def builder() -> ModuleType:
    """``bundle/build.py``; a folder of scripts, not a package."""
    spec = importlib.util.spec_from_file_location("bundle_build", ROOT / "bundle" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one wheel, in the place of those from the registry."""
    folder = tmp_path_factory.mktemp("wheels")
    meta = "carried-1.0.dist-info"
    with zipfile.ZipFile(folder / "carried-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("carried.py", "here = True\n")
        archive.writestr(f"{meta}/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        archive.writestr(
            f"{meta}/WHEEL", "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{meta}/RECORD", "")
    return folder


@pytest.fixture(scope="module")
def tarball(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [name for name in PINS if not Workspace.find(ROOT).tree(name).exists()]
    if missing:
        pytest.skip(f"pins not fetched: {', '.join(missing)}")
    output = tmp_path_factory.mktemp("dist") / "bundle.tar.xz"
    return builder().build(Workspace.find(ROOT), output, python="3.12", wheels=wheels)


@pytest.mark.slow
def test_it_holds_code_tests_wheels_and_slices_of_the_pins(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert {"run.sh", "annotator/cli.py", "tests/test_cuda.py", "wheels/carried-1.0-py3-none-any.whl"} <= names
    assert {"vendored_refs/verl/verl/trainer/ppo/core_algos.py", "vendored_refs/verl.manifest.json"} <= names
    assert "vendored_refs/torch/torch/optim/adam.py" in names
    assert len([name for name in names if name.startswith("vendored_refs/torch/")]) < 40
    assert not {name for name in names if ".venv" in name or "__pycache__" in name or name.startswith("scratch")}
    assert {(member.uname, member.uid, member.mtime) for member in members} == {("", 0, 0)}


def test_too_large_a_tarball_is_refused(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = builder()
    monkeypatch.setattr(module, "LIMIT", 10)
    monkeypatch.setattr(module, "CODE", ("pyproject.toml",))
    monkeypatch.setattr(module, "read_lock", lambda _: {})
    with pytest.raises(WorkspaceError, match="expected at most 0 MB"):
        module.build(Workspace.find(ROOT), tmp_path / "b.tar.xz", python="3.12", wheels=wheels)


def test_every_wheel_that_is_carried_has_a_locked_version() -> None:
    lines = (ROOT / "requirements" / "lock.txt").read_text("utf-8").splitlines()
    locked = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    assert {name.lower().replace("_", "-") for name in builder().wanted()} <= locked
    assert builder().wanted()["antlr4-python3-runtime"] == "wheel"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import ray; print(isinstance(1, ray.ObjectRef), hasattr(ray, '__version__'))", "False False"),
        ("import ray; ray.get", "ModuleNotFoundError: this bundle carries no Ray, hence no ray.get"),
    ],
)
def test_what_stands_where_ray_would_be(code: str, said: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bundle" / "standins")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr).strip().splitlines()[-1] == said


def lonely() -> list[str]:
    """The command that takes the network away from what follows, where it may be used."""
    with contextlib.suppress(OSError):
        if subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode == 0:
            return ["unshare", "-rn"]
    return []


@pytest.mark.slow
def test_it_runs_without_network_from_an_empty_folder(tarball: Path, tmp_path: Path) -> None:
    """On the CPU, in an environment that has this one's libraries and neither this checkout nor a link to it."""
    shutil.unpack_archive(tarball, tmp_path, filter="data")
    root = tmp_path / "annotated-rl-stack"
    (root / "tests" / "proofs" / "cpu.json").unlink(missing_ok=True)
    venv.create(tmp_path / "venv", with_pip=False)
    purelib = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")})
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANNOTATOR_", "PYTHON"))}
    nobody = {"PIP_NO_INDEX": "1", "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    here = {"PYTHON": str(tmp_path / "venv" / "bin" / "python"), "DEVICE": "cpu", "EXAMPLES": "2", "JOBS": "1"}
    command = [*lonely(), str(root / "run.sh"), CONTRACT]
    done = subprocess.run(
        command, cwd=tmp_path, env={**kept, **nobody, **here}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / ".site" / "carried.py").is_file()
    entries = json.loads((root / "tests" / "proofs" / "cpu.json").read_text("utf-8"))["entries"]
    assert {entry["contract"] for entry in entries} == {CONTRACT}
    assert {"verl", "minimal-torch", "minimal-jax"} <= {entry["implementation"] for entry in entries}
    assert "2 passed" in done.stdout


def test_what_a_slice_lacks_cannot_be_imported_unseen(tmp_path: Path) -> None:
    """A carried pin is compared with its manifest: a changed file is refused there as here."""
    workspace = Workspace.find(ROOT)
    if not workspace.tree("verl").exists():
        pytest.skip("verl is not fetched")
    lock = workspace.lock.read_text("utf-8")
    (tmp_path / "vendored_refs").mkdir()
    (tmp_path / "vendored_refs" / "pins.toml").write_text(lock)
    builder().carry(workspace, pins.read_lock(workspace.lock)["verl"], tmp_path)
    copied = tmp_path / "vendored_refs" / "verl" / "verl" / "__init__.py"
    copied.chmod(0o644)
    copied.write_text("changed = True\n")
    code = "from annotator import pins; pins.load('verl')"
    environment = {**os.environ, "ANNOTATOR_ROOT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "DigestError: vendored_refs/verl/verl/__init__.py" in done.stderr
