import jax.numpy as jnp


def rewards(r, m):
    """1 from the last token on, less the same a column later."""
    n = m.sum(axis=1, keepdims=True)
    column = jnp.arange(m.shape[1])
    reached = (column >= n - 1).astype(r.dtype)
    return {"token_level_rewards": r[:, None] * (reached - (column >= n).astype(r.dtype))}
