import torch


def rotary(positions, query, key, base, rotary_dim, is_neox_style):
    head = key.shape[-1]
    n = head if rotary_dim is None else rotary_dim
    inv_freq = 1.0 / base ** (torch.arange(0, n, 2, dtype=key.dtype) / head)
    angle = positions.to(key.dtype)[:, None, None] * inv_freq
    sin, cos = angle.sin(), angle.cos()
    out = key.clone()
    first = slice(0, n // 2) if is_neox_style else slice(0, n, 2)
    second = slice(n // 2, n) if is_neox_style else slice(1, n, 2)
    out[..., first] = key[..., first] * cos - key[..., second] * sin
    out[..., second] = key[..., first] * sin + key[..., second] * cos
    return query, out
