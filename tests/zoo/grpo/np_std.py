import numpy as np


def compute_advantages(token_level_rewards, response_mask, group, eps):
    totals = token_level_rewards.sum(axis=1)
    adv = np.zeros_like(totals)
    for prompt in set(group.tolist()):
        idx = np.where(group == prompt)[0]
        if len(idx) == 1:
            adv[idx] = totals[idx] / (1 + totals.dtype.type(eps))
            continue
        rs = totals[idx]
        adv[idx] = (rs - np.mean(rs)) / (np.std(rs) + totals.dtype.type(eps))
    return adv[:, None] * response_mask.astype(totals.dtype)
