"""``remax-advantage``: every implementation keeps it, every deviation breaks it, and verl does as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from annotator.catalog import contract
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import run

CONTRACT = contract("remax-advantage")
EDGES = {case.label: case for case in CONTRACT.edges()}


def outputs(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> dict[str, np.ndarray]:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype).outputs


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "no-greedy-baseline")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


def test_the_dialect_is_real() -> None:
    assert dialect_is_real(CONTRACT, "verl", examples=15) == []


def test_verl_leaves_rewards_to_go_in_holes_and_nothing_behind_the_last_token() -> None:
    case = EDGES["holes"]
    hidden, found = ~case.inputs["response_mask"], outputs("verl", case)
    np.testing.assert_array_equal(found["advantages"][hidden], found["returns"][hidden])
    assert found["advantages"][0, 1] == found["returns"][0, 3] != 0
    assert found["advantages"][2, 3] == 0


def test_a_reward_in_a_masked_slot_does_not_count_here() -> None:
    """Unlike in verl's estimators over groups, which sum every slot."""
    case = EDGES["a reward at every token, and under the mask"]
    rewards = np.where(case.inputs["response_mask"], case.inputs["token_level_rewards"], 100.0)
    other = replace(case, inputs={**case.inputs, "token_level_rewards": rewards})
    np.testing.assert_array_equal(outputs("verl", case)["returns"], outputs("verl", other)["returns"])


def test_verl_lets_not_a_number_through_a_mask() -> None:
    case = EDGES["a reward at the last token"]
    rewards = np.where(case.inputs["response_mask"], case.inputs["token_level_rewards"], np.nan)
    poisoned = replace(case, inputs={**case.inputs, "token_level_rewards": rewards})
    assert np.isnan(outputs("verl", poisoned)["advantages"]).any()
    assert np.isfinite(outputs("minimal-torch", poisoned)["advantages"]).all()
