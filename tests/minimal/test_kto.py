"""KTO from scratch: what the loss must be in hand-checkable cases, in both twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin


@pytest.fixture(params=FRAMEWORKS)
def kto(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.kto", request.param)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def loss(kto: Twin, h: list[float], kl: list[float], good: list[bool], **options: Any) -> tuple[float, float, float]:
    """Completions of one token, of these log-ratios; a second, masked slot holds rubbish."""
    rows = []
    for ratios in (h, kl):
        policy = np.array([[ratio - 1.0, 7.0] for ratio in ratios])
        rows += [policy, np.full_like(policy, -1.0), np.array([[True, False]] * len(ratios))]
    found: tuple[float, float, float] = kto("kto_loss", *rows, np.array(good), **options)
    return found


def test_counted_from_the_mean_of_the_mismatched(kto: Twin) -> None:
    found, chosen, rejected = loss(kto, [3.0, 1.0], [1.0, 3.0], [True, False], beta=0.5)
    assert found == pytest.approx((sigmoid(-0.5) + sigmoid(-0.5)) / 2)  # z0 = 2: one gains 1, the other too
    assert (chosen, rejected) == pytest.approx((1.5, 0.5))


def test_never_from_below_zero(kto: Twin) -> None:
    low, zero = (loss(kto, [1.0, 1.0], [kl, kl], [True, False])[0] for kl in (-5.0, 0.0))
    assert low == pytest.approx(zero)
    assert loss(kto, [1.0, 1.0], [-3.0, 4.0], [True, True], beta=1.0)[0] == pytest.approx(sigmoid(-0.5))


def test_apo_zero_counts_from_zero(kto: Twin) -> None:
    found = loss(kto, [1.0, 1.0], [9.0, 9.0], [True, False], beta=1.0, loss_type="apo_zero_unpaired")[0]
    assert found == pytest.approx((sigmoid(-1.0) + sigmoid(1.0)) / 2)


def test_each_kind_has_its_weight_and_the_mean_is_over_all(kto: Twin) -> None:
    weights = {"desirable_weight": 2.0, "undesirable_weight": 0.5}
    found = loss(kto, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [True, False, False], **weights)[0]
    assert found == pytest.approx((2.0 + 0.5 + 0.5) / 6)


def test_a_certain_gain_keeps_its_digits(kto: Twin) -> None:
    assert loss(kto, [60.0], [0.0], [True], beta=1.0)[0] == pytest.approx(math.exp(-60.0), rel=1e-12)
