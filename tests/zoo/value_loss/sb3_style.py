import torch


def value_loss(value_preds, values, returns, response_mask, clip_range):
    pred = values + torch.clamp(value_preds - values, -clip_range, clip_range)
    err = (returns - pred).pow(2)
    raised = (err > (returns - value_preds).pow(2))[response_mask].to(err.dtype).mean()
    return {"loss": 0.5 * err[response_mask].mean(), "clip_fraction": raised}
