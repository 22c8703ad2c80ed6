import jax.numpy as jnp


def ppo(log_probs, old_log_probs, advantages, response_mask, clip_low, clip_high):
    ratio = jnp.exp(log_probs - old_log_probs)
    gains = jnp.maximum(ratio * advantages, jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages)
    return -(gains * response_mask).sum() / response_mask.sum()
