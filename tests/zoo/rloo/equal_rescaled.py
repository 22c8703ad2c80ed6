import numpy as np


def advantages(token_level_rewards, response_mask, group):
    r = token_level_rewards.sum(axis=1)
    a = r.copy()
    for g in np.unique(group):
        rows = np.flatnonzero(group == g)
        n = len(rows)
        if n > 1:
            a[rows] = (r[rows] - r[rows].mean()) * r.dtype.type(n / (n - 1))
    return a[:, None] * response_mask
