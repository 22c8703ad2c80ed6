import torch


def dpo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    both = torch.cat([policy_chosen_logps - ref_chosen_logps, policy_rejected_logps - ref_rejected_logps])
    keep = torch.cat([chosen_mask, rejected_mask])
    h_w, h_l = both.masked_fill(~keep, 0).sum(-1).chunk(2)
    loss = torch.nn.functional.softplus(beta * (h_l - h_w)).mean()
    return {"loss": loss, "chosen_rewards": beta * h_w.detach(), "rejected_rewards": beta * h_l.detach()}
