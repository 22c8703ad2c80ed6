"""ORPO from scratch: what the odds ratio must be in hand-checkable cases, in both twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from minimal.post_training import orpo_torch
from tests.minimal.twins import FRAMEWORKS, Twin, twin

LN2 = math.log(2)


@pytest.fixture(params=FRAMEWORKS)
def orpo(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.orpo", request.param)


def batch(seed: int = 0) -> dict[str, np.ndarray]:
    """Three pairs of six slots: a prompt, a completion and padding, by argument name and in their order."""
    random, slots = np.random.default_rng(seed), np.arange(6)
    start, chosen, rejected = (np.array(n)[:, None] for n in ([2, 0, 1], [5, 1, 5], [4, 4, 2]))
    logps = {f"policy_{side}_logps": -random.exponential(1.0, (3, 6)) - 0.01 for side in ("chosen", "rejected")}
    masks = {
        "chosen_attention": slots < chosen,
        "chosen_mask": (start <= slots) & (slots < chosen),
        "rejected_mask": (start <= slots) & (slots < rejected),
    }
    return {**logps, **masks}


def loss(orpo: Twin, given: dict[str, np.ndarray], **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = orpo("orpo_loss", *given.values(), **options)
    return found


@pytest.mark.parametrize(
    ("p", "q", "ratio"),
    [
        (0.5, 0.5, 1.0),
        (0.8, 0.5, 4.0),  # odds 4 to 1 against odds 1 to 1
        (0.5, 0.8, 0.25),
        (0.75, 0.25, 9.0),
        (0.9, 0.1, 81.0),
    ],
)
def test_the_odds_ratio(orpo: Twin, p: float, q: float, ratio: float) -> None:
    found = orpo("log_odds_ratios", np.array([math.log(p)]), np.array([math.log(q)]))
    assert found[0] == pytest.approx(math.log(ratio), abs=1e-12)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (-LN2, -LN2),
        (-1e-12, math.log(1e-12)),
        (-1e-300, -300 * math.log(10)),
        (-40.0, -math.exp(-40.0)),
        (-1000.0, 0.0),
    ],
)
def test_one_minus_exp_keeps_its_digits_on_both_sides(orpo: Twin, x: float, expected: float) -> None:
    assert orpo("log_one_minus_exp", np.array([x]))[0] == pytest.approx(expected, rel=1e-11)


def test_written_down_it_loses_them() -> None:
    """Negative control: of 1 - p = 1e-12 four digits are left, where the stable form keeps eleven."""
    assert math.log(1 - math.exp(-1e-12)) != pytest.approx(math.log(1e-12), rel=1e-7)


def test_the_completion_alone_is_averaged_and_every_learned_token_counts_once(orpo: Twin) -> None:
    given = batch()
    w, r = (
        np.array([row[kept].mean() for row, kept in zip(given[f"policy_{s}_logps"], given[f"{s}_mask"], strict=True)])
        for s in ("chosen", "rejected")
    )
    odds = np.exp(w) / (1 - np.exp(w)) / (np.exp(r) / (1 - np.exp(r)))
    nll = -given["policy_chosen_logps"][given["chosen_attention"]].mean()
    value, chosen_rewards, rejected_rewards = loss(orpo, given, beta=0.25)
    assert value == pytest.approx(nll - 0.25 * np.log(odds / (1 + odds)).mean())
    np.testing.assert_allclose((chosen_rewards, rejected_rewards), (0.25 * w, 0.25 * r))


def test_what_is_learned_is_chosen(orpo: Twin) -> None:
    given = batch()
    tokens = given["policy_chosen_logps"]
    whole, part = (loss(orpo, given, beta=0.0, nll_over=over)[0] for over in ("sequence", "completion"))
    assert whole == pytest.approx(-tokens[given["chosen_attention"]].mean())
    assert part == pytest.approx(-tokens[given["chosen_mask"]].mean())
    assert whole != pytest.approx(part)


def test_even_odds_cost_log_two(orpo: Twin) -> None:
    given = batch()
    given |= {"policy_rejected_logps": given["policy_chosen_logps"], "rejected_mask": given["chosen_mask"]}
    apart = loss(orpo, given, beta=1.0)[0] - loss(orpo, given, beta=0.0)[0]
    assert apart == pytest.approx(LN2)
    assert loss(orpo, batch(), beta=1.0)[0] - loss(orpo, batch(), beta=0.0)[0] != pytest.approx(LN2)


def test_padding_is_not_read(orpo: Twin) -> None:
    given, poisoned = batch(), batch()
    poisoned["policy_chosen_logps"][~given["chosen_attention"]] = math.nan
    poisoned["policy_rejected_logps"][~given["rejected_mask"]] = math.nan
    for clean, found in zip(loss(orpo, given), loss(orpo, poisoned), strict=True):
        np.testing.assert_array_equal(clean, found)
    poisoned["policy_chosen_logps"][0, 0] = math.nan
    assert np.isnan(loss(orpo, poisoned)[0])


def test_the_gradient_of_the_odds_ratio_is_that_of_the_paper() -> None:
    """d(-log sigmoid(log OR)) / d log p_w = -sigmoid(-log OR) / (1 - p_w), and the opposite for the rejected side."""
    import torch

    w, r = (torch.tensor([math.log(p)], dtype=torch.float64, requires_grad=True) for p in (0.8, 0.5))
    value = orpo_torch.odds_ratio_loss(orpo_torch.log_odds_ratios(w, r))
    chosen, rejected = torch.autograd.grad(value, [w, r])
    assert chosen.item() == pytest.approx(-(1 / 5) / 0.2)
    assert rejected.item() == pytest.approx((1 / 5) / 0.5)


@pytest.mark.parametrize("p", [1 - 1e-12, 1.0])
def test_the_gradient_near_certainty_is_a_number_as_long_as_the_value_is(p: float) -> None:
    import torch

    x = torch.tensor([math.log(p)], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(orpo_torch.log_one_minus_exp(x).sum(), x)
    assert bool(torch.isfinite(slope)) is (p < 1)


def test_jax_compiles_with_beta_traced() -> None:
    import jax

    from minimal.post_training import orpo_jax

    given = {key: jax.numpy.asarray(array) for key, array in batch().items()}
    compiled = jax.jit(orpo_jax.orpo_loss, static_argnames="nll_over")
    for ours, eager in zip(compiled(**given, beta=0.2), orpo_jax.orpo_loss(**given, beta=0.2), strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-5)


@pytest.mark.parametrize("x", [-1e-12, -0.5, -LN2, -2.0, -40.0])
def test_the_logarithm_of_what_is_left_keeps_its_digits(orpo: Twin, x: float) -> None:
    """Each branch where the other cancels: near 0 it is about log(-x), far from it about -exp(x)."""
    expected = math.log(-math.expm1(x)) if x > -1 else math.log1p(-math.exp(x))
    assert orpo("log_one_minus_exp", np.array([x]))[0] == pytest.approx(expected, rel=1e-14, abs=0)
