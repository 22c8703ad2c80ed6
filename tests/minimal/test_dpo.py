"""DPO from scratch: published special cases and what must hold of each loss, in both twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from minimal.post_training import dpo_torch
from tests.minimal.twins import FRAMEWORKS, Twin, twin

LOSSES = tuple(dpo_torch.LOSSES)
SMOOTHING = {"exo_pair": 0.1, "robust": 0.1}


@pytest.fixture(params=FRAMEWORKS)
def dpo(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.dpo", request.param)


def batch(seed: int = 0, shape: tuple[int, int] = (3, 4)) -> dict[str, np.ndarray]:
    """Log-probabilities and ragged masks of a batch, by argument name and in their order."""
    random = np.random.default_rng(seed)
    names = ("policy_chosen_logps", "policy_rejected_logps", "ref_chosen_logps", "ref_rejected_logps")
    logps = {name: -random.exponential(1.0, shape) for name in names}
    positions = np.arange(shape[1])
    lengths = {"chosen_mask": [3, 1, 4], "rejected_mask": [2, 4, 1]}
    return {**logps, **{name: positions < np.array(n[: shape[0]])[:, None] for name, n in lengths.items()}}


def on_policy(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same batch with the policy as its own reference."""
    policies = {f"ref_{side}_logps": given[f"policy_{side}_logps"] for side in ("chosen", "rejected")}
    return {**given, **policies}


