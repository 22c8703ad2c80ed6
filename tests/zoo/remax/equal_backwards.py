import torch


def advantages(token_level_rewards, reward_baselines, response_mask):
    adv, ret = torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
    for i in range(len(reward_baselines)):
        ahead = torch.zeros((), dtype=ret.dtype)
        for t in reversed(range(ret.shape[1])):
            if response_mask[i, t]:
                ahead = ahead + token_level_rewards[i, t]
                adv[i, t] = ahead - reward_baselines[i]
            else:
                adv[i, t] = ahead
            ret[i, t] = ahead
    return adv, ret
