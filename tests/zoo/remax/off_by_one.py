import torch


def advantages(token_level_rewards, reward_baselines, response_mask):
    r = token_level_rewards * response_mask
    acc = torch.zeros_like(reward_baselines)
    cols = []
    for t in reversed(range(r.shape[1])):
        cols.append(acc)
        acc = acc + r[:, t]
    returns = torch.stack(cols[::-1], dim=1)
    return returns - reward_baselines[:, None] * response_mask, returns
