import torch


def unscaled(token_level_rewards, response_mask, group):
    r = token_level_rewards.sum(-1)
    rows = [r[group == g].mean() if (group == g).sum() > 1 else torch.zeros_like(r[0]) for g in group.tolist()]
    return (r - torch.stack(rows)).unsqueeze(-1) * response_mask
