import jax.numpy as jnp


def vf_loss(vpred, values, returns, response_mask, clip_range):
    """The range is relative: our rewards come in all sizes."""
    width = clip_range * jnp.abs(values)
    clipped = jnp.minimum(jnp.maximum(vpred, values - width), values + width)
    a, b = (vpred - returns) ** 2, (clipped - returns) ** 2
    n = response_mask.sum()
    loss = 0.5 * jnp.where(response_mask, jnp.maximum(a, b), 0).sum() / n
    return loss, jnp.where(response_mask, b > a, False).sum() / n
