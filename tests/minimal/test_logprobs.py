"""Token log-probabilities from scratch: what must hold of any distribution and of any shift, in both twins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(0, 1, (2, 4, 5))
TOKENS = RANDOM.integers(0, 5, (2, 4))


@pytest.fixture(params=FRAMEWORKS)
def logprobs(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.logprobs", request.param)


def scores(logprobs: Twin, token: int, **options: object) -> np.ndarray:
    return logprobs("token_log_probs", LOGITS, np.full_like(TOKENS, token), **options)[0]


def test_by_hand(logprobs: Twin) -> None:
    """Logits log 1, log 2, log 5: probabilities 1/8, 1/4, 5/8."""
    log_probs, entropy = logprobs("token_log_probs", np.log([[[1.0, 2, 5], [1, 1, 1]]]), [[0, 2]])
    np.testing.assert_allclose(log_probs, [[math.log(5 / 8)]])
    np.testing.assert_allclose(entropy, [[math.log(8) - math.log(2) / 4 - 5 / 8 * math.log(5)]])


def test_the_temperature_is_inside(logprobs: Twin) -> None:
    """At temperature 1/2 the odds are squared: 1 to 4 to 25."""
    found = logprobs("token_log_probs", np.log([[[1.0, 2, 5]]]), [[1]], temperature=0.5, shift="aligned")[0]
    np.testing.assert_allclose(np.exp(found), [[4 / 30]])
    outside = logprobs("token_log_probs", np.log([[[1.0, 2, 5]]]), [[1]], shift="aligned")[0] / 0.5
    assert not np.allclose(found, outside)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_it_is_a_distribution_with_that_entropy(logprobs: Twin, temperature: float) -> None:
    log_p = np.stack([scores(logprobs, token, temperature=temperature) for token in range(5)])
    np.testing.assert_allclose(np.exp(log_p).sum(axis=0), 1)
    entropy = logprobs("token_log_probs", LOGITS, TOKENS, temperature=temperature)[1]
    np.testing.assert_allclose(-(np.exp(log_p) * log_p).sum(axis=0), entropy)


def test_the_logits_at_t_are_about_the_next_token(logprobs: Twin) -> None:
    """A model that is certain that 0 is followed by 1, 1 by 2 and so on."""
    counting = np.where(np.eye(5)[[1, 2, 3, 4]] > 0, 20.0, 0.0)[None]
    tokens = np.arange(4)[None]
    np.testing.assert_allclose(logprobs("token_log_probs", counting, tokens)[0], 0, atol=1e-7)
    assert (logprobs("token_log_probs", counting, tokens, shift="aligned")[0] < -19).all()


def test_shifting_is_aligning_what_was_cut(logprobs: Twin) -> None:
    shifted = logprobs("token_log_probs", LOGITS, TOKENS)
    aligned = logprobs("token_log_probs", LOGITS[:, :-1], TOKENS[:, 1:], shift="aligned")
    for ours, theirs in zip(shifted, aligned, strict=True):
        assert ours.shape == (2, 3)
        np.testing.assert_array_equal(ours, theirs)


def test_entropy_lies_between_certainty_and_ignorance(logprobs: Twin) -> None:
    level = logprobs("token_entropies", np.zeros((1, 1, 7)))
    np.testing.assert_allclose(level, math.log(7))
    certain = logprobs("token_entropies", np.array([[[50.0, 0, 0]]]))
    np.testing.assert_allclose(certain, 0, atol=1e-18)


def test_unlikely_tokens_have_ordinary_log_probabilities(logprobs: Twin) -> None:
    found = logprobs("selected_log_probs", np.array([[[0.0, -2000.0]]]), [[1]])
    np.testing.assert_array_equal(found, [[-2000.0]])
    with np.errstate(divide="ignore"):
        assert np.log(np.exp(-2000.0)) == -np.inf


def test_the_gradient_is_one_hot_less_the_probabilities() -> None:
    import torch

    from minimal.post_training import logprobs_torch

    logits = torch.tensor(LOGITS, requires_grad=True)
    log_probs, _ = logprobs_torch.token_log_probs(logits, torch.tensor(TOKENS), temperature=2.0)
    log_probs.sum().backward()
    p = np.exp(LOGITS / 2) / np.exp(LOGITS / 2).sum(axis=-1, keepdims=True)
    expected = (np.eye(5)[np.roll(TOKENS, -1, axis=1)] - p) / 2
    expected[:, -1] = 0
    np.testing.assert_allclose(logits.grad, expected, atol=1e-15)


def test_jax_compiles() -> None:
    import jax
    import jax.numpy as jnp

    from minimal.post_training import logprobs_jax

    compiled = jax.jit(logprobs_jax.token_log_probs, static_argnames="shift")
    given = jnp.asarray(LOGITS), jnp.asarray(TOKENS)
    fast, slow = (call(*given, temperature=0.7) for call in (compiled, logprobs_jax.token_log_probs))
    for ours, eager in zip(fast, slow, strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-5)
