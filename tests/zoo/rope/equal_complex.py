import jax
import jax.numpy as jnp


def apply_rotary_emb(positions, xq, xk, freqs_base):
    n = xq.shape[-1]
    angle = positions[:, None] * (1.0 / freqs_base ** (jnp.arange(0, n, 2, dtype=xq.dtype) / n))
    turn = jax.lax.complex(jnp.cos(angle), jnp.sin(angle))[:, None, :]

    def rotate(x):
        z = jax.lax.complex(x[..., ::2], x[..., 1::2]) * turn
        return jnp.stack([z.real, z.imag], axis=-1).reshape(x.shape)

    return rotate(xq), rotate(xk)
