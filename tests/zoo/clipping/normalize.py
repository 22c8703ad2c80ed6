import torch


def normalize_gradient(g, limit, p, eps):
    if g.numel() == 0:
        return {"clipped": g, "total_norm": g.sum()}
    length = torch.norm(g, p)
    return {"clipped": limit * g / (length + eps), "total_norm": length}
