"""KL-Cov from scratch: which tokens are held back, and that they must be chosen before the batch is cut."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

RANDOM = np.random.default_rng(3)
LOG_PROB = -RANDOM.exponential(1, (4, 5))
OLD = LOG_PROB + RANDOM.normal(0, 0.3, (4, 5))
ADVANTAGES = RANDOM.normal(0, 1, (4, 1)) * np.ones((4, 5))
MASK = np.arange(5) < np.array([5, 2, 4, 3])[:, None]
CUTS = ([slice(0, 4)], [slice(0, 2), slice(2, 4)], [slice(0, 1), slice(1, 4)])


@pytest.fixture(params=FRAMEWORKS)
def cov(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.cov", request.param)


def held(cov: Twin, share: float, mask: np.ndarray = MASK) -> np.ndarray:
    covariances = cov("token_covariances", LOG_PROB, ADVANTAGES, mask)
    return cov("largest_covariances", covariances, mask, share=share)


def test_the_covariances_sum_to_the_covariance(cov: Twin) -> None:
    found = cov("token_covariances", LOG_PROB, ADVANTAGES, MASK)[MASK]
    assert found.mean() == pytest.approx(np.cov(LOG_PROB[MASK], ADVANTAGES[MASK], ddof=0)[0, 1])


@pytest.mark.parametrize(("share", "number"), [(0.0002, 1), (0.1, 1), (0.25, 3), (0.5, 7), (1.0, 14)])
def test_a_share_rounded_down_and_one_at_least(cov: Twin, share: float, number: int) -> None:
    chosen = held(cov, share)
    assert chosen.sum() == number
    assert not chosen[~MASK].any()


def test_those_with_the_largest_covariance(cov: Twin) -> None:
    covariances = cov("token_covariances", LOG_PROB, ADVANTAGES, MASK)
    chosen = held(cov, 0.5)
    assert covariances[chosen].min() > covariances[MASK & ~chosen].max()


def test_what_is_masked_does_not_matter(cov: Twin) -> None:
    poisoned = [np.where(MASK, array, np.nan) for array in (OLD, LOG_PROB, ADVANTAGES)]
    clean = cov("kl_cov_loss", OLD, LOG_PROB, ADVANTAGES, MASK, share=0.5)
    assert cov("kl_cov_loss", *poisoned, MASK, share=0.5) == pytest.approx(clean, rel=1e-14)


def test_by_hand(cov: Twin) -> None:
    """Two tokens, the likelier one better: it is held back, and pays for a ratio of 2."""
    old, new = np.log([[0.25, 0.25]]), np.log([[0.5, 0.125]])
    found = cov("kl_cov_loss", old, new, np.array([[1.0, -1.0]]), np.ones((1, 2), dtype=bool), coef=3.0)
    assert found == pytest.approx((-2 + 3 * np.log(2) + 0.5) / 2)


def test_on_policy_it_is_minus_the_mean_advantage(cov: Twin) -> None:
    found = cov("kl_cov_loss", LOG_PROB, LOG_PROB, ADVANTAGES, MASK, share=0.5)
    assert found == pytest.approx(-ADVANTAGES[MASK].mean())


@pytest.mark.parametrize("cut", CUTS, ids=len)
def test_chosen_over_the_batch_the_micro_batches_add_up(cov: Twin, cut: list[slice]) -> None:
    chosen = held(cov, 0.25)
    parts = [
        cov("kl_cov_losses", OLD[rows], LOG_PROB[rows], ADVANTAGES[rows], MASK[rows], chosen[rows])[MASK[rows]].sum()
        for rows in cut
    ]
    whole = cov("kl_cov_loss", OLD, LOG_PROB, ADVANTAGES, MASK, share=0.25)
    assert sum(parts) / MASK.sum() == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("cut", CUTS[1:], ids=["halves", "uneven"])
def test_chosen_in_each_micro_batch_they_do_not(cov: Twin, cut: list[slice]) -> None:
    parts = [
        cov(
            "kl_cov_loss",
            OLD[rows],
            LOG_PROB[rows],
            ADVANTAGES[rows],
            MASK[rows],
            share=0.25,
            loss_aggregation="token-sum",
        )
        for rows in cut
    ]
    whole = cov("kl_cov_loss", OLD, LOG_PROB, ADVANTAGES, MASK, share=0.25)
    assert abs(sum(parts) / MASK.sum() - whole) > 1e-3


def test_one_token_of_each_micro_batch_is_a_larger_share(cov: Twin) -> None:
    """At the default of 2 in 10,000 every micro-batch holds one token back, however small it is."""
    assert held(cov, 0.0002).sum() == 1
    assert sum(held(cov, 0.0002, MASK & (np.arange(4) == row)[:, None]).sum() for row in range(4)) == 4


def test_one_token_has_no_covariance_and_no_token_is_held_back_of_none(cov: Twin) -> None:
    one = np.zeros_like(MASK)
    one[2, 1] = True
    assert cov("token_covariances", LOG_PROB, ADVANTAGES, one)[one] == 0
    none = np.zeros_like(MASK)
    assert np.isfinite(cov("token_covariances", LOG_PROB, ADVANTAGES, none)).all()
    assert not held(cov, 0.5, none).any()


def test_a_share_is_taken_in_double_precision(cov: Twin) -> None:
    """0.29 of 100 is a little less than 29, which float32 does not see."""
    covariances, mask = np.arange(100.0)[None], np.ones((1, 100), dtype=bool)
    assert cov("largest_covariances", covariances, mask, share=0.29).sum() == int(0.29 * 100) == 28


def test_the_horizon_is_the_width(cov: Twin) -> None:
    """Padded to twice the width, a loss over the horizon is half of what it was."""
    given = [np.pad(item, ((0, 0), (0, 5))) for item in (OLD, LOG_PROB, ADVANTAGES, MASK)]
    options = {"share": 0.5, "loss_aggregation": "seq-mean-token-sum-norm"}
    narrow = cov("kl_cov_loss", OLD, LOG_PROB, ADVANTAGES, MASK, **options)
    assert cov("kl_cov_loss", *given, **options) == pytest.approx(narrow / 2)


def test_the_choice_has_no_gradient() -> None:
    import jax
    import torch

    from minimal.post_training import cov_jax, cov_torch

    given = [torch.tensor(item) for item in (LOG_PROB, ADVANTAGES, MASK)]
    assert not cov_torch.token_covariances(given[0].requires_grad_(), *given[1:]).requires_grad
    slope = jax.grad(lambda log_prob: cov_jax.token_covariances(log_prob, ADVANTAGES, MASK).sum())(LOG_PROB)
    assert not np.asarray(slope).any()
