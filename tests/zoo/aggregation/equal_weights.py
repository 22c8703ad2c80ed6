import jax.numpy as jnp


def seq_mean_token_mean(losses, keep, responses, ranks):
    weights = keep / jnp.maximum(keep.sum(axis=1, keepdims=True), 1) * (ranks / responses)
    return jnp.vdot(weights.astype(losses.dtype), jnp.where(keep, losses, 0))
