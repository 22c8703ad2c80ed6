import torch
import torch.nn.functional as F


def log1mexp(x):
    return torch.where(x > -0.693, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def sequence_logps(logps, mask):
    return torch.where(mask, logps, 0.0).sum(-1) / mask.sum(-1)


def orpo(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, beta):
    with torch.no_grad():
        chosen = sequence_logps(policy_chosen_logps, chosen_mask)
        rejected = sequence_logps(policy_rejected_logps, rejected_mask)
    log_odds = (chosen - rejected) - (log1mexp(chosen) - log1mexp(rejected))
    nll = -policy_chosen_logps[chosen_attention].mean()
    loss = nll - beta * F.logsigmoid(log_odds).mean()
    return loss, beta * chosen, beta * rejected
