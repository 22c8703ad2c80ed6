import torch


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat([x[..., half:], -x[..., :half]], dim=-1)


def rope(positions, query, key, base):
    d = query.shape[-1]
    inv = base ** -(torch.arange(0, d, 2, dtype=query.dtype) / d)
    a = (positions + 1)[:, None] * inv
    a = torch.cat([a, a], dim=-1)[:, None, :]
    return {
        "rotated_query": query * a.cos() + rotate_half(query) * a.sin(),
        "rotated_key": key * a.cos() + rotate_half(key) * a.sin(),
    }
