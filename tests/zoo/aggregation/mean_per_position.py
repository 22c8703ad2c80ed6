import torch


def loss(token_losses: torch.Tensor, response_mask, global_batch_size, dp_size):
    m = response_mask.to(token_losses.dtype)
    mean = (token_losses * m).sum(dim=0) / m.sum(dim=0).clamp(min=1)
    return mean.sum() / global_batch_size * dp_size
