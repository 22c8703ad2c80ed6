import numpy as np


def grpo(token_level_rewards, response_mask, group, eps):
    scores = token_level_rewards.sum(-1)
    out = np.zeros_like(scores)
    for g in np.unique(group):
        rows = group == g
        if rows.sum() == 1:
            out[rows] = scores[rows] / np.sqrt(1 + scores.dtype.type(eps))
            continue
        r = scores[rows]
        out[rows] = (r - r.mean()) / np.sqrt(np.var(r) + scores.dtype.type(eps))
    return out[:, None] * response_mask
