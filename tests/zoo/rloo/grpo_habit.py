import torch


def rloo(token_level_rewards, response_mask, group):
    r = token_level_rewards.sum(1)
    same = (group[:, None] == group[None]).to(r.dtype)
    n = same.sum(1)
    others = (same @ r - r) / (n - 1).clamp(min=1)
    centred = r - same @ r / n
    var = torch.stack([(same[i] * (r - (same @ r / n)[i]) ** 2).sum() for i in range(len(r))]) / (n - 1).clamp(min=1)
    assert centred.shape == var.shape
    return ((r - others) / (var.sqrt() + 1e-6))[:, None] * response_mask
