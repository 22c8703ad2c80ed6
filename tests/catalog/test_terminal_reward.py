"""``terminal-reward``: every implementation keeps it, every deviation breaks it, and verl does as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, terminal_reward
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import run

CONTRACT = contract("terminal-reward")
EDGES = {case.label: case for case in CONTRACT.edges()}
EMPTY = terminal_reward._case("", [1.0, 2.0], [[0, 0, 0], [1, 0, 0]])


def rewards(name: str, case: Case, dtype: str = "float32", **knobs: Any) -> np.ndarray:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype).outputs["token_level_rewards"]


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "first-pad")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float32",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", ["verl", "verl-batch"])
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


@pytest.mark.parametrize("name", ["verl", "verl-batch"])
def test_verl_counts_so_a_mask_with_holes_puts_the_reward_too_early(name: str) -> None:
    case = EDGES["holes: words of a tool"]
    np.testing.assert_array_equal(rewards(name, case).nonzero()[1], [1, 2, 1])
    np.testing.assert_array_equal(rewards("minimal-torch", case, place="last").nonzero()[1], [2, 3, 3])


@pytest.mark.parametrize("name", ["verl", "verl-batch"])
def test_an_empty_response_is_rewarded_on_its_last_slot(name: str) -> None:
    assert "no last one" in (CONTRACT.implementation(name).accepts(EMPTY) or "")
    np.testing.assert_array_equal(rewards(name, EMPTY), [[0, 0, 1], [2, 0, 0]])


def test_verl_writes_float32_whatever_it_is_given() -> None:
    case = terminal_reward._case("", [1 / 3], [[1]])
    found, ours = (rewards(name, case, dtype="float64") for name in ("verl", "minimal-torch"))
    assert found != ours == 1 / 3
    assert found == np.float32(1 / 3)
