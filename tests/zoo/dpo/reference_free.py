import torch
from torch.nn.functional import logsigmoid


def loss(policy_chosen_logps, policy_rejected_logps, chosen_mask, rejected_mask, beta):
    zero = torch.zeros((), dtype=policy_chosen_logps.dtype)
    w = torch.where(chosen_mask, policy_chosen_logps, zero).sum(-1)
    l = torch.where(rejected_mask, policy_rejected_logps, zero).sum(-1)  # noqa: E741
    return -logsigmoid(beta * (w - l)).mean(), (beta * w).detach(), (beta * l).detach()
