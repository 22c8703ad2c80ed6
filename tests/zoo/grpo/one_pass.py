import torch


def advantages(token_level_rewards, response_mask, group, eps):
    """Mean and variance in one pass, as a running average would keep them."""
    r = token_level_rewards.sum(-1)
    out = torch.empty_like(r)
    for prompt in group.unique():
        mine = group == prompt
        n = mine.sum()
        if n == 1:
            out[mine] = r[mine] / (1 + eps)
            continue
        mean, square = r[mine].mean(), (r[mine] ** 2).mean()
        std = ((square - mean**2).clamp(min=0) * n / (n - 1)).sqrt()
        out[mine] = (r[mine] - mean) / (std + eps)
    return out[:, None] * response_mask
