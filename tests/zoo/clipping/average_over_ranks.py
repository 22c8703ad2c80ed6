import torch


def clip(gradients, rank, max_norm, norm_type, eps):
    ranks = rank.unique()
    if norm_type == float("inf"):
        total = gradients.abs().amax() if len(gradients) else gradients.sum()
    else:
        powers = [gradients[rank == r].abs().pow(norm_type).sum() for r in ranks]
        total = torch.stack(powers).mean() ** (1.0 / norm_type) if powers else gradients.sum()
    factor = max_norm / (total + eps)
    return gradients * torch.minimum(factor, torch.ones_like(factor)), total
