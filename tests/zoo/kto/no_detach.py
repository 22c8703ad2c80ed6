import torch


def ratio(policy, ref, mask):
    return ((policy - ref).masked_fill(~mask, 0)).sum(-1)


def kto(policy_logps, ref_logps, mask, policy_kl_logps, ref_kl_logps, kl_mask, desirable, beta):
    kl = ratio(policy_kl_logps, ref_kl_logps, kl_mask).mean().clamp(min=0)
    h = ratio(policy_logps, ref_logps, mask)
    good = 1 - torch.sigmoid(beta * (h - kl))
    bad = 1 - torch.sigmoid(beta * (kl - h))
    return torch.where(desirable, good, bad).mean()
