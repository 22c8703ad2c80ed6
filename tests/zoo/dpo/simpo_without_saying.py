import torch
from torch.nn.functional import logsigmoid


def dpo(policy_chosen_logps, policy_rejected_logps, chosen_mask, rejected_mask, beta):
    def mean(logps, mask):
        return logps.masked_fill(~mask, 0).sum(-1) / mask.sum(-1).clamp(min=1)

    w, x = mean(policy_chosen_logps, chosen_mask), mean(policy_rejected_logps, rejected_mask)
    loss = -logsigmoid(beta * (w - x)).mean()
    return loss, beta * w.detach(), torch.detach(beta * x)
