"""RLOO: each response is measured against the mean of the others to its prompt (JAX twin).

REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740, section 3.3; Kool et al. 2019) takes for a baseline the mean
reward of the *other* responses to the prompt. It does not depend on the response itself, so it takes no bias in:

    A_i = r_i - 1/(n-1) sum over j != i of r_j  =  n/(n-1) (r_i - mean(r))

It is GRPO's centred reward times n/(n-1), without a division by the spread. Axes and the labels ``group`` are those of
the topic *grpo*. Rewards and advantages are in reward units, or without unit once scaled.

``scale`` and ``singleton`` are static: ``jax.jit(rloo_advantages, static_argnames=("scale", "singleton"))``.
"""

import jax
import jax.numpy as jnp
from jax import Array

from minimal.post_training import grpo_jax as grpo


def others_means(scores: Array, group: Array) -> Array:
    """For each row the mean score of the others of its group, [B] -> [B]; 0 in a group of one.

    ``group`` holds numbers below B.
    """
    size = grpo.group_sums(jnp.ones_like(scores), group)  # [B]
    return (grpo.group_sums(scores, group) - scores) / jnp.maximum(size - 1, 1)  # [B]


def leave_one_out(scores: Array, group: Array, *, singleton: str = "raw") -> Array:
    """A_i of each response, [B] -> [B].

    ``singleton``: a group of one has no others; ``"raw"`` takes their mean as 0, so that the response keeps its reward,
    ``"zero"`` gives it no advantage.
    """
    number = grpo.group_numbers(group)  # [B]
    alone = grpo.group_sums(jnp.ones_like(scores), number) == 1  # [B]
    advantages = scores - others_means(scores, number)  # [B]
    return jnp.where(alone & (singleton == "zero"), 0.0, advantages)  # [B]


def standardised(advantages: Array, *, eps: float = 1e-4) -> Array:
    """(A - mean) / (std + eps) over the batch, with Bessel's correction, [B] -> [B]."""
    return (advantages - advantages.mean()) / (grpo.batch_std(advantages) + eps)  # [B]


def rloo_advantages(
    token_level_rewards: Array,
    response_mask: Array,
    group: Array,
    *,
    scale: str = "none",
    eps: float = 1e-4,
    singleton: str = "raw",
) -> Array:
    """The advantage of every token: its response's, and 0 where ``response_mask`` is off, [B, T] -> [B, T].

    ``scale``: ``"none"``, or ``"batch"`` as in `standardised`. A weight, not a path for gradients: detached.
    """
    scores = grpo.outcome_scores(token_level_rewards)  # [B, T] -> [B]
    advantages = leave_one_out(scores, group, singleton=singleton)  # [B]
    if scale == "batch":
        advantages = standardised(advantages, eps=eps)
    return jax.lax.stop_gradient(advantages[:, None] * response_mask)  # [B, 1] * [B, T] -> [B, T]
