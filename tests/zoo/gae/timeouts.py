import jax
import jax.numpy as jnp


def gae(rewards, values, terminated, truncated, last_values, gamma, lam):
    alive = 1.0 - (terminated | truncated).astype(values.dtype)
    v1 = jnp.append(values[:, 1:], last_values[:, None], axis=1)
    delta = rewards + gamma * v1 * alive - values

    def f(a, x):
        d, k = x
        a = d + lam * k * a
        return a, a

    _, adv = jax.lax.scan(f, jnp.zeros_like(last_values), (delta.T, alive.T), reverse=True)
    return adv.T, adv.T + values
