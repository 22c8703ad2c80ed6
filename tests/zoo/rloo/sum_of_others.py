import numpy as np


def advantages(token_level_rewards, group):
    r = token_level_rewards.sum(axis=1)
    a = np.array([r[i] - sum(r[j] for j in range(len(r)) if j != i and group[j] == group[i]) for i in range(len(r))])
    return np.repeat(a[:, None], token_level_rewards.shape[1], axis=1)
