import torch


def grpo_loss(logps, old_logps, ref_logps, adv, mask, beta, eps_low=0.2, eps_high=0.2):
    ratio = torch.exp(logps - old_logps)
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - eps_low, 1 + eps_high) * adv)
    delta = ref_logps - logps
    kl = delta.exp() - delta - 1
    # Both pull on the policy.
    per_token = -surrogate - beta * kl
    return (per_token * mask).sum() / mask.sum()
