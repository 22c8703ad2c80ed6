"""KTO: preferences without pairs, each completion only called good or bad (JAX twin).

Kahneman-Tversky optimisation (arXiv 2402.01306) needs no two completions of one prompt. With h the log-ratio of policy
and reference, summed over a completion's tokens, and z0 the batch's estimate of KL(policy, reference),

    desirable:    L = w_D (1 - sigmoid(beta (h - z0)))
    undesirable:  L = w_U (1 - sigmoid(beta (z0 - h)))                                                      (eq. 7).

z0 is what a gain or a loss is counted from: the mean log-ratio of *mismatched* completions, each another row's after
this row's prompt, never below 0, and without gradient. ``apo_zero_unpaired`` (arXiv 2408.06266) counts from 0 instead.

Axes: B completions, T padded length. Log-probabilities are of single tokens, in nats; weights and ``beta`` are without
unit.

``loss_type`` chooses code, so it is static under ``jax.jit``.
"""

import jax
import jax.numpy as jnp
from jax import Array


def log_ratios(policy_logps: Array, ref_logps: Array, mask: Array) -> Array:
    """h: how much likelier the policy makes a completion than the reference, [B, T] twice -> [B].

    Masked slots are dropped before they meet any arithmetic.
    """
    return jnp.where(mask, policy_logps - ref_logps, 0.0).sum(axis=1)


def reference_point(mismatched: Array) -> Array:
    """z0 = max(0, mean of the mismatched log-ratios), detached, [B] -> []."""
    return jax.lax.stop_gradient(jnp.maximum(mismatched.mean(), 0.0))


def kto_losses(h: Array, z0: Array, desirable: Array, *, beta: float, loss_type: str = "kto") -> Array:
    """The loss of each completion before its weight, in [0, 1], [B] -> [B].

    1 - sigmoid(x) is written sigmoid(-x): the difference has no digits left where x is large.
    """
    gain = h - z0 if loss_type == "kto" else h  # [B]
    return jax.nn.sigmoid(jnp.where(desirable, -gain, gain) * beta)


def kto_loss(
    policy_logps: Array,
    ref_logps: Array,
    mask: Array,
    policy_kl_logps: Array,
    ref_kl_logps: Array,
    kl_mask: Array,
    desirable: Array,
    *,
    beta: float = 0.1,
    loss_type: str = "kto",
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> tuple[Array, Array, Array]:
    """The loss of B completions and the summed rewards of the good and of the bad ones, [B, T] -> [], [], [].

    ``desirable`` [B] calls a completion good. ``policy_kl_logps``, ``ref_kl_logps`` and ``kl_mask`` are those of the
    mismatched completions; ``loss_type`` is ``"kto"`` or ``"apo_zero_unpaired"``, which does without them. The rewards
    beta h are what is logged, and detached.
    """
    h = log_ratios(policy_logps, ref_logps, mask)  # [B, T] -> [B]
    z0 = reference_point(log_ratios(policy_kl_logps, ref_kl_logps, kl_mask))  # [B, T] -> []
    losses = kto_losses(h, z0, desirable, beta=beta, loss_type=loss_type)  # [B]
    loss = jnp.where(desirable, desirable_weight * losses, undesirable_weight * losses).mean()  # []
    rewards = jax.lax.stop_gradient(beta * h)  # [B]
    return loss, jnp.where(desirable, rewards, 0.0).sum(), jnp.where(desirable, 0.0, rewards).sum()
