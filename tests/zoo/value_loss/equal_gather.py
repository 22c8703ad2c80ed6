import torch


def value_loss(value_preds, values, returns, response_mask, clip_range):
    v, old, ret = value_preds[response_mask], values[response_mask], returns[response_mask]
    moved = old + (v - old).clamp(min=-clip_range, max=clip_range)
    both = torch.stack([(v - ret).square(), (moved - ret).square()])
    best = both.max(dim=0)
    return best.values.mean() / 2, (both[1] > both[0]).to(v.dtype).mean()
