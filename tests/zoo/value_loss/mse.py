import torch
import torch.nn.functional as F


def value_loss(value_preds, values, returns, response_mask, clip_range):
    inside = torch.clamp(value_preds - values, -clip_range, clip_range)
    pred = values + inside
    loss = F.mse_loss(pred[response_mask], returns[response_mask])
    worse = (pred - returns).abs() > (value_preds - returns).abs()
    return loss, worse[response_mask].to(loss.dtype).mean()
