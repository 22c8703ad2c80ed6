import torch


def value_loss(value_preds, values, returns, response_mask, clip_range):
    """GRPO's way to average: each response first."""
    losses, raised = [], 0
    for v, old, ret, keep in zip(value_preds, values, returns, response_mask):
        v, old, ret = v[keep], old[keep], ret[keep]
        if len(v) == 0:
            continue
        clipped = torch.minimum(torch.maximum(v, old - clip_range), old + clip_range)
        plain, other = (v - ret) ** 2, (clipped - ret) ** 2
        raised = raised + (other > plain).to(v.dtype).sum()
        losses.append(torch.maximum(plain, other).mean() * 0.5)
    return torch.stack(losses).mean(), raised / response_mask.sum()
