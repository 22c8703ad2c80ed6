import torch.nn.functional as F


def orpo(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, beta):
    mean = lambda x, m: (x * m).sum(-1) / m.sum(-1)  # noqa: E731
    w, r = mean(policy_chosen_logps, chosen_mask), mean(policy_rejected_logps, rejected_mask)
    nll = -policy_chosen_logps[chosen_attention].mean()
    return nll - beta * F.logsigmoid(w - r).mean(), (beta * w).detach(), (beta * r).detach()
