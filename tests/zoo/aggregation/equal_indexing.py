import torch


def dr_grpo(token_losses: torch.Tensor, response_mask, global_batch_size, dp_size, horizon):
    return dp_size * token_losses[response_mask].sum() / (horizon * global_batch_size)
