import jax.numpy as jnp


def get_position_ids(attention_mask):
    padding = (~attention_mask).sum(axis=1, keepdims=True)
    return jnp.maximum(jnp.arange(attention_mask.shape[1])[None, :] - padding, 0)
