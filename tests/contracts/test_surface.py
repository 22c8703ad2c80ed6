"""The public names, and what importing them costs."""

import subprocess
import sys

import pytest

from annotator import contracts

HEAVY = ("numpy", "torch", "jax", "hypothesis", "scipy")


def test_the_public_surface():
    assert contracts.__all__ == [
        "Case", "Contract", "Deviation", "Finding", "Implementation", "Input", "Kill", "Knob", "Operation", "Output",
        "Probe", "Rewriting", "Stage", "Verdict", "Witness", "conform", "conform_all", "dialect_is_real", "diff",
        "power", "proofs", "refuse", "template",
    ]  # fmt: skip
    assert all(getattr(contracts, name) is not None for name in contracts.__all__)
    with pytest.raises(AttributeError):
        _ = contracts.none


@pytest.mark.parametrize(
    "module", ["annotator.contracts", "annotator.contracts.proofs", "annotator.contracts.findings"]
)
def test_importing_is_cheap(module):
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_engine_itself_does_need_numpy():
    code = "import sys, annotator.contracts.running; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
