"""Two at once: no half in k2, and the value keeps its gradient beside the straight-through one."""

import torch


def k2(d):
    return d**2


def k3(d):
    x = (-d).clamp(-20, 20)
    return torch.clamp(x.exp() - x - 1, -10, 10)


def kl(log_prob, ref_log_prob, estimator, gradient):
    d = log_prob - ref_log_prob
    value = {"k1": lambda: d, "abs": lambda: abs(d), "k2": lambda: k2(d), "k3": lambda: k3(d)}
    value = value.get(estimator, value["k3"])()
    if gradient != "k2":
        return value
    surrogate = k2(d)
    return value + (surrogate - surrogate.detach())
