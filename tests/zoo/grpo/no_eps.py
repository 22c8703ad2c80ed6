import torch


def advantages(token_level_rewards, response_mask, group):
    score = token_level_rewards.sum(-1)
    result = torch.empty_like(score)
    for g in group.unique():
        rows = group == g
        result[rows] = score[rows] if rows.sum() == 1 else (score[rows] - score[rows].mean()) / score[rows].std()
    return result[:, None] * response_mask
