import torch


def rewards(scores, response_mask):
    end = response_mask.sum(-1, keepdim=True) - 1
    return torch.zeros(response_mask.shape, dtype=scores.dtype).scatter(1, end, scores[:, None])
