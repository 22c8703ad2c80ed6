"""``dpo-loss``: every implementation keeps it, every deviation breaks it, and TRL behaves as it says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import _trl, contract, dpo_loss
from annotator.contracts import Case, conform
from annotator.contracts.running import Fault, Result, run
from tests.catalog.seen import seen_by

CONTRACT = contract("dpo-loss")
EDGES = {case.label: case for case in CONTRACT.edges()}
BY_GRADIENT_ALONE = "rejected-detached"


def result(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, replace(case, knobs={**case.knobs, **knobs}), dtype=dtype)


def test_a_wrong_gradient_is_seen_where_every_value_is_right() -> None:
    probes = seen_by(CONTRACT, BY_GRADIENT_ALONE)
    assert "value" not in probes
    assert "gradient" in probes


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == BY_GRADIENT_ALONE)
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("trl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


def test_cases_know_every_loss_of_the_method() -> None:
    """A loss that the pinned method does not know raises, so that each name here is one that it has."""
    case = EDGES["no padding"]
    with pytest.raises(Fault, match="Unknown loss type"):
        result("trl", case, loss_type="no_such_loss")
    for loss in (*dpo_loss.SCORED, *dpo_loss.UNSCORED):
        assert np.isfinite(result("trl", case, loss_type=loss, label_smoothing=0.1).outputs["loss"])


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"loss_type": "sigmoid"}, None),
        ({"loss_type": "ipo", "f_divergence": "forward_kl"}, None),
        ({"loss_type": "nca_pair", "f_divergence": "forward_kl"}, "reverse KL only"),
        ({"loss_type": "exo_pair"}, "label smoothing"),
        ({"loss_type": "robust", "label_smoothing": 0.5}, "below 1/2"),
    ],
)
def test_the_domain_is_that_of_trls_constructor(knobs: dict[str, Any], reason: str | None) -> None:
    case = EDGES["no padding"]
    found = CONTRACT.implementation("trl").accepts(replace(case, knobs={**case.knobs, **knobs}))
    assert found is None if reason is None else reason in (found or "")


def test_the_plain_sigmoid_ignores_label_smoothing() -> None:
    case = EDGES["no padding"]
    plain, smoothed = (result("trl", case, label_smoothing=share).outputs["loss"] for share in (0.0, 0.1))
    assert plain == smoothed
    assert plain != result("trl", case, loss_type="robust", label_smoothing=0.1).outputs["loss"]


def test_trl_adds_the_likelihood_by_a_second_loss_type() -> None:
    case = EDGES["no padding"]
    alone, both, nll = (
        result("trl", case, **knobs).outputs["loss"] for knobs in ({}, {"sft_weight": 0.5}, {"loss_type": "sft"})
    )
    assert both == pytest.approx(alone + 0.5 * nll, rel=1e-14)
    assert _trl.dpo_trainer().loss_types == ["sft"]


def test_a_likelihood_of_no_token_is_outside_of_the_domain_since_trl_has_no_number_for_it() -> None:
    case = EDGES["both completions wholly masked"]
    assert np.isnan(result("trl", case, sft_weight=1.0).outputs["loss"])
    weighted = replace(case, knobs={**case.knobs, "sft_weight": 1.0})
    assert "no token" in (CONTRACT.implementation("trl").accepts(weighted) or "")


def test_rewards_are_log_ratios_whatever_the_loss() -> None:
    case = EDGES["no padding"]
    plain = result("trl", case).outputs["chosen_rewards"]
    averaged = result("trl", case, loss_type="ipo", f_divergence="forward_kl").outputs["chosen_rewards"]
    np.testing.assert_array_equal(plain, averaged)


@pytest.mark.parametrize("name", ["trl", "minimal-torch"])
@pytest.mark.parametrize(("margin", "finite"), [(-88.0, True), (-89.0, False)])
def test_discopop_overflows_where_its_gate_is_shut(name: str, margin: float, finite: bool) -> None:
    """exp(89) is infinite in float32, and the gate that multiplies it is 0."""
    case = EDGES["one pair of one token"]
    logps = {key: np.full((1, 1), -1.0) for key in dpo_loss.LOGPS} | {dpo_loss.LOGPS[0]: np.full((1, 1), margin - 1)}
    case = replace(case, inputs={**case.inputs, **logps})
    found = result(name, case, "float32", loss_type="discopop", beta=1.0).outputs["loss"]
    assert bool(np.isfinite(found)) is finite


def test_the_rewards_are_those_that_trl_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = _trl.dpo_trainer()
    logged: dict[str, list[float]] = {}
    monkeypatch.setitem(trainer._metrics, "train", Kept(logged))
    outputs = result("trl", EDGES["no padding"]).outputs
    assert logged["rewards/chosen"] == [pytest.approx(outputs["chosen_rewards"].mean())]
    assert logged["rewards/rejected"] == [pytest.approx(outputs["rejected_rewards"].mean())]


class Kept(dict[str, list[float]]):
    """Metrics that outlive their clearing: lists live in ``kept``."""

    def __init__(self, kept: dict[str, list[float]]) -> None:
        super().__init__()
        self.kept = kept

    def __missing__(self, name: str) -> list[float]:
        return self.kept.setdefault(name, [])


def test_the_method_that_runs_is_that_of_the_pin() -> None:
    import inspect

    file = inspect.getsourcefile(type(_trl.dpo_trainer())._compute_loss)
    assert any(part.startswith("trl-") for part in Path(file or "").resolve().parts), file


def test_an_adapter_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("ANNOTATOR_ROOT", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    _trl.dpo_trainer.cache_clear()
    torch.manual_seed(5)
    result("trl", EDGES["no padding"])
    found = torch.rand(1)
    torch.manual_seed(5)
    assert found == torch.rand(1)
    assert torch.get_default_dtype() == torch.float32
    assert not any(_trl.dpo_trainer()._metrics.values())
    assert os.listdir(tmp_path) == []
