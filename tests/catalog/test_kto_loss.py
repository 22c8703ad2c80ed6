"""``kto-loss``: every implementation keeps it, every deviation breaks it, and TRL and Liger behave as it says."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, kto_loss
from annotator.contracts import Case, dialect_is_real
from annotator.contracts.running import Result, run
from tests.catalog.seen import seen_by

CONTRACT = contract("kto-loss")
EDGES = {case.label: case for case in CONTRACT.edges()}


def result(name: str, case: Case, dtype: str = "float32", **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, replace(case, knobs={**case.knobs, **knobs}), dtype=dtype)


def test_a_gradient_through_the_reference_point_is_seen_where_every_value_is_right() -> None:
    probes = seen_by(CONTRACT, "point-carries-gradient")
    assert "value" not in probes
    assert "gradient" in probes


def test_the_dialect_is_real() -> None:
    assert dialect_is_real(CONTRACT, "liger", examples=15) == []


@pytest.mark.parametrize("name", ["trl", "liger", "minimal-torch"])
def test_the_reference_point_moves_the_loss_and_gets_no_gradient(name: str) -> None:
    case = EDGES["all desirable"]
    far = replace(case, inputs={**case.inputs, "ref_kl_logps": case.inputs["ref_kl_logps"] - 1.0})
    assert result(name, far).outputs["loss"] != pytest.approx(result(name, case).outputs["loss"], rel=1e-3)
    assert not np.any(result(name, case).gradients["policy_kl_logps"])


@pytest.mark.parametrize(("name", "kept"), [("trl", False), ("liger", False), ("minimal-torch", True)])
def test_what_a_difference_from_one_loses_in_float32(name: str, kept: bool) -> None:
    """A good completion 20 units of beta above the reference point: 1 - sigmoid is 0 in float32, sigmoid(-x) is not."""
    case = EDGES["one completion"]
    sure = {"policy_logps": np.full((1, 5), -1.0), "ref_logps": np.full((1, 5), -1.0 - 20 / 3)}
    still = {"policy_kl_logps": np.full((1, 5), -1.0), "ref_kl_logps": np.full((1, 5), -1.0)}
    given = replace(case, inputs={**case.inputs, **sure, **still, "desirable": np.array([True])})
    assert CONTRACT.oracle is not None
    exact = CONTRACT.oracle(**given.inputs, **given.knobs)["loss"]
    assert exact == pytest.approx(2.06e-9, rel=1e-2)
    assert (result(name, given).outputs["loss"] == pytest.approx(exact, rel=1e-5)) is kept


@pytest.mark.parametrize("label", ["all desirable", "none desirable", "no reference point, none desirable"])
def test_a_kind_that_is_not_there_has_no_rewards(label: str) -> None:
    found = result("trl", EDGES[label], "float64").outputs
    absent, present = ("rejected", "chosen") if label == "all desirable" else ("chosen", "rejected")
    assert found[f"{absent}_rewards"] == 0
    assert found[f"{present}_rewards"] != 0


def test_the_method_that_runs_is_that_of_the_pin() -> None:
    file = inspect.getsourcefile(type(kto_loss._trainer())._compute_loss)
    assert any(part.startswith("trl-") for part in Path(file or "").resolve().parts), file


def test_an_adapter_leaves_nothing_behind() -> None:
    import torch

    result("trl", EDGES["ragged"], "float64")
    trainer = kto_loss._trainer()
    assert not any(trainer._metrics.values())
    assert trainer.accelerator.gather_for_metrics.__func__ is type(trainer.accelerator).gather_for_metrics
    assert torch.get_default_dtype() == torch.float32
