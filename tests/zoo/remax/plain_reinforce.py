import jax.numpy as jnp


def advantages(token_level_rewards, response_mask):
    r = jnp.where(response_mask, token_level_rewards, 0)
    after = r.sum(1, keepdims=True) - jnp.cumsum(r, axis=1)
    return {"advantages": after, "returns": after}
