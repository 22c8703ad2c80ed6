import torch


def advantages(token_level_rewards, response_mask, group):
    score = token_level_rewards.sum(-1)
    out = score.clone()
    for g in group.unique():
        rows = group == g
        if rows.sum() > 1:
            out[rows] = score[rows] - score[rows].mean()
    return out[:, None] * response_mask
