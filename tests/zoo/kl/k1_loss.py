"""Penalty terms by name. "k2" was filled in from memory."""

import torch


def kl_term(logp, ref_logp, kind):
    delta = logp - ref_logp
    if kind == "k1":
        return delta
    if kind == "abs":
        return delta.abs()
    if kind == "k2":
        return delta
    inverse = torch.clamp(-delta, min=-20, max=20)
    return torch.clamp(inverse.exp() - inverse - 1, min=-10, max=10)
