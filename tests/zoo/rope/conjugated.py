import torch


def apply_rotary_emb(m, xq, xk, theta):
    n = xq.shape[-1]
    freqs = 1.0 / theta ** (torch.arange(0, n, 2, dtype=xq.dtype) / n)
    angles = torch.outer(m.to(xq.dtype), freqs)
    cis = torch.polar(torch.ones_like(angles), -angles).unsqueeze(1)
    xq_ = torch.view_as_complex(xq.reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.reshape(*xk.shape[:-1], -1, 2))
    return torch.view_as_real(xq_ * cis).flatten(2), torch.view_as_real(xk_ * cis).flatten(2)
