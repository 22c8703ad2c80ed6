import jax.numpy as jnp


def loss(v, v_old, returns, mask, c):
    n = mask.sum()
    near = v_old + jnp.clip(v - v_old, -c, c)
    e, e_near = v - returns, near - returns
    worse = jnp.abs(e_near) > jnp.abs(e)
    worst = jnp.where(worse, e_near, e)
    return {"loss": jnp.where(mask, worst * worst, 0).sum() / (2 * n), "clip_fraction": (worse & mask).sum() / n}
