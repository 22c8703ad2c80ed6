import jax
import jax.numpy as jnp


def gae(token_level_rewards, values, response_mask, gamma, lam):
    def back(carry, x):
        nxt, acc = carry
        r, v, m = x
        here = r + gamma * nxt - v + gamma * lam * acc
        acc = jnp.where(m, here, acc)
        return (jnp.where(m, v, nxt), acc), acc

    zero = jnp.zeros_like(values[:, 0])
    _, adv = jax.lax.scan(back, (zero, zero), (token_level_rewards.T, values.T, response_mask.T), reverse=True)
    adv = adv.T
    n = response_mask.sum()
    mu = jnp.where(response_mask, adv, 0).sum() / (n + 1e-8)
    std = jnp.sqrt(jnp.where(response_mask, (adv - mu) ** 2, 0).sum() / (n + 1e-8) * n / (n - 1))
    return {"advantages": (adv - mu) / (std + 1e-8), "returns": adv + values}
