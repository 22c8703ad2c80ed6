import math

import numpy as np


def advantages(token_level_rewards, response_mask, group, eps):
    B, T = token_level_rewards.shape
    f = token_level_rewards.dtype.type
    total = [sum((f(x) for x in token_level_rewards[i]), f(0)) for i in range(B)]
    out = np.zeros((B, T), dtype=token_level_rewards.dtype)
    for i in range(B):
        peers = [total[j] for j in range(B) if group[j] == group[i]]
        if len(peers) == 1:
            mean, std = f(0), f(1)
        else:
            mean = sum(peers, f(0)) / f(len(peers))
            std = f(math.sqrt(sum(((p - mean) ** 2 for p in peers), f(0)) / f(len(peers) - 1)))
        for t in range(T):
            if response_mask[i, t]:
                out[i, t] = (total[i] - mean) / (std + f(eps))
    return out
