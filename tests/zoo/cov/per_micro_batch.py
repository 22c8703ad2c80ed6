"""The loss as the trainer calls it: micro-batches of two rows, each by itself, gradients accumulated."""

import torch


def micro_loss(old_logp, logp, adv, mask, ratio, coef, total):
    log_r = logp - old_logp
    loss = -adv * log_r.exp()
    valid = mask.reshape(-1).nonzero()[:, 0]
    a, p = adv[mask].detach(), logp[mask].detach()
    if len(a):
        covs = (a - a.mean()) * (p - p.mean())
        k = max(1, int(len(covs) * ratio))
        picked = valid[torch.topk(covs, k).indices]
        penal = torch.zeros(mask.numel(), dtype=logp.dtype)
        penal[picked] = 1.0
        loss = loss + coef * penal.view_as(loss) * log_r.abs()
    return (loss * mask).sum() / total


def kl_cov(old_log_prob, log_prob, advantages, response_mask, kl_cov_ratio, ppo_kl_coef):
    total = response_mask.sum()
    losses = []
    for i in range(0, len(log_prob), 2):
        rows = slice(i, i + 2)
        batch = (x[rows] for x in (old_log_prob, log_prob, advantages, response_mask))
        losses.append(micro_loss(*batch, kl_cov_ratio, ppo_kl_coef, total))
    return sum(losses)
