import numpy as np


def k3(logp, ref):
    """For the reward: no gradient wanted."""
    r = ref - logp
    return np.exp(r) - r - 1
