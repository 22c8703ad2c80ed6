"""GAE from scratch: what must hold of it, in both twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

REWARDS = np.array([[1.0, 0.0, 2.0, -1.0]])
VALUES = np.array([[0.5, 1.0, -0.5, 0.25]])
FULL = np.ones((1, 4), dtype=bool)
NONE = ~FULL
FINAL = np.array([[8.0, 8.0, 8.0, 8.0]])
LAST = np.array([3.0])


@pytest.fixture(params=FRAMEWORKS)
def twins(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.gae", request.param)


def gae(
    twins: Twin,
    rewards: Any = REWARDS,
    values: Any = VALUES,
    mask: Any = FULL,
    terminated: Any = NONE,
    truncated: Any = NONE,
    final: Any = FINAL,
    last: Any = LAST,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    options = {"gamma": 0.5, "lam": 0.5, "whitened": False, **options}
    advantages, returns = twins("gae", rewards, values, mask, terminated, truncated, final, last, **options)
    return advantages, returns


def flags(*columns: int) -> np.ndarray:
    return np.isin(np.arange(4), columns)[None]


def test_lambda_zero_is_the_one_step_error(twins: Twin) -> None:
    advantages, returns = gae(twins, lam=0.0)
    following = np.array([[1.0, -0.5, 0.25, 3.0]])
    np.testing.assert_allclose(advantages, REWARDS + 0.5 * following - VALUES)
    np.testing.assert_allclose(returns, REWARDS + 0.5 * following)


def test_lambda_one_is_monte_carlo(twins: Twin) -> None:
    _, returns = gae(twins, lam=1.0)
    gamma = 0.5
    by_hand = [sum(gamma ** (s - t) * REWARDS[0, s] for s in range(t, 4)) + gamma ** (4 - t) * 3 for t in range(4)]
    np.testing.assert_allclose(returns[0], by_hand)
    assert not np.allclose(gae(twins, lam=0.9)[1][0], by_hand)


def test_in_between_it_is_the_weighted_mean_of_n_step_estimates(twins: Twin) -> None:
    """(1 - lambda) sum of lambda^(n-1) A^(n), the rest of the weight on the longest (arXiv 1506.02438, equation 16)."""
    gamma, lam = 0.5, 0.25
    following = np.append(VALUES[0], LAST)
    steps = [
        sum(gamma**k * REWARDS[0, k] for k in range(n)) + gamma**n * following[n] - VALUES[0, 0] for n in (1, 2, 3, 4)
    ]
    weights = [(1 - lam) * lam**k for k in range(3)] + [lam**3]
    assert gae(twins, lam=lam)[0][0, 0] == pytest.approx(np.dot(weights, steps))


def test_nothing_follows_a_termination(twins: Twin) -> None:
    advantages, _ = gae(twins, terminated=flags(1))
    assert advantages[0, 1] == 0.0 - 1.0
    assert advantages[0, 0] == pytest.approx(1 + 0.5 * 1 - 0.5 + 0.25 * -1)


def test_the_last_observation_follows_a_truncation(twins: Twin) -> None:
    advantages, _ = gae(twins, truncated=flags(1))
    assert advantages[0, 1] == 0.0 + 0.5 * 8 - 1.0
    assert gae(twins, truncated=flags(1), terminated=flags(1))[0][0, 1] == -1


def test_an_end_cuts_the_batch_in_two(twins: Twin) -> None:
    """What comes after an end does not reach what lies before it."""
    other = REWARDS + np.array([[0, 0, 100, 100]])
    for ends in ({"terminated": flags(1)}, {"truncated": flags(1)}):
        np.testing.assert_array_equal(gae(twins, **ends)[0][:, :2], gae(twins, rewards=other, **ends)[0][:, :2])
    assert not np.allclose(gae(twins)[0][:, :2], gae(twins, rewards=other)[0][:, :2])


def test_masked_slots_are_skipped(twins: Twin) -> None:
    """As if the columns around them adjoined; they hold what they pass on."""
    mask = np.array([[True, False, True, True]])
    kept = [0, 2, 3]
    advantages, returns = gae(twins, mask=mask)
    short = [array[:, kept] for array in (REWARDS, VALUES, FULL, NONE, NONE, FINAL)]
    narrow = gae(twins, *short)
    np.testing.assert_allclose(advantages[:, kept], narrow[0])
    np.testing.assert_allclose(returns[:, kept], narrow[1])
    assert advantages[0, 1] == advantages[0, 2]
    assert gae(twins, mask=mask, masked="zero")[0][0, 1] == gae(twins, mask=mask, masked="zero")[1][0, 1] == 0


def test_whitening_gives_mean_zero_and_unit_spread_over_real_slots(twins: Twin) -> None:
    mask = np.array([[True, True, False, True]])
    advantages = twins("whiten", REWARDS * 50, mask, eps=0.0, count_eps=0.0)
    assert advantages[mask].mean() == pytest.approx(0, abs=1e-12)
    assert advantages[mask].std(ddof=1) == pytest.approx(1)
    assert advantages.std(ddof=1) != pytest.approx(1, abs=0.01)
    assert np.abs(twins("whiten", REWARDS * 0, mask)).max() == 0


def test_returns_come_before_whitening(twins: Twin) -> None:
    np.testing.assert_array_equal(gae(twins, whitened=True)[1], gae(twins, whitened=False)[1])
    assert not np.allclose(gae(twins, whitened=True)[0], gae(twins, whitened=False)[0])


def test_a_perfect_critic_leaves_no_advantage(twins: Twin) -> None:
    values = np.array([[3.0, 2.0, 2.0, 0.0]])
    rewards = np.array([[1.0, 0.0, 2.0, 0.0]])
    advantages, returns = gae(twins, rewards, values, last=np.zeros(1), gamma=1.0)
    np.testing.assert_array_equal(advantages, 0)
    np.testing.assert_array_equal(returns, values)


def test_nothing_carries_a_gradient() -> None:
    import torch

    from minimal.post_training import gae_torch

    values = torch.ones(1, 4, requires_grad=True)
    rest = [torch.from_numpy(array) for array in (FULL, NONE, NONE, FINAL, LAST)]
    assert not any(item.requires_grad for item in gae_torch.gae(torch.ones(1, 4), values, *rest))


def test_jax_scans_once_however_long_the_row() -> None:
    import jax
    import jax.numpy as jnp

    from minimal.post_training import gae_jax

    def equations(width: int) -> int:
        rows = [jnp.zeros((2, width)), jnp.zeros((2, width)), *[jnp.ones((2, width), dtype=bool)] * 3]
        return len(jax.make_jaxpr(gae_jax.gae)(*rows, jnp.zeros((2, width)), jnp.zeros(2)).eqns)

    assert equations(64) == equations(4)


def test_nor_do_they_in_jax() -> None:
    import jax

    from minimal.post_training import gae_jax

    def both(values: Any) -> Any:
        return sum(item.sum() for item in gae_jax.gae(np.ones((1, 4)), values, *rest, whitened=False))

    rest = (
        np.ones((1, 4), dtype=bool),
        np.zeros((1, 4), dtype=bool),
        np.zeros((1, 4), dtype=bool),
        np.zeros((1, 4)),
        np.ones(1),
    )
    assert not np.asarray(jax.grad(both)(np.ones((1, 4), dtype=np.float32))).any()
