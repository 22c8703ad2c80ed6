"""A minimal file small enough to hold in the head: what the judge is tried on."""

import torch


def mean(values, mask, eps=1e-6):
    """The mean of each row over its mask, [N, T] -> [N]."""
    kept = torch.where(mask, values, 0.0)
    count = mask.sum(dim=-1).to(values.dtype)
    while count.ndim > 1:
        count = count[0]
    return kept.sum(dim=-1) / (count + eps)
