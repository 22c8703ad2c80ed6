import jax.numpy as jnp


def rope(query, key, base, rotary_dim, is_neox_style):
    def turn(x):
        n = rotary_dim or x.shape[-1]
        freqs = base ** (-jnp.arange(0, n, 2, dtype=x.dtype) / n)
        t = jnp.arange(x.shape[0], dtype=x.dtype)
        angle = (t[:, None] * freqs[None, :])[:, None, :]
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        if is_neox_style:
            a, b = jnp.split(x[..., :n], 2, axis=-1)
            out = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
        else:
            a, b = x[..., :n:2], x[..., 1:n:2]
            out = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(*x.shape[:-1], n)
        return jnp.concatenate([out, x[..., n:]], axis=-1)

    return turn(query), turn(key)
