import jax
import jax.numpy as jnp


def token_kl(logp, ref):
    """Vectorised over tokens by vmap."""

    def one(a, b):
        return jnp.exp(b - a) + (a - b) - 1.0

    return jax.vmap(jax.vmap(one))(logp, ref)
