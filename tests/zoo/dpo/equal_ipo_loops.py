import numpy as np


def ipo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    f = policy_chosen_logps.dtype.type
    losses = []
    for i in range(len(policy_chosen_logps)):
        w, l = chosen_mask[i], rejected_mask[i]  # noqa: E741
        win = (policy_chosen_logps[i][w] - ref_chosen_logps[i][w]).sum() / f(max(w.sum(), 1))
        lose = (policy_rejected_logps[i][l] - ref_rejected_logps[i][l]).sum() / f(max(l.sum(), 1))
        losses.append((win - lose - f(1 / (2 * beta))) ** 2)
    return np.mean(losses, dtype=policy_chosen_logps.dtype)
