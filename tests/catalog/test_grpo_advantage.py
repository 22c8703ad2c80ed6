"""``grpo-advantage``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import _trl, contract
from annotator.catalog._third_party import CORE, pinned
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import run

CONTRACT = contract("grpo-advantage")
EDGES = {case.label: case for case in CONTRACT.edges()}


def advantages(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> np.ndarray:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype).outputs["advantages"]


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "population-std")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", ["verl", "trl"])
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


def test_verl_and_trl_part_where_one_sample_stands_alone() -> None:
    case = EDGES["only groups of one"]
    assert advantages("verl", case).any()
    assert not advantages("trl", case).any()


@pytest.mark.parametrize("name", ["verl", "trl"])
def test_a_reward_in_a_masked_slot_counts(name: str) -> None:
    case = EDGES["a reward in a masked slot"]
    rewards = case.inputs["token_level_rewards"].copy()
    rewards[~case.inputs["response_mask"]] = 0
    dropped = replace(case, inputs={**case.inputs, "token_level_rewards": rewards})
    assert np.abs(advantages(name, case) - advantages(name, dropped)).max() > 0.1


def test_trl_takes_groups_of_one_size() -> None:
    trl = CONTRACT.implementation("trl")
    assert "same number" in (trl.accepts(EDGES["one sample in a group, kept"]) or "")
    assert trl.accepts(EDGES["interleaved groups"]) is None


def test_float64_stays_float64() -> None:
    """Both libraries make factors in torch's default dtype; without the adapters' care 1e-8 would remain."""
    for name, label in (("verl", "one sample in a group, kept"), ("trl", "two groups, ragged")):
        case = EDGES[label]
        item = CONTRACT.implementation(name)
        ours = advantages("minimal-torch", case, **item.dialect)
        np.testing.assert_allclose(advantages(name, case), ours, rtol=1e-14)
        assert np.abs(advantages(name, case, dtype="float32") - ours).max() > 1e-10


def test_the_method_that_runs_is_that_of_the_pin() -> None:
    import inspect

    method = inspect.getsourcefile(type(_trl.grpo_trainer())._generate_and_score_completions)
    estimator = inspect.getsourcefile(pinned(CORE).compute_grpo_outcome_advantage)
    for name, file in (("trl", method), ("verl", estimator)):
        assert any(part.startswith(f"{name}-") for part in Path(file or "").resolve().parts), file


def test_an_adapter_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("ANNOTATOR_ROOT", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    _trl.grpo_trainer.cache_clear()
    torch.manual_seed(5)
    np.random.seed(5)
    advantages("trl", EDGES["two groups, ragged"])
    found = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    assert found == (torch.rand(1), np.random.rand())
    assert torch.get_default_dtype() == torch.float32
    assert not any(_trl.grpo_trainer()._metrics.values())
    assert os.listdir(tmp_path) == []
