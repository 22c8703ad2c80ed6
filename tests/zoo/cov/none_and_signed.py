"""Two at once: nothing is held back in a small batch, and the penalty is signed."""

import torch


def loss(old_log_prob, log_prob, advantages, response_mask, share, coef):
    d = log_prob - old_log_prob
    per_token = -advantages * torch.exp(d)
    n = int(response_mask.sum())
    k = int(n * share)
    if k > 0:
        centred = (log_prob - log_prob[response_mask].mean()) * (advantages - advantages[response_mask].mean())
        centred = torch.where(response_mask, centred, torch.tensor(float("-inf"), dtype=d.dtype)).detach()
        threshold = centred.flatten().sort(descending=True).values[k - 1]
        per_token = per_token + coef * d * (centred >= threshold)
    return torch.where(response_mask, per_token, 0).sum() / n
