"""RLOO from scratch: what must hold of it, in both twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

SCORES = np.array([0.0, 1.0, 0.5, 2.0, -1.0, 4.0, 3.0])
GROUP = np.array([5, 5, 5, 9, 9, 9, 9])
ROWS = (slice(0, 3), slice(3, 7))


@pytest.fixture(params=FRAMEWORKS)
def rloo(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.rloo", request.param)


def test_by_hand(rloo: Twin) -> None:
    found = rloo("leave_one_out", SCORES[:3], GROUP[:3])
    np.testing.assert_allclose(found, [0 - 0.75, 1 - 0.25, 0.5 - 0.5])


def test_it_is_grpos_centred_reward_times_a_constant(rloo: Twin) -> None:
    framework = "torch" if "torch" in rloo.module.__name__ else "jax"
    centred = twin("post_training.grpo", framework)("group_advantages", SCORES, GROUP, scale="none")
    found = rloo("leave_one_out", SCORES, GROUP)
    for rows, n in zip(ROWS, (3, 4), strict=True):
        np.testing.assert_allclose(found[rows], centred[rows] * n / (n - 1))
        assert not np.allclose(found[rows], centred[rows])


def test_a_responses_own_reward_is_not_in_its_baseline(rloo: Twin) -> None:
    other = SCORES + np.eye(7)[2] * 10
    number = np.array([0, 0, 0, 1, 1, 1, 1])
    moved = rloo("others_means", other, number) - rloo("others_means", SCORES, number)
    np.testing.assert_allclose(moved, [5, 5, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(("singleton", "expected"), [("raw", 3.0), ("zero", 0.0)])
def test_a_group_of_one(rloo: Twin, singleton: str, expected: float) -> None:
    found = rloo("leave_one_out", [3.0, 1.0, 2.0], [7, 1, 1], singleton=singleton)
    np.testing.assert_allclose(found, [expected, -1, 1])


def test_scaled_by_the_batch(rloo: Twin) -> None:
    found = rloo("standardised", SCORES, eps=0.0)
    assert found.mean() == pytest.approx(0, abs=1e-12)
    assert found.std(ddof=1) == pytest.approx(1)
    rewards, mask = SCORES[:, None], np.ones((7, 1), dtype=bool)
    plain = rloo("rloo_advantages", rewards, mask, GROUP)
    np.testing.assert_allclose(
        rloo("rloo_advantages", rewards, mask, GROUP, scale="batch"), rloo("standardised", plain[:, 0])[:, None]
    )


def test_masked_slots_get_nothing_and_their_rewards_count(rloo: Twin) -> None:
    rewards = np.array([[0.0, 1.0], [0.0, 3.0]])
    mask = np.array([[True, False], [True, True]])
    np.testing.assert_allclose(rloo("rloo_advantages", rewards, mask, [0, 0]), [[-2, 0], [2, 2]])


def test_jax_compiles() -> None:
    import jax
    import jax.numpy as jnp

    from minimal.post_training import rloo_jax

    compiled = jax.jit(rloo_jax.rloo_advantages, static_argnames=("scale", "singleton"))
    given = jnp.asarray(SCORES)[:, None], jnp.ones((7, 1), dtype=bool), jnp.asarray(GROUP)
    for scale in ("none", "batch"):
        np.testing.assert_allclose(
            compiled(*given, scale=scale), rloo_jax.rloo_advantages(*given, scale=scale), rtol=1e-5, atol=1e-6
        )


def test_an_advantage_is_a_weight_and_no_path_for_gradients() -> None:
    import torch

    from minimal.post_training import rloo_torch

    rewards = torch.ones(2, 3, requires_grad=True)
    mask, group = torch.ones(2, 3, dtype=torch.bool), torch.tensor([0, 0])
    assert not rloo_torch.rloo_advantages(rewards, mask, group).requires_grad
    assert (rewards * mask).requires_grad


def test_nor_does_it_in_jax() -> None:
    import jax

    from minimal.post_training import rloo_jax

    def total(rewards: Any) -> Any:
        mask, group = np.ones((2, 3), dtype=bool), np.zeros(2, dtype=int)
        return (rloo_jax.rloo_advantages(rewards, mask, group) * np.array([[1.0], [2.0]])).sum()

    assert not np.asarray(jax.grad(total)(np.ones((2, 3), dtype=np.float32))).any()
