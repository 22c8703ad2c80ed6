import jax
import jax.numpy as jnp


def adamw(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    def step(carry, tg):
        (p, m, v), (t, g) = carry, tg
        p = p - lr * weight_decay * p
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        p = p - lr * (m / (1 - beta1**t)) * jax.lax.rsqrt(v / (1 - beta2**t) + eps)
        return (p, m, v), p

    zeros = jnp.zeros_like(parameters)
    count = jnp.arange(1, len(gradients) + 1, dtype=parameters.dtype)
    return jax.lax.scan(step, (parameters, zeros, zeros), (count, gradients))[1]
