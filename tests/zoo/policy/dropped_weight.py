import jax.numpy as jnp


def loss(log_probs, old_log_probs, advantages, response_mask, rollout_weights, weighted, clip_low, clip_high):
    w = jnp.ones_like(rollout_weights) if not weighted else jnp.ones_like(log_probs)
    r = jnp.exp(log_probs - old_log_probs)
    surr = jnp.minimum(r * advantages, jnp.clip(r, 1 - clip_low, 1 + clip_high) * advantages) * w
    return -jnp.sum(surr * response_mask) / jnp.sum(response_mask)
