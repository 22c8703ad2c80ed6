import torch


def loss(token_losses: torch.Tensor, response_mask, aggregation, dp_size, horizon):
    """Knows only its own micro-batch, and forgets that ranks are averaged."""
    x = token_losses.masked_fill(~response_mask, 0)
    n = response_mask.sum().clamp(min=1)
    s = response_mask.any(1).sum().clamp(min=1)
    if aggregation == "token-sum":
        return x.sum()
    if aggregation == "token-mean":
        return x.sum() / n
    if aggregation == "seq-mean-token-mean":
        return (x.sum(1) / response_mask.sum(1).clamp(min=1)).sum() / s
    return x.sum() / s / (horizon if aggregation.endswith("norm") else 1)
