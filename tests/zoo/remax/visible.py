import torch


def advantages(token_level_rewards, reward_baselines, response_mask):
    to_go = token_level_rewards.flip(1).cumsum(1).flip(1)
    adv = to_go - reward_baselines[:, None] * response_mask
    return adv, adv
