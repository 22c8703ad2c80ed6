"""``rloo-advantage``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, rloo_advantage
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import run

CONTRACT = contract("rloo-advantage")
EDGES = {case.label: case for case in CONTRACT.edges()}


def advantages(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> np.ndarray:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype).outputs["advantages"]


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "group-mean")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", ["verl", "verl-vectorized", "trl"])
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


def test_the_two_estimators_of_verl_part_where_one_sample_stands_alone() -> None:
    case = EDGES["only groups of one"]
    assert advantages("verl", case).any()
    assert not advantages("verl-vectorized", case).any()
    assert not advantages("trl", case).any()


def test_with_pairs_it_is_the_difference_to_the_other() -> None:
    case = EDGES["pairs"]
    scores = case.inputs["token_level_rewards"].sum(axis=1)
    for name in ("verl", "verl-vectorized", "trl"):
        found = advantages(name, case)[:, 0]
        np.testing.assert_allclose(found[:4:2], scores[:4:2] - scores[1:4:2])
        np.testing.assert_allclose(found[1:4:2], -found[:4:2])


def test_the_method_that_runs_is_that_of_the_pin() -> None:
    import inspect

    file = inspect.getsourcefile(type(rloo_advantage._trainer())._generate_and_score_completions)
    assert any(part.startswith("trl-") for part in Path(file or "").resolve().parts), file
