"""``orpo-loss``: every implementation keeps it, every deviation breaks it, and TRL behaves as it says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, orpo_loss
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import Result, run
from tests.catalog.seen import seen_by

CONTRACT = contract("orpo-loss")
EDGES = {case.label: case for case in CONTRACT.edges()}
BY_GRADIENT_ALONE = ("odds-outside-graph", "rejected-detached")


def result(name: str, case: Case, dtype: str = "float32", **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, replace(case, knobs={**case.knobs, **knobs}), dtype=dtype)


@pytest.mark.parametrize("name", BY_GRADIENT_ALONE)
def test_a_wrong_gradient_is_seen_where_every_value_is_right(name: str) -> None:
    probes = seen_by(CONTRACT, name)
    assert "value" not in probes
    assert "gradient" in probes


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    """The right minimal version stays: TRL has no float64, so that the gradient of the oracle is the minimal one's."""
    deviation = next(item for item in CONTRACT.deviations if item.name == "odds-outside-graph")
    right = CONTRACT.implementation("minimal-torch")
    impostor = replace(right, name="impostor", call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("trl"), right, impostor))
    findings = conform(broken, names=("impostor",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


def test_the_dialect_is_real() -> None:
    assert dialect_is_real(CONTRACT, "trl", examples=15) == []


def test_trl_computes_the_odds_in_float32_whatever_it_is_given() -> None:
    case = EDGES["no padding"]
    exact = CONTRACT.oracle(**case.inputs, **case.knobs)["loss"]  # type: ignore[misc]
    assert 1e-10 < abs(result("trl", case, "float64").outputs["loss"] - exact) < 1e-6
    assert result("minimal-torch", case, "float64").outputs["loss"] == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize(("name", "finite"), [("trl", False), ("minimal-torch", True)])
def test_trls_gradient_is_no_number_where_the_model_is_certain_and_the_value_is(name: str, finite: bool) -> None:
    """exp(-1e-9) is 1 in float32, and the branch that is not taken still sends 0 times infinity back."""
    case = EDGES["all but one in ten million certain"]
    inputs = {**case.inputs, **{key: np.full((2, 2), -1e-9) for key in orpo_loss.LOGPS}}
    found = result(name, replace(case, inputs=inputs))
    assert np.isfinite(found.outputs["loss"])
    assert bool(np.isfinite(found.gradients["policy_chosen_logps"]).all()) is finite


def test_ligers_odds_are_lost_where_float32_rounds_p_to_one() -> None:
    """log1p(-exp(x)) cancels as log(1 - exp(x)) does: exp(x) is 1 before the difference is taken."""
    case = EDGES["all but one in ten million certain"]
    exact = CONTRACT.oracle(**case.inputs, **case.knobs)["loss"]  # type: ignore[misc]
    assert result("trl", case).outputs["loss"] == pytest.approx(exact, rel=1e-5)
    assert result("liger", case).outputs["loss"] != pytest.approx(exact, rel=0.1)
    plain = EDGES["no padding"]
    assert result("liger", plain).outputs["loss"] == pytest.approx(result("trl", plain).outputs["loss"], rel=1e-6)


@pytest.mark.parametrize("over", ["sequence", "completion"])
def test_liger_learns_what_it_is_told_to(over: str) -> None:
    case = EDGES["ragged, prompts of several lengths"]
    ours = result("minimal-torch", case, nll_over=over).outputs["loss"]
    assert result("liger", case, nll_over=over).outputs["loss"] == pytest.approx(ours, rel=1e-6)


def test_the_likelihood_is_that_of_prompt_and_completion() -> None:
    case = EDGES["ragged, prompts of several lengths"]
    moved = case.inputs["policy_chosen_logps"].copy()
    moved[case.inputs["chosen_attention"] & ~case.inputs["chosen_mask"]] -= 1
    other = replace(case, inputs={**case.inputs, "policy_chosen_logps": moved})
    before, after = result("trl", case), result("trl", other)
    assert after.outputs["loss"] > before.outputs["loss"] + 0.1
    np.testing.assert_array_equal(after.outputs["chosen_rewards"], before.outputs["chosen_rewards"])


def test_the_loss_is_that_which_trl_logs_apart() -> None:
    """The stand-in for the model gives the likelihood that the case states: its softmax is a round trip."""
    case = EDGES["no padding"]
    alone = result("trl", case, beta=0.0).outputs["loss"]
    kept = case.inputs["policy_chosen_logps"][case.inputs["chosen_attention"]]
    assert alone == pytest.approx(-kept.mean(), rel=1e-6)


def test_the_method_that_runs_is_that_of_the_pin() -> None:
    import inspect

    file = inspect.getsourcefile(type(orpo_loss._trainer()).odds_ratio_loss)
    assert any(part.startswith("trl-") for part in Path(file or "").resolve().parts), file


def test_an_adapter_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("ANNOTATOR_ROOT", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    orpo_loss._trainer.cache_clear()
    torch.manual_seed(5)
    result("trl", EDGES["no padding"])
    found = torch.rand(1)
    torch.manual_seed(5)
    assert found == torch.rand(1)
    assert torch.get_default_dtype() == torch.float32
    module = orpo_loss._module(orpo_loss._trainer())
    assert module.selective_log_softmax.__module__ == "trl.trainer.utils"
    assert os.listdir(tmp_path) == []
