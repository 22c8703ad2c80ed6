import torch


def rewards(scores, response_mask):
    return scores.unsqueeze(-1).expand(response_mask.shape).masked_fill(~response_mask, 0)
