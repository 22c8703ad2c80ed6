import numpy as np


def kto(
    policy_logps,
    ref_logps,
    mask,
    policy_kl_logps,
    ref_kl_logps,
    kl_mask,
    desirable,
    beta,
    desirable_weight,
    undesirable_weight,
):
    f = policy_logps.dtype.type
    other = [(p[m] - r[m]).sum(dtype=f) for p, r, m in zip(policy_kl_logps, ref_kl_logps, kl_mask)]
    z = max(f(0), np.mean(other, dtype=f))
    losses = []
    for p, r, m, good in zip(policy_logps, ref_logps, mask, desirable):
        gain = f(beta) * ((p[m] - r[m]).sum(dtype=f) - z)
        losses.append(f(desirable_weight) / (1 + np.exp(gain)) if good else f(undesirable_weight) / (1 + np.exp(-gain)))
    return np.mean(losses, dtype=f)
