"""Two at once: "k2" is k1, and "abs" has lost its bars."""

import torch


def kl_penalty(log_prob, ref_log_prob, estimator):
    d = log_prob - ref_log_prob
    if estimator in ("k1", "k2", "abs"):
        return d
    x = (-d).clamp(-20, 20)
    return torch.clamp(x.exp() - x - 1, -10, 10)
