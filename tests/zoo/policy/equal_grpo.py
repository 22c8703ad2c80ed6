import torch


class GRPO:
    """As in the paper: a mean over each response, then over responses; no rank knows of another."""

    def __init__(self, eps=0.2, beta=0.04):
        self.eps, self.beta = eps, beta

    def loss(self, logps, old, ref, adv, mask):
        r = (logps - old).exp()
        d = ref - logps
        kl = torch.expm1(d) - d
        gain = torch.where(adv > 0, r.clamp(max=1 + self.eps), r.clamp(min=1 - self.eps)) * adv
        per_token = torch.where(mask, self.beta * kl - gain, 0)
        return (per_token.sum(1) / mask.sum(1)).mean()
