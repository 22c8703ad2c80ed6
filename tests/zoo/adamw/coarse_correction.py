import jax
import jax.numpy as jnp


def trajectory(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    def step(carry, g):
        p, m, v, t = carry
        t = t + 1
        m, v = m + (1 - beta1) * (g - m), v + (1 - beta2) * (g * g - v)
        denominator = jnp.sqrt(v) / jnp.sqrt(1 - beta2**t) + eps
        p = p * (1 - lr * weight_decay) - lr / (1 - beta1**t) * m / denominator
        return (p, m, v, t), (p, m, v)

    zeros = jnp.zeros_like(parameters)
    start = (parameters, zeros, zeros, jnp.zeros((), parameters.dtype))
    return jax.lax.scan(step, start, gradients)[1]
