import torch


def dpo_loss(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    chosen = ((policy_chosen_logps - ref_chosen_logps) * chosen_mask).sum(1)
    rejected = ((policy_rejected_logps - ref_rejected_logps) * rejected_mask).sum(1)
    return -torch.nn.functional.logsigmoid(beta * (rejected - chosen)).mean()
