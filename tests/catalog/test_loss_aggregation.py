"""``loss-aggregation``: every implementation keeps it, every deviation breaks it, and verl does as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract
from annotator.catalog._third_party import CORE, pinned
from annotator.catalog.loss_aggregation import HIDDEN, MODES
from annotator.contracts import Case, conform
from annotator.contracts.kills import breaks_are_real
from annotator.contracts.running import run

CONTRACT = contract("loss-aggregation")
EDGES = {case.label: case for case in CONTRACT.edges()}


def loss(name: str, case: Case, **knobs: Any) -> float:
    item = CONTRACT.implementation(name)
    moved = replace(case, knobs={**case.knobs, **knobs})
    return float(run(CONTRACT, item.call, item.backend, moved).outputs["loss"])


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "micro-batch-mean")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


def test_verl_breaks_the_probe_that_it_is_said_to_break() -> None:
    assert breaks_are_real(CONTRACT, "verl", examples=5) == []


@pytest.mark.parametrize("mode", MODES)
def test_verl_selects_in_the_modes_over_tokens_alone(mode: str) -> None:
    """A loss that is not a number in a masked slot: left out there, multiplied by 0 in the modes over sequences."""
    finite = np.isfinite(loss("verl", EDGES[HIDDEN], aggregation=mode))
    assert finite == mode.startswith("token")
    refused = CONTRACT.implementation("verl").accepts(replace(EDGES[HIDDEN], knobs={"aggregation": mode}))
    assert (refused is None) == finite
    assert np.isfinite(loss("minimal-torch", EDGES[HIDDEN], aggregation=mode))


def test_verls_1e_8_beside_a_length_is_lost_in_float32() -> None:
    """It is added to a count of tokens, whose sum with a Python number is float32 whatever the losses are."""
    case = EDGES["no padding"]
    assert loss("verl", case) == pytest.approx(loss("minimal-torch", case), rel=1e-15)
    mean = case.inputs["token_losses"].sum() / (4 + 1e-8) / 3
    assert loss("verl", case) != pytest.approx(mean, rel=1e-10)


def test_without_a_constant_verl_takes_the_padded_width() -> None:
    import torch

    agg_loss = pinned(CORE).agg_loss
    losses, mask = torch.ones(2, 4), torch.tensor([[True, True, False, False]] * 2)
    wider = torch.nn.functional.pad(losses, (0, 4)), torch.nn.functional.pad(mask, (0, 4))
    assert agg_loss(losses, mask, MODES[3]).item() == 2 * agg_loss(*wider, MODES[3]).item()
    assert agg_loss(losses, mask, MODES[3], loss_scale_factor=4) == agg_loss(*wider, MODES[3], loss_scale_factor=4)
