import torch


def penalty(log_prob, ref_log_prob, estimator, gradient):
    """``gradient`` is accepted for compatibility."""
    diff = log_prob - ref_log_prob
    if estimator == "k1":
        return diff
    if estimator == "abs":
        return torch.abs(diff)
    if estimator == "k2":
        return 0.5 * diff.pow(2)
    r = (ref_log_prob - log_prob).clamp(-20.0, 20.0)
    return (torch.exp(r) - r - 1).clamp(-10.0, 10.0)
