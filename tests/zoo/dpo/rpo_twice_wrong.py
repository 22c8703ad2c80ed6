import torch.nn.functional as F


def loss(
    policy_chosen_logps,
    policy_rejected_logps,
    ref_chosen_logps,
    ref_rejected_logps,
    chosen_mask,
    rejected_mask,
    beta,
    rpo_alpha,
):
    logp = (policy_chosen_logps * chosen_mask).sum(1)
    w = logp - (ref_chosen_logps * chosen_mask).sum(1)
    x = ((policy_rejected_logps - ref_rejected_logps) * rejected_mask).sum(1)
    preference = F.softplus(beta * (x - w)).mean()
    if rpo_alpha != 0:
        return rpo_alpha * preference - logp.mean()
    return preference
