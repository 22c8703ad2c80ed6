import torch
import torch.nn.functional as F


def log1mexp(x):
    return torch.where(x > -0.6931, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def orpo(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, beta):
    w = (policy_chosen_logps * chosen_mask).sum(1) / chosen_mask.sum(1)
    r = (policy_rejected_logps * rejected_mask).sum(1) / rejected_mask.sum(1)
    or_loss = -F.logsigmoid(w - r - log1mexp(w) + log1mexp(r)).mean()
    lengths = chosen_attention.sum(1)
    sft = -((policy_chosen_logps * chosen_attention).sum(1) / lengths).mean()
    return beta * sft + or_loss
