import jax
import jax.numpy as jnp


def value_loss(new, target, mask, clip_range):
    base = jax.lax.stop_gradient(new)
    bounded = base + jnp.clip(new - base, -clip_range, clip_range)
    worst = jnp.maximum(jnp.square(new - target), jnp.square(bounded - target))
    share = ((jnp.square(bounded - target) > jnp.square(new - target)) & mask).sum() / mask.sum()
    return {"loss": jnp.where(mask, worst, 0.0).sum() / mask.sum(), "clip_fraction": share}
