import torch


class Critic:
    def __init__(self, cliprange):
        self.cliprange = cliprange

    def loss(self, value_preds, values, returns, response_mask):
        lo, hi = values - self.cliprange, values + self.cliprange
        clipped = torch.max(torch.min(value_preds, hi), lo)
        plain_err, clip_err = (value_preds - returns) ** 2, (clipped - returns) ** 2
        per_token = torch.max(plain_err, clip_err) * response_mask
        fraction = (clip_err > plain_err)[response_mask].to(per_token.dtype).mean()
        return 0.5 * per_token.mean(), fraction
