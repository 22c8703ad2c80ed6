import torch


def loss(log_probs, old_log_probs, advantages, response_mask, ref_log_probs, kl_coef, clip_low, clip_high, kl_by_ratio):
    ratio = torch.exp(log_probs - old_log_probs)
    clipped = torch.clamp(ratio, clip_low, 1 + clip_high)
    policy = torch.min(ratio * advantages, clipped * advantages)
    apart = ref_log_probs - log_probs
    kl = torch.exp(apart) - apart - 1
    if kl_by_ratio:
        kl = kl * ratio
    return -((policy + kl_coef * kl) * response_mask).sum() / response_mask.sum()
