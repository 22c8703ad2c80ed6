"""``gae``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import _sb3, contract, gae
from annotator.catalog._third_party import CORE, pinned
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import Fault, run

CONTRACT = contract("gae")
EDGES = {case.label: case for case in CONTRACT.edges()}
ENDS = ("terminated", "truncated", "terminated at its time limit", "all kinds of ends", "one step, truncated")


def outputs(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> dict[str, np.ndarray]:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype).outputs


def changed(case: Case, **inputs: Any) -> Case:
    return replace(case, inputs={**case.inputs, **{name: np.array(array) for name, array in inputs.items()}})


@pytest.mark.parametrize(("name", "reference"), [("population-variance", "verl"), ("truncation-is-termination", "sb3")])
def test_a_deviation_in_an_implementations_place_does_not_conform(name: str, reference: str) -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == name)
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation(reference), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", ["verl", "sb3"])
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


def test_verl_leaves_something_at_masked_slots() -> None:
    """A mean is taken off everywhere, and a masked slot before a token holds that token's advantage."""
    case = EDGES["holes: words of a tool"]
    hidden = ~case.inputs["response_mask"]
    found = outputs("verl", case)
    assert np.abs(found["advantages"][hidden]).min() > 0.01
    assert found["advantages"][0, 1] == found["advantages"][0, 3]
    assert not outputs("minimal-torch", case, masked="zero")["advantages"][hidden].any()


def test_verl_lets_not_a_number_through_a_mask() -> None:
    case = EDGES["ragged rows"]
    values = np.where(case.inputs["response_mask"], case.inputs["values"], np.nan)
    assert np.isnan(outputs("verl", changed(case, values=values))["advantages"]).all()
    assert np.isfinite(outputs("minimal-torch", changed(case, values=values))["advantages"]).all()


def test_verl_refuses_to_whiten_one_token() -> None:
    case = changed(EDGES["two tokens in all"], response_mask=[[True, False]])
    assert "two tokens" in (CONTRACT.implementation("verl").accepts(case) or "")
    with pytest.raises(Fault, match="sum of the mask is one"):
        outputs("verl", case)


def test_verl_adds_to_the_count_what_float32_cannot_hold() -> None:
    """Equal advantages are not whitened to 0 in float64: the mean is 1e-8/n short, and the root of eps divides it."""
    equal = gae._case("", [[1.0], [1.0], [1.0]], [[0.5], [0.5], [0.5]], gamma=1.0)
    wide, narrow = (outputs("verl", equal, dtype)["advantages"] for dtype in ("float64", "float32"))
    np.testing.assert_allclose(wide, 0.5 * 1e-8 / 3 / 1e-4, rtol=1e-6)
    assert not narrow.any()


def test_sb3_takes_the_last_observation_of_a_truncated_episode() -> None:
    case = EDGES["one step, truncated"]  # r = 1, V = 0.5, V of the last observation 2
    np.testing.assert_allclose(outputs("sb3", case)["returns"], [[1 + 0.99 * 2]])
    np.testing.assert_allclose(outputs("sb3", changed(case, terminated=[[True]]))["returns"], [[1.0]])


@pytest.mark.parametrize("label", ENDS)
def test_each_has_its_half_of_the_inputs(label: str) -> None:
    assert CONTRACT.implementation("verl").accepts(EDGES[label]) is not None
    assert CONTRACT.implementation("sb3").accepts(EDGES[label]) is None
    assert CONTRACT.implementation("sb3").accepts(EDGES["ragged rows"]) is not None


def test_where_both_can_run_they_differ_by_whitening_alone() -> None:
    case = EDGES["full rows"]
    verl, sb3 = outputs("verl", case), outputs("sb3", case)
    np.testing.assert_allclose(verl["returns"], sb3["returns"], rtol=1e-14)
    raw = sb3["advantages"]
    np.testing.assert_allclose(verl["advantages"], (raw - raw.mean()) / raw.std(ddof=1), rtol=1e-6)


def test_float64_stays_float64() -> None:
    """verl divides counts in the default dtype, and a rollout buffer has float32 arrays; the adapters widen both."""
    for name, label in (("verl", "ragged rows"), ("sb3", "all kinds of ends")):
        case, item = EDGES[label], CONTRACT.implementation(name)
        ours = outputs("minimal-torch", case, **item.dialect)["advantages"]
        np.testing.assert_allclose(outputs(name, case)["advantages"], ours, rtol=1e-13)
        assert np.abs(outputs(name, case, dtype="float32")["advantages"] - ours).max() > 1e-10


def test_the_code_that_runs_is_that_of_the_pin() -> None:
    import inspect

    stage = _sb3.stage(1)
    found = {
        "verl": pinned(CORE).compute_gae_advantage_return,
        "stable_baselines3": type(stage.algorithm).collect_rollouts,
    }
    for name, function in found.items():
        file = Path(inspect.getsourcefile(function) or "").resolve()
        assert any(part.startswith(name.replace("_", "-") + "-") for part in file.parts), file
    buffer = _sb3._classes()[2]
    assert "compute_returns_and_advantage" not in vars(buffer)


def test_an_adapter_leaves_nothing_behind() -> None:
    import torch

    def drawn() -> tuple[float, float]:
        return float(torch.rand(1)), float(np.random.rand())

    torch.manual_seed(5)
    np.random.seed(5)
    outputs("sb3", EDGES["all kinds of ends"])
    found = drawn()
    torch.manual_seed(5)
    np.random.seed(5)
    assert found == drawn()
    assert torch.get_default_dtype() == torch.float32
