import torch
import torch.nn.functional as F


def safe_log1mexp(x):
    small = x > -0.6931471805599453
    return torch.where(
        small,
        torch.log(-torch.expm1(torch.where(small, x, torch.full_like(x, -1)))),
        torch.log1p(-torch.exp(torch.where(small, torch.full_like(x, -1), x))),
    )


def orpo(logps_w, logps_l, real_w, mask_w, mask_l, beta):
    both = torch.cat([logps_w, logps_l])
    keep = torch.cat([mask_w, mask_l])
    avg = both.masked_fill(~keep, 0).sum(-1) / keep.sum(-1)
    logit = avg - safe_log1mexp(avg)
    w, r = logit.chunk(2)
    nll = F.nll_loss(logps_w[real_w][:, None], torch.zeros(int(real_w.sum()), dtype=torch.long))
    loss = nll + beta * F.softplus(r - w).mean()
    win, lose = (beta * avg.detach()).chunk(2)
    return {"loss": loss, "chosen_rewards": win, "rejected_rewards": lose}
