import jax
import jax.numpy as jnp


def token_kl(logp, ref):
    """Vectorised over tokens by vmap."""

    def one(a, b):
        return jnp.expm1(b - a) + (a - b)

    return jax.vmap(jax.vmap(one))(logp, ref)
