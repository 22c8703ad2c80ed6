import torch


def covariance_loss(old_log_prob, log_prob, advantages, response_mask, share):
    flat = response_mask.flatten()
    lp, a = log_prob.flatten()[flat], advantages.flatten()[flat]
    old = old_log_prob.flatten()[flat]
    loss = -a * (lp - old).exp()
    cov = ((lp - lp.mean()) * (a - a.mean())).detach()
    keep = torch.ones_like(lp)
    keep[cov.topk(max(1, int(len(lp) * share))).indices] = 0
    loss = loss * keep + loss.detach() * (1 - keep)
    return loss.mean()
