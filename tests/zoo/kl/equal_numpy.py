import numpy as np


def k3(logp, ref):
    """For the reward: no gradient wanted. expm1 keeps its digits where the policies are close."""
    r = ref - logp
    return np.expm1(r) - r
