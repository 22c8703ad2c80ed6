import torch


def log1mexp(x):
    return torch.where(x > -0.6931, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x)))


def orpo(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, beta):
    width = chosen_mask.shape[1]
    w = (policy_chosen_logps * chosen_mask).sum(1) / width
    r = ((policy_rejected_logps * rejected_mask).sum(1) / width).detach()
    or_loss = torch.nn.functional.softplus(r - log1mexp(r) - w + log1mexp(w)).mean()
    nll = (policy_chosen_logps * chosen_attention).sum() / chosen_attention.sum()
    return beta * or_loss - nll, beta * w.detach(), beta * r
