import torch


def token_mean(losses: torch.Tensor, mask, total_tokens, world):
    return (losses * mask).sum() / total_tokens * world
