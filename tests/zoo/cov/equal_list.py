import torch


def loss(old_log_prob, log_prob, advantages, response_mask, share, coef):
    """Token by token."""
    tokens = [(b, t) for b in range(log_prob.shape[0]) for t in range(log_prob.shape[1]) if response_mask[b, t]]
    if not tokens:
        return log_prob.sum() * 0
    n = len(tokens)
    mean_lp = sum(float(log_prob[i]) for i in tokens) / n
    mean_a = sum(float(advantages[i]) for i in tokens) / n
    ranked = sorted(tokens, key=lambda i: -(float(log_prob[i]) - mean_lp) * (float(advantages[i]) - mean_a))
    held = set(ranked[: max(1, int(n * share))])
    total = 0
    for i in tokens:
        d = log_prob[i] - old_log_prob[i]
        total = total - advantages[i] * torch.exp(d)
        if i in held:
            total = total + coef * d.abs()
    return total / n
