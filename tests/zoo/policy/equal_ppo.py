import jax.numpy as jnp


def ppo(log_probs, old_log_probs, advantages, response_mask):
    ratio = jnp.exp(log_probs - old_log_probs)
    pg1 = -advantages * ratio
    pg2 = -advantages * jnp.clip(ratio, 0.8, 1.2)
    return jnp.where(response_mask, jnp.maximum(pg1, pg2), 0).sum() / response_mask.sum()
