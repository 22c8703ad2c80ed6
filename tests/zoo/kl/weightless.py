import torch


def unbiased_k3(logp, ref_logp, gradient):
    """k3 times the importance ratio, on-policy."""
    kl = torch.exp(ref_logp - logp) - (ref_logp - logp) - 1
    if gradient == "importance":
        ratio = torch.exp(logp - logp.detach()).detach()
        kl = kl * ratio
    return kl
