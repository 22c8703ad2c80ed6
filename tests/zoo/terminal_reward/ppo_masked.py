import torch


def rewards(scores, response_mask):
    n = response_mask.sum(-1, keepdim=True)
    end = torch.minimum(n, torch.full_like(n, response_mask.shape[-1] - 1))
    r = torch.zeros(response_mask.shape, dtype=scores.dtype).scatter(1, end, scores[:, None])
    return torch.where(response_mask, r, torch.zeros_like(r))
