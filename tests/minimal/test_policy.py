"""The clipped policy loss from scratch: what it reduces to, and where its gradient ends, in both twins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

OLD = np.array([[-1.0, -0.5, -2.0], [-0.25, -1.5, -0.75]])
ADVANTAGES = np.array([[1.0, -2.0, 0.5], [-1.0, 3.0, 2.0]])
MASK = np.array([[True, True, False], [True, True, True]])
ONES = np.ones_like(OLD)
SIZES = (5, 2, 1)


@pytest.fixture(params=FRAMEWORKS)
def policy(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.policy", request.param)


def loss(policy: Twin, log_probs: np.ndarray, advantages: np.ndarray = ADVANTAGES, **knobs: object) -> float:
    found = policy("policy_loss", log_probs, OLD, advantages, MASK, OLD, ONES, *SIZES, **knobs)
    return float(found[0])


def test_on_policy_it_is_minus_the_mean_advantage(policy: Twin) -> None:
    assert loss(policy, OLD) == pytest.approx(-ADVANTAGES[MASK].mean())
    assert loss(policy, OLD + 0.1) != pytest.approx(-ADVANTAGES[MASK].mean())


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.1, 1.0, -1.1),
        (1.5, 1.0, -1.28),  # too far: no more gain
        (0.5, 1.0, -0.5),  # has to come back: the full loss
        (1.5, -1.0, 1.5),
        (0.5, -1.0, 0.8),
        (9.0, -1.0, 3.0),  # dual clip
        (9.0, 1.0, -1.28),
        (9.0, 0.0, 0.0),
    ],
)
def test_a_token_by_hand(policy: Twin, ratio: float, advantage: float, expected: float) -> None:
    bounds = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}
    assert float(
        policy("clipped_losses", np.array([[ratio]]), np.array([[advantage]]), **bounds)[0, 0]
    ) == pytest.approx(expected)


def test_without_dual_clip_a_negative_advantage_has_no_bound(policy: Twin) -> None:
    assert float(policy("clipped_losses", np.array([[9.0]]), np.array([[-1.0]]))[0, 0]) == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [(1.5, 1, True), (1.5, -1, False), (0.5, 1, False), (0.5, -1, True), (1.5, 0, False)],
)
def test_what_counts_as_clipped(policy: Twin, ratio: float, advantage: float, clipped: bool) -> None:
    assert bool(policy("clipped_slots", np.array([[ratio]]), np.array([[float(advantage)]]))[0, 0]) is clipped


@pytest.mark.parametrize(("ratio", "advantage"), [(1.25, 1.0), (0.75, -1.0)])
def test_at_the_edge_of_the_range_nothing_is_clipped_yet(policy: Twin, ratio: float, advantage: float) -> None:
    options = {"clip_low": 0.25, "clip_high": 0.25}
    assert not policy("clipped_slots", np.array([[ratio]]), np.array([[advantage]]), **options)


def test_the_divergence_is_added_and_never_negative(policy: Twin) -> None:
    apart = OLD + np.array([[0.3, -0.4, 0.0], [0.2, -0.1, 0.5]])
    kl = policy("kl_estimates", apart, OLD)
    assert (np.asarray(kl) >= 0).all()
    assert loss(policy, apart, kl_coef=0.5) == pytest.approx(loss(policy, apart) + 0.5 * np.asarray(kl)[MASK].mean())


def test_the_weight_multiplies_the_policy_and_not_the_divergence(policy: Twin) -> None:
    apart = OLD + 0.1
    given = (apart, OLD, ADVANTAGES, MASK, OLD, 2 * ONES, *SIZES)
    plain, kl = loss(policy, apart), loss(policy, apart, kl_coef=0.5) - loss(policy, apart)
    weighted = float(policy("policy_loss", *given, weighted=True, kl_coef=0.5)[0])
    assert weighted == pytest.approx(2 * plain + kl)
    assert float(policy("policy_loss", *given, weighted=False, kl_coef=0.5)[0]) == pytest.approx(plain + kl)


def test_masked_slots_may_hold_anything(policy: Twin) -> None:
    log_probs = OLD + 0.1
    hidden = [np.where(MASK, x, np.nan) for x in (log_probs, OLD, ADVANTAGES)]
    found = policy("policy_loss", *hidden, MASK, OLD, ONES, *SIZES)
    assert float(found[0]) == pytest.approx(loss(policy, log_probs))
    assert math.isnan(float(policy("policy_loss", *hidden, MASK | True, OLD, ONES, *SIZES)[0]))


def test_global_counts_and_ranks(policy: Twin) -> None:
    args = (OLD, OLD, ADVANTAGES, MASK, OLD, ONES, 10, 4, 2)
    whole, own = (float(policy("policy_loss", *args, counts=counts)[0]) for counts in ("global", "local"))
    assert whole == pytest.approx(-ADVANTAGES[MASK].sum() / 10 * 2)
    assert own == pytest.approx(-ADVANTAGES[MASK].mean())


def test_the_log_ratio_is_limited(policy: Twin) -> None:
    found = policy(
        "log_ratios", np.array([[0.0, 0.0, 0.0]]), np.array([[-50.0, 50.0, -1.0]]), MASK[1:], max_log_ratio=20.0
    )
    np.testing.assert_allclose(found, [[20, -20, 1]])


def test_the_gradient_is_the_policy_gradient_and_ends_at_the_range() -> None:
    import torch

    from minimal.post_training import policy_torch

    old, mask = torch.tensor([[-1.0, -1.0, -1.0]]), torch.ones(1, 3, dtype=torch.bool)
    new = (old + torch.tensor([[0.0, 1.0, -1.0]])).requires_grad_()
    gain = torch.tensor([[2.0, 2.0, 2.0]])
    loss, fraction = policy_torch.policy_loss(new, old, gain, mask, old, gain, torch.tensor(3), torch.tensor(1), 1)
    loss.backward()
    assert new.grad is not None
    np.testing.assert_allclose(new.grad, [[-2 / 3, 0, -2 / 3 * math.exp(-1)]], rtol=1e-6)
    assert float(fraction) == pytest.approx(1 / 3)
