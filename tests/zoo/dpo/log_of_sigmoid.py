import torch


def dpo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    h_w = ((policy_chosen_logps - ref_chosen_logps) * chosen_mask).sum(-1)
    h_l = ((policy_rejected_logps - ref_rejected_logps) * rejected_mask).sum(-1)
    return -torch.log(torch.sigmoid(beta * (h_w - h_l))).mean()
