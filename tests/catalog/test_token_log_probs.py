"""``token-log-probs``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, token_log_probs
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.kills import breaks_are_real
from annotator.contracts.running import Result, run
from annotator.contracts.staging import whole

CONTRACT = contract("token-log-probs")
EDGES = {case.label: case for case in CONTRACT.edges()}


def ran(name: str, case: Case, **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case)


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "temperature-forgotten")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=3)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", ["verl", "trl", "trl-fused-head"])
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=6) == []


def test_verl_lets_a_gradient_flow_to_logits_that_nobody_asked_for() -> None:
    assert breaks_are_real(CONTRACT, "verl", examples=3) == []
    assert CONTRACT.implementation("trl-fused-head").breaks == ()


@pytest.mark.parametrize("shift", token_log_probs.SHIFTS)
def test_the_stages_arrive_at_the_result(shift: str) -> None:
    case = EDGES[f"temperature 0.5, {shift}"]
    outputs = ran("minimal-torch", case).outputs
    for name, value in whole(CONTRACT, case).items():
        np.testing.assert_array_equal(value, outputs[name])


@pytest.mark.parametrize(("name", "positions"), [("verl", 2), ("trl-fused-head", 2), ("trl", 3)])
def test_who_shifts(name: str, positions: int) -> None:
    found = ran(name, EDGES["temperature 1, next"])
    assert found.outputs["log_probs"].shape == found.outputs["entropy"].shape == (2, positions)


@pytest.mark.parametrize("name", ["verl", "trl"])
def test_the_gradient_of_a_bonus_on_the_entropy_flows(name: str) -> None:
    import torch

    case = EDGES["temperature 2, next"]
    logits = torch.tensor(case.inputs["logits"], requires_grad=True)
    item = CONTRACT.implementation(name)
    outputs = item.call(logits, torch.tensor(case.inputs["token_ids"]), **{**case.knobs, **item.dialect})
    outputs["entropy"].sum().backward()
    assert logits.grad is not None
    assert logits.grad[:, 0].abs().max() > 1e-3


def test_verls_engine_holds_the_temperature_in_float32() -> None:
    """A temperature that float32 cannot hold costs seven digits, whatever the dtype of the logits."""
    case = EDGES["temperature 1, next"]
    found, exact = (ran(name, case, temperature=0.7, shift="next") for name in ("verl", "minimal-torch"))
    off = np.abs(found.outputs["log_probs"] - exact.outputs["log_probs"]).max()
    assert 1e-10 < off < 1e-6
