import torch.nn.functional as F


def dpo(policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, beta):
    pi = policy_chosen_logps.sum(-1) - policy_rejected_logps.sum(-1)
    ref = ref_chosen_logps.sum(-1) - ref_rejected_logps.sum(-1)
    loss = -F.logsigmoid(beta * (pi - ref)).mean()
    chosen = beta * (policy_chosen_logps.sum(-1) - ref_chosen_logps.sum(-1))
    rejected = beta * (policy_rejected_logps.sum(-1) - ref_rejected_logps.sum(-1))
    return loss, chosen.detach(), rejected.detach()
