import numpy as np


def odds(logp):
    return np.where(logp > -1, -np.log(np.expm1(np.minimum(-logp, 1.0))), logp - np.log1p(-np.exp(logp)))


def orpo(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, beta):
    f = policy_chosen_logps.dtype.type
    terms = []
    for i in range(len(chosen_mask)):
        w = policy_chosen_logps[i][chosen_mask[i]].mean(dtype=f)
        r = policy_rejected_logps[i][rejected_mask[i]].mean(dtype=f)
        terms.append(np.logaddexp(f(0), odds(r) - odds(w)))
    nll = -policy_chosen_logps[chosen_attention].mean(dtype=f)
    return nll + f(beta) * np.mean(terms, dtype=f)
