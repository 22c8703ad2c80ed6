"""Speculative decoding: which drafted tokens stand, and what replaces the first one that does not (JAX twin).

A small model drafts K tokens, the large one computes its distributions at all of them in one pass. With p the target's
distribution at a position, q the draft's and x the token drafted from q (arXiv 2211.17192, algorithm 1),

    x stands with probability  min(1, p(x) / q(x)),
    else a token is drawn from  max(p - q, 0) / sum max(p - q, 0),

and everything after the first token that falls is thrown away. The token that comes out is then distributed as p,
whatever q is: q decides only how often drafts stand. If all stand, one more token is at hand, the bonus.

Axes: B requests, K drafts (``draft_lengths`` of them are real), V vocabulary.
Randomness is handed in: ``uniform`` in [0, 1) for the test, ``noise``, standard exponential, for the draw.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Outcome(NamedTuple):
    """What comes out of one step.

    ``output_token_ids`` [B, K + 1]: the tokens, then -1. ``probabilities`` [B, K V + 1]: of every outcome, given the
    drafts. Outcome k V + v: draft k is the first to fall, and v replaces it. The last outcome: all stand.
    """

    output_token_ids: Array
    probabilities: Array


def target_probabilities(target_logits: Array, greedy: Array) -> Array:
    """p: the softmax of the filtered logits, [B, K, V]; in a greedy row, 1 at the largest logit."""
    certain = jax.nn.one_hot(target_logits.argmax(axis=-1), target_logits.shape[-1], dtype=target_logits.dtype)
    return jnp.where(greedy[:, None, None], certain, jax.nn.softmax(target_logits, axis=-1))  # [B, K, V]


def at_draft(probabilities: Array, draft_token_ids: Array) -> Array:
    """The probability of each drafted token, [B, K, V] -> [B, K]."""
    return jnp.take_along_axis(probabilities, draft_token_ids[..., None], axis=-1)[..., 0]


def real_drafts(draft_token_ids: Array, draft_lengths: Array) -> Array:
    """True where there is a draft and not padding, [B, K]."""
    return jnp.arange(draft_token_ids.shape[1]) < draft_lengths[:, None]


def acceptance(target_probs: Array, draft_probs: Array, draft_token_ids: Array, draft_lengths: Array) -> Array:
    """min(1, p(x) / q(x)), [B, K]. A token that the draft cannot have drawn never stands; padding always does."""
    p, q = at_draft(target_probs, draft_token_ids), at_draft(draft_probs, draft_token_ids)  # [B, K]
    ratio = jnp.where(q > 0, p / jnp.where(q > 0, q, 1.0), 0.0).clip(max=1.0)  # [B, K]
    return jnp.where(real_drafts(draft_token_ids, draft_lengths), ratio, 1.0)


def residual(target_probs: Array, draft_probs: Array) -> Array:
    """max(p - q, 0), normalised, [B, K, V]: what p has more of than q. Where it has nothing more, p."""
    more = (target_probs - draft_probs).clip(min=0)  # [B, K, V]
    total = more.sum(axis=-1, keepdims=True)  # [B, K, 1]
    return jnp.where(total > 0, more / jnp.where(total > 0, total, 1.0), target_probs)


def outcome_probabilities(accept_probs: Array, recovered_probs: Array) -> Array:
    """Of every outcome, [B, K V + 1]: a run of accepted drafts, then a token in the place of the next one."""
    run = accept_probs.cumprod(axis=1)  # [B, K]: drafts 0..k all stand
    before = jnp.concatenate([jnp.ones_like(run[:, :1]), run[:, :-1]], axis=1)  # [B, K]: those before k do
    falls = before * (1 - accept_probs)  # [B, K]: k is the first to fall
    replaced = jnp.where(falls[..., None] > 0, falls[..., None] * recovered_probs, 0.0)  # [B, K, V]
    return jnp.concatenate([replaced.reshape(len(run), -1), run[:, -1:]], axis=1)


def accepted_drafts(accept_probs: Array, uniform: Array, draft_lengths: Array) -> Array:
    """How many drafts stand, [B]: those before the first that falls."""
    stand = uniform <= accept_probs  # [B, K]
    return jnp.minimum(stand.cumprod(axis=1).sum(axis=1), draft_lengths)


def recovered_tokens(recovered_probs: Array, noise: Array) -> Array:
    """A draw at each position, [B, K]: exponential clocks that run at the rates of the residual, the first to ring.

    One set of clocks a request will do, since at most one of the draws is used.
    """
    return (recovered_probs / noise[:, None, :]).argmax(axis=-1)


def emitted_tokens(accepted: Array, draft_token_ids: Array, recovered: Array, last: Array) -> Array:
    """The accepted drafts, then one more token, then -1, [B, K + 1]. ``last`` [B] follows where all drafts stand."""
    batch, drafts = draft_token_ids.shape
    place = jnp.arange(drafts + 1)  # [K + 1]
    padded = jnp.concatenate([draft_token_ids, jnp.full((batch, 1), -1, draft_token_ids.dtype)], axis=1)  # [B, K + 1]
    kept = jnp.where(place < accepted[:, None], padded, -1)  # [B, K + 1]
    following = jnp.take_along_axis(jnp.concatenate([recovered, recovered[:, -1:]], axis=1), accepted[:, None], axis=1)
    return jnp.where(place == accepted[:, None], jnp.where(last[:, None] >= 0, last[:, None], following), kept)


def rejection_sample(
    target_logits: Array,
    draft_probs: Array,
    draft_token_ids: Array,
    draft_lengths: Array,
    bonus_token_ids: Array,
    greedy: Array,
    uniform: Array,
    noise: Array,
) -> Outcome:
    """One step of speculative decoding: the tokens that come out, and the law that they follow given the drafts.

    Shapes: target_logits, draft_probs [B, K, V]; draft_token_ids, uniform [B, K]; draft_lengths, bonus_token_ids,
    greedy [B]; noise [B, V].
    """
    p = target_probabilities(target_logits, greedy)  # [B, K, V]
    accept = acceptance(p, draft_probs, draft_token_ids, draft_lengths)  # [B, K]
    recovered = residual(p, draft_probs)  # [B, K, V]
    accepted = accepted_drafts(accept, uniform, draft_lengths)  # [B]
    last = jnp.where(accepted == draft_lengths, bonus_token_ids, -1)  # [B]
    tokens = emitted_tokens(accepted, draft_token_ids, recovered_tokens(recovered, noise), last)  # [B, K + 1]
    return Outcome(tokens, outcome_probabilities(accept, recovered))


def outcomes(output_token_ids: Array, draft_lengths: Array, vocabulary: int) -> Array:
    """The number of the outcome that tokens tell of, [B, K + 1] -> [B]; see `Outcome`."""
    count = (output_token_ids >= 0).sum(axis=1)  # [B]
    final = jnp.take_along_axis(output_token_ids, (count - 1).clip(min=0)[:, None], axis=1)[:, 0]  # [B]
    everything = (output_token_ids.shape[1] - 1) * vocabulary
    return jnp.where(count > draft_lengths, everything, (count - 1) * vocabulary + final)
