import jax.numpy as jnp


def clip_by_global_norm(updates, max_norm, norm_type, eps):
    size = jnp.abs(updates)
    unit = jnp.where(jnp.max(size, initial=0) > 0, jnp.max(size, initial=0), 1)
    summed = unit * jnp.sum((size / unit) ** norm_type) ** (1 / norm_type)
    g_norm = jnp.where(jnp.isinf(norm_type) | jnp.isinf(unit), jnp.max(size, initial=0), summed)
    trigger = g_norm + eps > max_norm
    scale = jnp.where(trigger, max_norm / (g_norm + eps), 1 + 0 * g_norm)
    scale = jnp.where(jnp.isinf(g_norm), 0, scale)
    return updates * scale, g_norm
