import torch


def token_mean(token_losses: torch.Tensor, response_mask, batch_num_tokens, dp_size):
    total = token_losses.new_zeros(())
    for row, keep in zip(token_losses, response_mask, strict=True):
        for x, k in zip(row, keep):
            if k:
                total = total + x
    return total * dp_size / batch_num_tokens
