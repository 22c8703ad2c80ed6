import torch


def gae(token_level_rewards, values, response_mask, gamma, lam):
    mask = response_mask
    nxt = torch.zeros_like(values[:, 0])
    acc = torch.zeros_like(nxt)
    adv = torch.empty_like(values)
    for t in reversed(range(values.shape[1])):
        delta = token_level_rewards[:, t] + gamma * nxt - values[:, t]
        acc = torch.where(mask[:, t], delta + lam * acc, acc)
        nxt = torch.where(mask[:, t], values[:, t], nxt)
        adv[:, t] = acc
    n = mask.to(values.dtype).sum() + 1e-8
    mean = adv[mask].sum() / n
    var = (adv[mask] - mean).square().sum() / n
    return (adv - mean) * (var + 1e-8).rsqrt(), adv + values
