"""Away from this repository: the wheel, in an environment without the checkout, run from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from annotator.workspace import Workspace

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PINS = ("verl", "trl", "vllm", "torch")

MINE = """
import torch

def advantages(token_level_rewards, response_mask, group, eps=1e-6, scale="group"):
    score = token_level_rewards.sum(-1)
    out = torch.zeros_like(score)
    for label in group.unique():
        r = score[group == label]
        alone = len(r) == 1
        std = 0 if alone else r.std()
        out[group == label] = (r - r.mean() * (not alone)) / (1 if scale == "none" else std + alone + eps)
    return out[:, None] * response_mask
"""


@dataclass(frozen=True)
class Away:
    """A folder with nothing of ours in it, and the environment to run there."""

    folder: Path
    binaries: Path
    cache: Path

    def __call__(self, *command: str, code: int = 0) -> str:
        """Runs a command of that environment; what it printed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANNOTATOR_", "PYTHON"))}
        environment = {**kept, "ANNOTATOR_CACHE": str(self.cache), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
        program = str(self.binaries / command[0])
        done = subprocess.run(
            [program, *command[1:]], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code != 2 else done.stderr


def built(folder: Path, target: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("dist"), "wheel")


@pytest.fixture(scope="module")
def away(wheel, tmp_path_factory) -> Away:
    """The wheel in a fresh environment that sees this one's dependencies, but neither its checkout nor its links to it.

    A path in a ``.pth`` file is searched last, and the ``.pth`` files found there are not read, hence no editable
    install either. The user's cache is there, through links, so that nothing is fetched twice.
    """
    base = tmp_path_factory.mktemp("away")
    venv.create(base / "venv", with_pip=False)
    python = base / "venv" / "bin" / "python"
    purelib = sysconfig.get_path("purelib", vars={"base": str(base / "venv")})
    Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    (base / "empty").mkdir()
    (base / "cache").mkdir()
    usual = Workspace.find().cache
    for name in ("trees", "artifacts"):
        if (usual / name).exists():
            (base / "cache" / name).symlink_to(usual / name)
    return Away(base / "empty", python.parent, base / "cache")


@pytest.fixture(scope="module")
def fetched(away) -> Away:
    """With its pins in place, out of the user's cache."""
    missing = [name for name in PINS if not Workspace.find().tree(name).exists()]
    if missing:
        pytest.skip(f"pins not fetched: {', '.join(missing)}")
    away("annotator", "fetch", "--offline")
    return away


@pytest.fixture(scope="module")
def indexed(fetched) -> Away:
    """With the checkout's index, for making one takes a minute and a half."""
    workspace = Workspace.find()
    if not workspace.index.exists():
        pytest.skip("the checkout has no index")
    state = next((fetched.cache / "state").iterdir())
    for path in workspace.state.glob("*.sqlite"):
        shutil.copy(path, state)
    return fetched


def test_the_wheel_carries_what_it_needs_and_no_upstream_source(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    carried = {"vendored_refs/pins.toml", "walkthroughs/anchors.lock", "walkthroughs/verl/grpo-advantage.md"}
    proofs = {f"tests/proofs/{path.name}" for path in (ROOT / "tests" / "proofs").glob("*.json")}
    assert {f"annotator/_carried/{name}" for name in carried | proofs} <= names
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"annotator", "minimal"}
    assert {name for name in names if "vendored_refs" in name} == {"annotator/_carried/vendored_refs/pins.toml"}
    assert wheel.stat().st_size < 1_000_000


def test_the_source_archive_carries_no_upstream_source(tmp_path):
    archive = built(tmp_path, "sdist")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    below = {name.split("/")[1] for name in names if name.startswith("vendored_refs/")}
    assert below == {"pins.toml", "README.md", "licenses"}
    assert not {name for name in names if name.startswith(("scratch", "site", ".venv"))}
    assert {"annotator/workspace.py", "minimal/post_training/grpo_torch.py", "walkthroughs/index.md"} <= names
    assert archive.stat().st_size < 2_000_000


def test_the_code_that_runs_is_the_wheels(away):
    where = away("python", "-c", "import annotator, minimal; print(annotator.__file__, minimal.__file__)").split()
    assert all(str(away.binaries.parent) in path for path in where)
    assert str(ROOT) not in away("python", "-c", "import sys; print(sys.path)").replace(
        sysconfig.get_path("purelib"), ""
    )


def test_what_needs_no_pins(away):
    assert "annotator, version" in away("annotator", "--version")
    assert "grpo-advantage" in away("annotator", "conform", "--list")
    assert "verl/grpo-advantage" in away("annotator", "read")


def test_what_is_not_there_is_said(away):
    assert "annotator index" in away("annotator", "find", "agg_loss", code=2)


@pytest.mark.parametrize(
    "command", [("anchors",), ("conform", "adamw-step", "--record"), ("build",)], ids=lambda command: command[0]
)
def test_a_wheel_writes_nothing_into_itself(indexed, command):
    assert "inside a checkout" in indexed("annotator", *command, code=2)


def test_find_and_read(indexed):
    found = away_lines(indexed("annotator", "find", "agg_loss"))
    assert found[0].startswith("verl:verl.trainer.ppo.core_algos.agg_loss")
    path, _, line = found[1].rpartition(":")
    assert "def agg_loss" in Path(path).read_text("utf-8").splitlines()[int(line) - 1]
    assert "1/10" in indexed("annotator", "read", "grpo-advantage", "--all")


def away_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_conform(fetched):
    options = ("--impl", "minimal-torch", "--dtype", "float64", "--examples", "3")
    assert "passed" in fetched("annotator", "conform", "adamw-step", *options)


def test_diff_of_a_users_own_file(fetched):
    (fetched.folder / "mine.py").write_text(MINE)
    (fetched.folder / "wrong.py").write_text(MINE.replace("r.std()", "r.std(correction=0)"))
    assert "equals verl" in fetched("annotator", "diff", "mine.py:advantages", "grpo-advantage", "--examples", "5")
    fetched("annotator", "diff", "wrong.py:advantages", "grpo-advantage", "--examples", "5", code=1)


def test_a_users_own_tests(fetched):
    shutil.copytree(ROOT / "examples", fetched.folder / "project", dirs_exist_ok=True)
    said = fetched(
        "python",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir=project",
        "project",
    )
    assert "2 passed" in said


def test_the_proofs_that_a_wheel_carries_hold(indexed):
    assert indexed("python", "-c", STALE).strip() == ""


STALE = """
from annotator.contracts import proofs
from annotator.workspace import Workspace
print(*(f"{item.place}: {item.message}" for item in proofs.check(Workspace.find())), sep="\\n")
"""
