"""ReMax from scratch: what must hold of it, in both twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

REWARDS = np.array([[0.5, 0.0, -1.0, 2.0], [0.0, 3.0, 7.0, 7.0]])
MASK = np.array([[True, False, True, True], [True, True, False, False]])
GREEDY = np.array([1.0, 2.0])


@pytest.fixture(params=FRAMEWORKS)
def remax(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.remax", request.param)


def test_by_hand(remax: Twin) -> None:
    advantages, returns = remax("remax_advantages", REWARDS, GREEDY, MASK)
    np.testing.assert_array_equal(returns, [[1.5, 1, 1, 2], [3, 3, 0, 0]])
    np.testing.assert_array_equal(advantages, [[0.5, 1, 0, 1], [1, 1, 0, 0]])
    advantages, returns = remax("remax_advantages", REWARDS, GREEDY, MASK, masked="zero")
    np.testing.assert_array_equal(returns, [[1.5, 0, 1, 2], [3, 3, 0, 0]])
    np.testing.assert_array_equal(advantages, [[0.5, 0, 0, 1], [1, 1, 0, 0]])


def test_a_reward_at_the_end_gives_every_token_the_same(remax: Twin) -> None:
    outcome = np.array([[0.0, 0, 0, 2], [0, -1, 0, 0]])
    advantages, _ = remax("remax_advantages", outcome, GREEDY, MASK)
    for row, kept, expected in zip(advantages, MASK, (1.0, -3.0), strict=True):
        np.testing.assert_array_equal(row[kept], expected)


def test_it_is_gae_with_the_greedy_reward_as_the_value(remax: Twin) -> None:
    """Monte Carlo (gamma = lambda = 1), the critic saying b everywhere."""
    framework = "torch" if "torch" in remax.module.__name__ else "jax"
    none = np.zeros_like(MASK)
    critic = np.broadcast_to(GREEDY[:, None], REWARDS.shape).copy()
    options = {"gamma": 1.0, "lam": 1.0, "whitened": False, "masked": "zero"}
    last = np.zeros(2)
    expected, _ = twin("post_training.gae", framework)(
        "gae", REWARDS, critic, MASK, none, none, critic, last, **options
    )
    found, _ = remax("remax_advantages", REWARDS, GREEDY, MASK, masked="zero")
    np.testing.assert_allclose(found, expected)
    assert not np.allclose(found, remax("remax_advantages", REWARDS, 0 * GREEDY, MASK, masked="zero")[0])


def test_the_baseline_takes_no_bias_in(remax: Twin) -> None:
    """Over all replies of a policy, the mean of advantage times score does not depend on the baseline, exactly."""
    logits = np.array([0.3, -0.2, 0.9])
    p = np.exp(logits) / np.exp(logits).sum()
    rewards, mask = np.array([[1.0], [-2.0], [4.0]]), np.ones((3, 1), dtype=bool)
    scores = np.eye(3) - p  # the gradient of log p at each reply

    def gradient(baseline: float) -> np.ndarray:
        advantages, _ = remax("remax_advantages", rewards, np.full(3, baseline), mask)
        return (p * advantages[:, 0]) @ scores

    np.testing.assert_allclose(gradient(4.0), gradient(0.0), atol=1e-12)
    assert np.abs(gradient(0.0)).max() > 0.1


def test_what_lies_under_the_mask_does_not_matter(remax: Twin) -> None:
    poisoned = np.where(MASK, REWARDS, np.nan)
    for found, expected in zip(
        remax("remax_advantages", poisoned, GREEDY, MASK), remax("remax_advantages", REWARDS, GREEDY, MASK), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_nothing_carries_a_gradient() -> None:
    import torch

    from minimal.post_training import remax_torch

    rewards = torch.ones(2, 3, requires_grad=True)
    found = remax_torch.remax_advantages(rewards, torch.zeros(2), torch.ones(2, 3, dtype=torch.bool))
    assert not any(item.requires_grad for item in found)
    assert remax_torch.rewards_to_go(rewards, torch.ones(2, 3, dtype=torch.bool)).requires_grad


def test_jax_compiles() -> None:
    import jax

    from minimal.post_training import remax_jax

    compiled = jax.jit(remax_jax.remax_advantages, static_argnames="masked")
    eager = remax_jax.remax_advantages(REWARDS, GREEDY, MASK)
    for found, expected in zip(compiled(REWARDS, GREEDY, MASK), eager, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_nor_does_it_in_jax() -> None:
    import jax

    from minimal.post_training import remax_jax

    def both(rewards: Any) -> Any:
        mask = np.ones((2, 3), dtype=bool)
        return sum(item.sum() for item in remax_jax.remax_advantages(rewards, np.zeros(2), mask))

    assert not np.asarray(jax.grad(both)(np.ones((2, 3), dtype=np.float32))).any()
