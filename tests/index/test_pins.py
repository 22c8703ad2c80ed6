"""The index of the real pins, where they are fetched and indexed: what the readings stand on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from annotator.index import Index, Link

ROOT = Path(__file__).parents[2]
GRPO = "verl:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"

SYMBOLS = [
    (GRPO, "verl/trainer/ppo/core_algos.py", "function"),
    ("trl:trl.DPOTrainer", "trl/trainer/dpo_trainer.py", "class"),
    ("trl:trl.trainer.grpo_trainer.GRPOTrainer._compute_loss", "trl/trainer/grpo_trainer.py", "method"),
    ("vllm:vllm.SamplingParams", "vllm/sampling_params.py", "class"),
    ("vllm:vllm.v1.sample.sampler.Sampler", "vllm/v1/sample/sampler.py", "class"),
    ("torch:torch.optim.AdamW", "torch/optim/adamw.py", "class"),
    ("torch:torch.optim.AdamW.step", "torch/optim/adam.py", "method"),
    ("torch:torch.sum", "torch/_C/_VariableFunctions.pyi", "function"),
    ("torch:c10::TensorImpl", "torch/include/c10/core/TensorImpl.h", "struct"),
]


@pytest.mark.parametrize(("symbol", "path", "kind"), SYMBOLS)
def test_symbols_of_the_readings(pins: Index, symbol: str, path: str, kind: str) -> None:
    found = pins.definition(symbol)
    assert (found.path, found.kind) == (path, kind)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("compute_grpo_outcome_advantage", GRPO),
        ("GRPOTrainer._compute_loss", "trl:trl.trainer.grpo_trainer.GRPOTrainer._compute_loss"),
        ("DPOTrainer", "trl:trl.trainer.dpo_trainer.DPOTrainer"),
        ("AdamW", "torch:torch.optim.adamw.AdamW"),
        ("trl.DPOTrainer", "trl:trl.trainer.dpo_trainer.DPOTrainer"),
    ],
)
def test_find(pins: Index, query: str, first: str) -> None:
    assert pins.find(query)[0].symbol == first


def test_the_trainer_uses_the_advantage(pins: Index) -> None:
    uses = pins.uses(pins.definition(GRPO))
    callers = {(use.path, use.within) for use in uses}
    assert ("verl/trainer/ppo/ray_trainer.py", "verl:verl.trainer.ppo.ray_trainer.compute_advantage") in callers


def symbols(links: list[Link], name: str) -> set[str]:
    return {link.target.symbol for link in links if link.name == name and link.target}


def test_links_of_a_reading(pins: Index) -> None:
    links = pins.links("verl", "verl/trainer/ppo/core_algos.py")
    assert symbols(links, "verl_F") == {"verl:verl.utils.torch_functional"}
    assert symbols(links, "masked_whiten") == {"verl:verl.utils.torch_functional.masked_whiten"}
    assert symbols(links, "no_grad") == {"torch:torch.autograd.grad_mode.no_grad"}
    assert symbols(links, "scores") == set(), "a local name leads nowhere"
    share = sum(link.certainty == "unresolved" for link in links) / len(links)
    assert share < 0.12, f"{share:.1%} of the identifiers are unresolved"


IMPORTS = """
import sys, time
start = time.perf_counter()
from pathlib import Path
from annotator.index import Index
from annotator.workspace import Workspace
index = Index.open(Workspace.find(Path(sys.argv[1])))
assert index.find("compute_grpo_outcome_advantage")
heavy = {"tree_sitter", "torch", "jax", "numpy", "mkdocs", "requests", "libcst"} & set(sys.modules)
assert not heavy, heavy
"""


def test_find_imports_nothing_heavy(pins: Index) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", IMPORTS, str(ROOT)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
