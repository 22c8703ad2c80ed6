import torch


def loss(log_probs, old_log_probs, advantages, response_mask, batch_num_tokens, counts, clip_low, clip_high):
    """batch_num_tokens is only logged."""
    ratio = torch.exp(log_probs - old_log_probs)
    pg1, pg2 = -advantages * ratio, -advantages * torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
    return torch.max(pg1, pg2)[response_mask].sum() / response_mask.sum()
