import torch
from torch.nn.functional import logsigmoid


def log_odds(x):
    return x - torch.where(x > -1, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def loss(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, beta):
    w = policy_chosen_logps.masked_fill(~chosen_mask, 0).sum(-1)
    r = policy_rejected_logps.masked_fill(~rejected_mask, 0).sum(-1)
    nll = -policy_chosen_logps.masked_select(chosen_attention).mean()
    return {
        "loss": nll - beta * logsigmoid(log_odds(w) - log_odds(r)).mean(),
        "chosen_rewards": beta * w.detach(),
        "rejected_rewards": beta * r.detach(),
    }