def loss(dpo: Twin, given: dict[str, np.ndarray], **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = dpo("dpo_loss", *given.values(), **options)
    return found


BETA = 0.3
LN2 = math.log(2)
AT_REFERENCE = {
    "sigmoid": LN2,
    "sigmoid_norm": LN2,
    "hinge": 1,
    "ipo": (1 / (2 * BETA)) ** 2,
    "exo_pair": -LN2 - 0.5 * math.log(0.1 * 0.9),
    "nca_pair": 2 * LN2,
    "robust": LN2,
    "bco_pair": 2 * LN2,
    "sppo_hard": 2 * (1 / (2 * BETA)) ** 2,
    "aot": LN2,
    "aot_unpaired": LN2,
    "apo_zero": 1,
    "apo_down": 1,
    "discopop": (LN2 + 1) / 2,
}


@pytest.mark.parametrize("name", AT_REFERENCE)
def test_where_the_policy_is_the_reference(dpo: Twin, name: str) -> None:
    options = {"beta": BETA, "loss_type": name, "label_smoothing": SMOOTHING.get(name, 0.0)}
    value, chosen, rejected = loss(dpo, on_policy(batch()), **options)
    assert value == pytest.approx(AT_REFERENCE[name])
    np.testing.assert_array_equal((chosen, rejected), 0)
    away, *_ = loss(dpo, batch(), **options)
    assert away != pytest.approx(AT_REFERENCE[name])


def test_every_loss_has_its_special_case() -> None:
    assert {*AT_REFERENCE, "sft"} == set(LOSSES)


def test_sft_is_cross_entropy_over_all_chosen_tokens(dpo: Twin) -> None:
    given = batch()
    tokens = given["policy_chosen_logps"][given["chosen_mask"]]
    value, *_ = loss(dpo, given, loss_type="sft", ld_alpha=0.5)
    assert value == pytest.approx(-tokens.mean())


@pytest.mark.parametrize("name", sorted(AT_REFERENCE))
def test_a_likelihood_term_is_added_with_its_weight_and_the_preference_keeps_its_own(dpo: Twin, name: str) -> None:
    given, options = batch(), {"loss_type": name, "label_smoothing": SMOOTHING.get(name, 0.0)}
    alone, both = (loss(dpo, given, **options, sft_weight=weight) for weight in (0.0, 0.5))
    nll = -given["policy_chosen_logps"][given["chosen_mask"]].mean()
    assert both[0] - alone[0] == pytest.approx(0.5 * nll)
    np.testing.assert_array_equal(both[1:], alone[1:])
    assert both[0] != pytest.approx(0.5 * alone[0] + nll)


def test_without_a_chosen_token_there_is_no_likelihood(dpo: Twin) -> None:
    given = batch()
    given["chosen_mask"] = np.zeros_like(given["chosen_mask"])
    assert loss(dpo, given, sft_weight=1.0)[0] == loss(dpo, given)[0]


@pytest.mark.parametrize("divergence", ["reverse_kl", "forward_kl", "js_divergence"])
def test_a_divergence_scores_the_reference_at_zero(dpo: Twin, divergence: str) -> None:
    zero, slope = dpo("divergence_scores", np.array([0.0, 1e-6]), f_divergence=divergence)
    assert zero == pytest.approx(0, abs=1e-12)
    assert slope / 1e-6 == pytest.approx(0.5 if divergence == "js_divergence" else 1, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_is_not_read(dpo: Twin, name: str) -> None:
    given, poisoned = batch(), batch()
    for side in ("chosen", "rejected"):
        for model in ("policy", "ref"):
            poisoned[f"{model}_{side}_logps"][~poisoned[f"{side}_mask"]] = math.nan
    options = {"loss_type": name, "label_smoothing": SMOOTHING.get(name, 0.0)}
    for clean, found in zip(loss(dpo, given, **options), loss(dpo, poisoned, **options), strict=True):
        np.testing.assert_array_equal(clean, found)


def test_a_real_token_is_read(dpo: Twin) -> None:
    given, poisoned = batch(), batch()
    poisoned["policy_chosen_logps"][0, 0] -= 1
    assert loss(dpo, given)[0] < loss(dpo, poisoned)[0]


def test_ipo_does_not_see_length_and_dpo_does(dpo: Twin) -> None:
    """A completion said twice has twice the log-ratio and the same average."""
    given = batch(shape=(1, 4))
    twice = {name: np.concatenate([array, array], axis=1) for name, array in given.items()}
    assert loss(dpo, twice, loss_type="ipo")[0] == pytest.approx(loss(dpo, given, loss_type="ipo")[0])
    assert loss(dpo, twice)[0] != pytest.approx(loss(dpo, given)[0])


def test_ld_alpha_of_one_is_dpo_and_of_zero_drops_the_tail(dpo: Twin) -> None:
    given = batch()
    short = dict(given)
    both = given["chosen_mask"].sum(1), given["rejected_mask"].sum(1)
    shared = np.arange(4) < np.minimum(*both)[:, None]
    short["chosen_mask"] = short["rejected_mask"] = shared
    assert loss(dpo, given, ld_alpha=0.0)[0] == pytest.approx(loss(dpo, short)[0])
    assert loss(dpo, given, ld_alpha=1.0)[0] != pytest.approx(loss(dpo, short)[0])


def test_robust_without_noise_is_dpo(dpo: Twin) -> None:
    plain = loss(dpo, batch())[0]
    assert loss(dpo, batch(), loss_type="robust")[0] == pytest.approx(plain)
    assert loss(dpo, batch(), loss_type="robust", label_smoothing=0.2)[0] != pytest.approx(plain)


@pytest.mark.parametrize(("margin", "expected"), [(-5000.0, 5000.0), (5000.0, 0.0)])
def test_extreme_margins_stay_finite(dpo: Twin, margin: float, expected: float) -> None:
    given = {name: np.zeros((1, 1)) for name in tuple(batch())[:4]}
    given |= {"policy_chosen_logps": np.full((1, 1), margin)}
    masks = {name: np.ones((1, 1), dtype=bool) for name in ("chosen_mask", "rejected_mask")}
    assert loss(dpo, {**given, **masks}, beta=1.0)[0] == pytest.approx(expected)


def test_the_gradient_at_the_reference_is_half_of_beta() -> None:
    """With h = 0 the sigmoid is 1/2: each chosen token is pushed up by beta / (2 B), each rejected one down."""
    import torch

    given = {name: torch.from_numpy(array) for name, array in on_policy(batch()).items()}
    moving = [given[f"policy_{side}_logps"].clone().requires_grad_() for side in ("chosen", "rejected")]
    given["policy_chosen_logps"], given["policy_rejected_logps"] = moving
    value, chosen_rewards, _ = dpo_torch.dpo_loss(**given, beta=BETA)
    chosen, rejected = torch.autograd.grad(value, moving)
    np.testing.assert_allclose(chosen, -BETA / 6 * given["chosen_mask"])
    np.testing.assert_allclose(rejected, BETA / 6 * given["rejected_mask"])
    assert not chosen_rewards.requires_grad


SIDES = ("policy_chosen_logps", "policy_rejected_logps", "ref_chosen_logps", "ref_rejected_logps")


def slopes_in_torch(given: dict[str, np.ndarray], **options: Any) -> list[float]:
    """The largest slope of the loss by each of the log-probabilities."""
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in given.items()}
    moving = [tensors[name].requires_grad_() for name in SIDES]
    value = dpo_torch.dpo_loss(**tensors, **options)[0]
    found = torch.autograd.grad(value, moving, allow_unused=True)
    return [0.0 if part is None else part.abs().max().item() for part in found]


def slopes_in_jax(given: dict[str, np.ndarray], **options: Any) -> list[float]:
    import jax

    from minimal.post_training import dpo_jax

    arrays = {name: jax.numpy.asarray(array) for name, array in given.items()}
    found = jax.grad(lambda moving: dpo_jax.dpo_loss(**{**arrays, **moving}, **options)[0])(
        {n: arrays[n] for n in SIDES}
    )
    return [float(abs(found[name]).max()) for name in SIDES]


@pytest.mark.parametrize("slopes", [slopes_in_torch, slopes_in_jax], ids=FRAMEWORKS)
def test_the_reference_model_is_not_trained(slopes: Any) -> None:
    *policy, ref_chosen, ref_rejected = slopes(batch(), beta=BETA)
    assert min(policy) > 0
    assert ref_chosen == ref_rejected == 0


@pytest.mark.parametrize("name", ["sigmoid", "exo_pair", "aot"])
def test_jax_compiles_with_all_numbers_traced(name: str) -> None:
    import jax

    from minimal.post_training import dpo_jax

    given = {key: jax.numpy.asarray(array) for key, array in batch().items()}
    numbers = {"beta": 0.2, "label_smoothing": 0.1, "ld_alpha": 0.5, "discopop_tau": 0.05, "sft_weight": 0.5}
    compiled = jax.jit(dpo_jax.dpo_loss, static_argnames=("loss_type", "f_divergence"))
    for ours, eager in zip(
        compiled(**given, **numbers, loss_type=name),
        dpo_jax.dpo_loss(**given, **numbers, loss_type=name),
        strict=True,
    ):
        np.testing.assert_allclose(ours, eager, rtol=1e-5)
