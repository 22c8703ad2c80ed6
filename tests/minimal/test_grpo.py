"""GRPO from scratch: what must hold of any group-relative advantage, in both twins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

SCORES = np.array([0.0, 1.0, 0.5, 2.0, -1.0, 4.0, 3.0])
GROUP = np.array([5, 5, 5, 9, 9, 9, 9])
ROWS = (slice(0, 3), slice(3, 7))


@pytest.fixture(params=FRAMEWORKS)
def grpo(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.grpo", request.param)


def by_group(values: np.ndarray) -> list[np.ndarray]:
    return [values[rows] for rows in ROWS]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_the_advantages_of_a_group_sum_to_zero(grpo: Twin, scale: str) -> None:
    advantages = grpo("group_advantages", SCORES, GROUP, scale=scale)
    for group in by_group(advantages):
        assert group.sum() == pytest.approx(0, abs=1e-12)
        assert np.abs(group).max() > 0.1


def test_a_group_has_unit_spread_with_bessels_correction(grpo: Twin) -> None:
    for group in by_group(grpo("group_advantages", SCORES, GROUP, eps=0.0)):
        assert group.std(ddof=1) == pytest.approx(1)
        assert group.std(ddof=0) < 0.9


def test_without_scale_it_is_leave_one_out_times_a_constant(grpo: Twin) -> None:
    """RLOO's advantage r_i - mean of the others is n/(n-1) times the centred reward (arXiv 2402.14740)."""
    for scores, ours in zip(
        by_group(SCORES), by_group(grpo("group_advantages", SCORES, GROUP, scale="none")), strict=True
    ):
        n = len(scores)
        rloo = scores - (scores.sum() - scores) / (n - 1)
        np.testing.assert_allclose(ours * n / (n - 1), rloo, atol=1e-12)
        assert not np.allclose(ours, rloo)


def test_scaled_rewards_give_the_same_advantages_only_with_scale(grpo: Twin) -> None:
    few, many = (grpo("group_advantages", factor * SCORES, GROUP, eps=0.0) for factor in (1, 10))
    np.testing.assert_allclose(few, many)
    few, many = (grpo("group_advantages", factor * SCORES, GROUP, scale="none") for factor in (1, 10))
    np.testing.assert_allclose(10 * few, many)


def test_rows_may_lie_anywhere(grpo: Twin) -> None:
    order = np.random.default_rng(0).permutation(len(SCORES))
    straight = grpo("group_advantages", SCORES, GROUP)
    np.testing.assert_allclose(grpo("group_advantages", SCORES[order], GROUP[order]), straight[order], atol=1e-12)
    assert not np.allclose(grpo("group_advantages", SCORES[order], GROUP), straight[order])


@pytest.mark.parametrize(
    ("singleton", "scale", "expected"),
    [("raw", "none", 3.0), ("raw", "group", 3.0 / 1.5), ("zero", "none", 0.0), ("zero", "group", 0.0)],
)
def test_a_group_of_one(grpo: Twin, singleton: str, scale: str, expected: float) -> None:
    found = grpo("group_advantages", [3.0, 1.0, 2.0], [7, 1, 1], eps=0.5, scale=scale, singleton=singleton)
    assert found[0] == pytest.approx(expected)
    assert found[1] < 0 < found[2]


def test_equal_rewards_teach_nothing(grpo: Twin) -> None:
    np.testing.assert_array_equal(grpo("group_advantages", [0.5] * 4, [0] * 4), 0)


def test_masked_slots_get_nothing_and_their_rewards_count(grpo: Twin) -> None:
    rewards = np.array([[0.0, 1.0], [0.0, 3.0]])
    mask = np.array([[True, False], [True, True]])
    found = grpo("grpo_advantages", rewards, mask, [0, 0], scale="none")
    np.testing.assert_allclose(found, [[-1, 0], [1, 1]])


def test_the_batch_std_is_one_number(grpo: Twin) -> None:
    assert grpo("batch_std", SCORES) == pytest.approx(SCORES.std(ddof=1))
    assert grpo("batch_std", SCORES[:1]) == 0


def test_advantages_are_weights_and_carry_no_gradient() -> None:
    import torch

    from minimal.post_training import grpo_torch

    rewards = torch.ones(2, 3, requires_grad=True)
    mask, group = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.long)
    assert not grpo_torch.grpo_advantages(rewards, mask, group).requires_grad
    assert grpo_torch.outcome_scores(rewards).requires_grad


def test_jax_compiles_and_differentiates_to_zero() -> None:
    import jax
    import jax.numpy as jnp

    from minimal.post_training import grpo_jax

    compiled = jax.jit(grpo_jax.grpo_advantages, static_argnames=("scale", "singleton"))
    rewards, mask, group = jnp.asarray(SCORES)[:, None], jnp.ones((7, 1), dtype=bool), jnp.asarray(GROUP)
    eager = grpo_jax.grpo_advantages(rewards, mask, group)
    np.testing.assert_allclose(compiled(rewards, mask, group), eager, rtol=1e-5)
    gradient = jax.grad(lambda r: grpo_jax.grpo_advantages(r, mask, group).sum())(rewards)
    np.testing.assert_array_equal(gradient, 0)
