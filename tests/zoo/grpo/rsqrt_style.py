import jax
import jax.numpy as jnp


def advantages(token_level_rewards, response_mask, group, eps):
    s = token_level_rewards.sum(-1)
    same = (group[:, None] == group[None, :]).astype(s.dtype)
    n = same.sum(-1)
    mu = same @ s / n
    var = (same * (s[None, :] - mu[:, None]) ** 2).sum(-1) / jnp.maximum(n - 1, 1)
    # As in layer norm.
    z = jnp.where(n == 1, s * jax.lax.rsqrt(1 + jnp.asarray(eps, s.dtype)), (s - mu) * jax.lax.rsqrt(var + eps))
    return z[:, None] * response_mask
