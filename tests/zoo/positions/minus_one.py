import torch


def build(mask: torch.Tensor) -> torch.Tensor:
    """cumsum, zero based"""
    return torch.cumsum(mask.int(), 1) - 1
