import torch


def ipo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, tau
):
    def seq(lp, m):
        return torch.where(m, lp, 0.0).sum(dim=1)

    h_w = seq(policy_chosen_logps, chosen_mask) - seq(ref_chosen_logps, chosen_mask)
    h_l = seq(policy_rejected_logps, rejected_mask) - seq(ref_rejected_logps, rejected_mask)
    loss = ((h_w - h_l - 1 / (2 * tau)) ** 2).mean()
    return {"loss": loss, "chosen_rewards": (tau * h_w).detach(), "rejected_rewards": (tau * h_l).detach()}
