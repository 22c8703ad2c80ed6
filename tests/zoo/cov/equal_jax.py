import jax
import jax.numpy as jnp


def loss(old_log_prob, log_prob, advantages, response_mask, share, coef):
    n = response_mask.sum()
    centred = [x - jnp.sum(x * response_mask) / jnp.maximum(n, 1) for x in (log_prob, advantages)]
    cov = jnp.where(response_mask, jax.lax.stop_gradient(centred[0] * centred[1]), -jnp.inf)
    larger = (cov.ravel()[None, :] > cov.ravel()[:, None]).sum(axis=1).reshape(cov.shape)
    held = response_mask & (larger < jnp.maximum(1, jnp.floor(n * share)))
    d = log_prob - old_log_prob
    token = -advantages * jnp.exp(d) + coef * jnp.where(held, jnp.abs(d), 0.0)
    return jnp.sum(jnp.where(response_mask, token, 0.0)) / n
