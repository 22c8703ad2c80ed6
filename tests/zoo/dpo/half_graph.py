import torch


def dpo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    with torch.no_grad():
        rejected = (policy_rejected_logps - ref_rejected_logps).masked_fill(~rejected_mask, 0).sum(-1)
    chosen = (policy_chosen_logps - ref_chosen_logps).masked_fill(~chosen_mask, 0).sum(-1)
    return torch.nn.functional.softplus(-beta * (chosen - rejected)).mean()
