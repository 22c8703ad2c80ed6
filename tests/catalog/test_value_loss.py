"""``value-loss``: every implementation keeps it, every deviation breaks it, and verl does as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import Result, run
from tests.catalog.seen import seen_by

CONTRACT = contract("value-loss")
EDGES = {case.label: case for case in CONTRACT.edges()}


def result(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, replace(case, knobs={**case.knobs, **knobs}), dtype=dtype)


def test_clipping_with_a_gradient_is_seen_by_the_gradient_alone() -> None:
    probes = seen_by(CONTRACT, "gradient-through-clip")
    assert "value" not in probes
    assert "gradient" in probes


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "clipped-against-itself")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


def test_the_dialect_is_real() -> None:
    """verl takes every knob as an argument, so it has no dialect; each of them is heard."""
    assert dialect_is_real(CONTRACT, "verl", examples=5) == []
    case = EDGES["ragged rows: seq-mean-token-sum-norm"]
    plain = result("verl", case).outputs["loss"]
    for knobs in ({"clip_range": 0.2}, {"aggregation": "token-mean"}, {"horizon": 8.0}):
        assert not np.isclose(result("verl", case, **knobs).outputs["loss"], plain)


@pytest.mark.parametrize(
    ("label", "clipped", "gradient"),
    [
        ("towards the return, beyond the range", 1.0, 0.0),
        ("away from the return, beyond the range", 0.0, -1.8125 - 2.0),
        ("past the return, beyond the range", 0.0, 0.9375 - 0.25),
    ],
)
def test_a_step_beyond_the_range_is_punished_but_not_rewarded(label: str, clipped: float, gradient: float) -> None:
    found = result("verl", EDGES[label])
    assert found.outputs["clip_fraction"] == clipped
    weight = result("verl", EDGES["one token"]).gradients["value_preds"] / (0.0625 - 2.0)
    np.testing.assert_allclose(found.gradients["value_preds"], gradient * weight)


def test_what_is_recorded_gets_no_gradient() -> None:
    assert set(result("verl", EDGES["full rows"]).gradients) == {"value_preds"}


def test_verl_has_not_a_number_for_a_gradient_where_a_masked_slot_has_one() -> None:
    case = EDGES["ragged rows: token-mean"]
    preds = np.where(case.inputs["response_mask"], case.inputs["value_preds"], np.nan)
    poisoned = replace(case, inputs={**case.inputs, "value_preds": preds})
    for name, expected in (("verl", True), ("minimal-torch", False)):
        found = result(name, poisoned)
        assert np.isfinite(found.outputs["loss"])
        assert np.isnan(found.gradients["value_preds"]).any() == expected


def test_verl_divides_by_the_tokens_that_there_are() -> None:
    case = EDGES["full rows"]
    masked = replace(case, inputs={**case.inputs, "response_mask": case.inputs["response_mask"] & False})
    assert "tokens" in (CONTRACT.implementation("verl").accepts(masked) or "")
    assert np.isnan(result("verl", masked).outputs["loss"])


def test_float64_stays_float64() -> None:
    case = EDGES["ragged rows: seq-mean-token-mean"]
    ours = result("minimal-torch", case)
    for key in ("loss", "clip_fraction"):
        np.testing.assert_allclose(result("verl", case).outputs[key], ours.outputs[key], rtol=1e-14)
