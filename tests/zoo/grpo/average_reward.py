import jax.numpy as jnp


def advantages(token_level_rewards, response_mask, group, eps):
    s = token_level_rewards.mean(axis=1)
    peers = group[:, None] == group[None, :]
    n = peers.sum(1)
    mean = (peers * s).sum(1) / n
    std = jnp.sqrt((peers * (s - mean[:, None]) ** 2).sum(1) / jnp.maximum(n - 1, 1))
    a = jnp.where(n > 1, (s - mean) / (std + eps), s / (1 + eps))
    return jnp.where(response_mask, a[:, None], 0)
