"""KL-Cov: a penalty on the few tokens that would make the policy's entropy collapse (JAX twin).

A policy gradient step lowers the entropy by about the covariance, over tokens, of log-probability and advantage (The
Entropy Mechanism of Reinforcement Learning, arXiv 2505.22617, theorem 1 and equation 10): likely tokens that did well
become likelier still. Few tokens carry nearly all of it. With means over the tokens of the batch,

    cov_t = (log pi(y_t) - mean log pi) (A_t - mean A)

the share k of tokens with the largest cov_t is held back by a penalty on how far they move,

    loss_t = -A_t r_t + beta |log r_t|   on those,   -A_t r_t   on all others,      r_t = pi(y_t) / pi_old(y_t).

Mean, covariance and share are those of the *train batch*. The loss of a micro-batch is not the loss of a smaller
batch: taken by itself a micro-batch has other means, another threshold, and never fewer than one token held back. So
`largest_covariances` comes first, over all that one optimiser step sees; then `kl_cov_losses` may be cut at will.

Axes: B responses, T padded response length, N unmasked tokens. Losses are in units of the advantage.

``loss_aggregation`` is static: ``jax.jit(kl_cov_loss, static_argnames="loss_aggregation")``.
"""

import jax
import jax.numpy as jnp
from jax import Array

from minimal.post_training import aggregation_jax as aggregation


def masked_mean(values: Array, mask: Array) -> Array:
    """The mean over the slots where ``mask`` is on, [B, T] -> []; 0 where there is none."""
    return jnp.where(mask, values, 0).sum() / jnp.maximum(mask.sum(), 1)  # []


def token_covariances(log_prob: Array, advantages: Array, response_mask: Array) -> Array:
    """cov_t, [B, T] -> [B, T]: what token t adds to the covariance. A choice of tokens, not a path for gradients."""
    likely = log_prob - masked_mean(log_prob, response_mask)  # [B, T]
    good = advantages - masked_mean(advantages, response_mask)  # [B, T]
    return jax.lax.stop_gradient(likely * good)  # [B, T]


def largest_covariances(covariances: Array, response_mask: Array, *, share: float = 0.0002) -> Array:
    """The tokens that are held back, [B, T] -> [B, T]: ``share`` N of them, rounded down, one at least.

    Those with the largest cov_t; which of equal ones is not said.
    """
    smallest_first = jnp.where(response_mask, -covariances, jnp.inf).flatten()  # [B T]
    rank = jnp.argsort(jnp.argsort(smallest_first, stable=True))  # [B T], 0 for the largest covariance
    held = jnp.maximum(jnp.floor(response_mask.sum() * share), 1)  # []
    return (rank < held).reshape(response_mask.shape) & response_mask  # [B, T]


def kl_cov_losses(
    old_log_prob: Array, log_prob: Array, advantages: Array, response_mask: Array, held: Array, *, coef: float = 1.0
) -> Array:
    """loss_t, [B, T] -> [B, T]. No clip: all other tokens have the plain importance-weighted objective."""
    log_ratio = jnp.where(response_mask, log_prob - old_log_prob, 0)  # [B, T]; selected before anything is computed
    moved = log_ratio * jnp.sign(log_ratio)  # [B, T]; the gradient of jnp.abs at 0 is 1, that of this is 0
    return jnp.where(held, coef * moved, 0) - advantages * jnp.exp(log_ratio)  # [B, T]


def kl_cov_loss(
    old_log_prob: Array,
    log_prob: Array,
    advantages: Array,
    response_mask: Array,
    *,
    share: float = 0.0002,
    coef: float = 1.0,
    loss_aggregation: str = "token-mean",
) -> Array:
    """The loss of a whole train batch, [B, T] -> []. ``loss_aggregation`` as in the topic of that name."""
    covariances = token_covariances(log_prob, advantages, response_mask)  # [B, T]
    held = largest_covariances(covariances, response_mask, share=share)  # [B, T]
    losses = kl_cov_losses(old_log_prob, log_prob, advantages, response_mask, held, coef=coef)  # [B, T]
    whole = aggregation.Whole(*aggregation.local_counts(response_mask), float(response_mask.shape[1]))
    return aggregation.MODES[loss_aggregation](losses, response_mask, whole)  # []
