import torch


def rpo(
    policy_chosen_logps,
    policy_rejected_logps,
    ref_chosen_logps,
    ref_rejected_logps,
    chosen_mask,
    rejected_mask,
    beta,
    rpo_alpha,
):
    h_w = torch.where(chosen_mask, policy_chosen_logps - ref_chosen_logps, 0.0).sum(-1)
    h_l = torch.where(rejected_mask, policy_rejected_logps - ref_rejected_logps, 0.0).sum(-1)
    losses = -torch.nn.functional.logsigmoid(beta * (h_w - h_l))
    if rpo_alpha:
        nll = -policy_chosen_logps[chosen_mask].mean()
        losses = losses * rpo_alpha + nll
    return {"loss": losses.mean(), "chosen_rewards": (beta * h_w).detach(), "rejected_rewards": (beta * h_l).detach()}
