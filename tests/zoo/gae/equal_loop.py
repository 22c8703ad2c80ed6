import torch


def gae(token_level_rewards, values, response_mask, gamma, lam):
    """Over the tokens that were written, one response at a time; tool output in between is dropped."""
    adv = torch.zeros_like(values)
    for i in range(values.shape[0]):
        where = response_mask[i].nonzero().flatten().tolist()
        acc, nxt, right = torch.zeros((), dtype=values.dtype), 0.0, values.shape[1]
        for t in reversed(where):
            adv[i, t + 1 : right] = acc
            acc = token_level_rewards[i, t] + gamma * nxt - values[i, t] + gamma * lam * acc
            adv[i, t] = acc
            nxt, right = values[i, t], t
        adv[i, :right] = acc
    n = response_mask.sum().to(values.dtype)
    mean = adv[response_mask].sum() / (n + 1e-8)
    var = ((adv[response_mask] - mean) ** 2).sum() / (n + 1e-8) * (n / (n - 1))
    return (adv - mean) / torch.sqrt(var + 1e-8), adv + values
