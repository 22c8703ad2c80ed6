import numpy as np


def gae(rewards, values, terminated, truncated, final_values, last_values, gamma, lam):
    """The value of the observation at the limit goes into the reward; from there on every end is an end."""
    g, k = rewards.dtype.type(gamma), rewards.dtype.type(gamma) * rewards.dtype.type(lam)
    timed_out = truncated & ~terminated
    shaped = np.where(timed_out, rewards + g * final_values, rewards)
    ends = terminated | truncated
    adv = np.zeros_like(rewards)
    ahead, nxt = np.zeros_like(last_values), last_values
    for t in reversed(range(rewards.shape[1])):
        on = ~ends[:, t]
        ahead = shaped[:, t] + g * nxt * on - values[:, t] + k * on * ahead
        adv[:, t], nxt = ahead, values[:, t]
    return adv, adv + values
