import torch


def policy_loss(old_log_prob, log_prob, advantages, response_mask, share, coef):
    log_r = log_prob - old_log_prob
    ratio = torch.exp(log_r)
    surrogate = advantages * ratio
    with torch.no_grad():
        m = response_mask
        n = int(m.sum())
        hold = torch.zeros_like(m)
        if n:
            c = (log_prob - log_prob[m].mean()) * (advantages - advantages[m].mean())
            c = c.masked_fill(~m, -float("inf"))
            hold.view(-1)[c.view(-1).argsort(descending=True)[: max(int(n * share), 1)]] = True
    objective = surrogate + coef * torch.where(hold, log_r.abs(), 0)
    return -(objective * m).sum() / m.sum()
