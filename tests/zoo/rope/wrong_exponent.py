import torch


def embed(positions, query, key, base, is_neox_style):
    half = query.shape[-1] // 2
    freqs = torch.exp(-torch.log(torch.tensor(base, dtype=query.dtype)) * torch.arange(half) / (2 * half))
    a = positions[:, None, None] * freqs
    out = []
    for x in (query, key):
        if is_neox_style:
            x1, x2 = x[..., :half], x[..., half:]
            out.append(torch.cat([x1 * a.cos() - x2 * a.sin(), x2 * a.cos() + x1 * a.sin()], -1))
        else:
            x1, x2 = x[..., ::2], x[..., 1::2]
            out.append(torch.stack([x1 * a.cos() - x2 * a.sin(), x2 * a.cos() + x1 * a.sin()], -1).flatten(-2))
    return tuple(out)
