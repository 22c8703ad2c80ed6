import numpy as np


def advantages(token_level_rewards, reward_baselines, response_mask):
    """What is still to come: everything but what lies before. Only tokens count; the rest is zeroed."""
    real = np.where(response_mask, token_level_rewards, 0)
    before = np.cumsum(real, axis=1) - real
    ret = (real.sum(axis=1, keepdims=True) - before) * response_mask
    return (ret - reward_baselines[:, None]) * response_mask, ret
