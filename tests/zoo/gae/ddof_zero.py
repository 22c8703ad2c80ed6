import torch


def gae(rewards, values, mask, gamma, lam):
    m = mask.to(values.dtype)
    nextvalues, lastgaelam = 0.0, 0.0
    out = []
    for t in range(rewards.size(1) - 1, -1, -1):
        delta = rewards[:, t] + gamma * nextvalues - values[:, t]
        cand = delta + gamma * lam * lastgaelam
        nextvalues = values[:, t] * m[:, t] + (1 - m[:, t]) * nextvalues
        lastgaelam = cand * m[:, t] + (1 - m[:, t]) * lastgaelam
        out.append(lastgaelam)
    adv = torch.stack(out[::-1], 1)
    ret = adv + values
    mean = (adv * m).sum() / (m.sum() + 1e-8)
    var = ((adv - mean) ** 2 * m).sum() / (m.sum() + 1e-8)
    return (adv - mean) * torch.rsqrt(var + 1e-8), ret
