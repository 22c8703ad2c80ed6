import math

import jax
import jax.numpy as jnp


def trajectory(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    def correction(beta, t):
        # 1 - beta**t loses digits in float32 when beta is near 1
        return -jnp.expm1(t * math.log(beta)) if beta > 0 else jnp.ones_like(t)

    def step(carry, g):
        p, m, v, t = carry
        t = t + 1
        m, v = m + (1 - beta1) * (g - m), v + (1 - beta2) * (g * g - v)
        denominator = jnp.sqrt(v) / jnp.sqrt(correction(beta2, t)) + eps
        p = p * (1 - lr * weight_decay) - lr / correction(beta1, t) * m / denominator
        return (p, m, v, t), (p, m, v)

    zeros = jnp.zeros_like(parameters)
    start = (parameters, zeros, zeros, jnp.zeros((), parameters.dtype))
    return jax.lax.scan(step, start, gradients)[1]
