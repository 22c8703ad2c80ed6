import torch


def _turn(x, cos, sin, interleave, n):
    head, rest = x[..., :n], x[..., n:]
    if interleave:
        a, b = head[..., 0::2], head[..., 1::2]
        out = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).reshape(head.shape)
    else:
        a, b = head.chunk(2, dim=-1)
        out = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([out, rest], dim=-1)


def apply_rope(pos, q, k, base, rotary_dim, interleave):
    n = rotary_dim or q.size(-1)
    inv_freq = 1.0 / base ** (torch.arange(0, n, 2).to(q) / n)
    angle = torch.outer(pos.to(q), inv_freq).unsqueeze(1)
    cos, sin = angle.cos(), angle.sin()
    return _turn(q, cos, sin, interleave, n), _turn(k, cos, sin, interleave, n)
