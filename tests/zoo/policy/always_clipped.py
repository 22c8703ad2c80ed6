import torch


def surrogate(log_probs, old_log_probs, advantages, response_mask, clip_low, clip_high):
    ratio = torch.exp(log_probs - old_log_probs).clamp(1 - clip_low, 1 + clip_high)
    return -(ratio * advantages)[response_mask].mean()
