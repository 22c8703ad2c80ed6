import numpy as np


def advantages(token_level_rewards, reward_baselines, response_mask):
    """What is still to come: everything but what lies before."""
    real = np.where(response_mask, token_level_rewards, 0)
    before = np.cumsum(real, axis=1) - real
    ret = real.sum(axis=1, keepdims=True) - before
    return ret - np.where(response_mask, reward_baselines[:, None], 0), ret
