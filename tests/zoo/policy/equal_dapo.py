import torch


def dapo(lp, old_lp, advantages, keep, n_tokens, ranks, w, high, c):
    rows, slots = torch.nonzero(keep, as_tuple=True)
    r = torch.exp((lp - old_lp)[rows, slots].clamp(-20, 20))
    a = advantages[rows, slots]
    upper, lower = torch.full_like(a, 1 + high), torch.full_like(a, 0.8)
    bounded = torch.where(a >= 0, torch.minimum(r, upper), torch.maximum(r, lower).clamp(max=c))
    loss = -(bounded * a * w[rows, slots]).sum() * ranks / n_tokens
    clipped = ((a > 0) & (r > upper)) | ((a < 0) & (r < lower))
    return {"loss": loss, "clip_fraction": clipped.to(lp.dtype).sum() / max(len(a), 1)}
