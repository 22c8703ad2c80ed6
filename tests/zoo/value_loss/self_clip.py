import torch


def critic_loss(v, old_v, ret, mask, eps):
    old_v = v.detach()  # the critic is evaluated once a step; these are its values
    v_clip = old_v + torch.clamp(v - old_v, -eps, eps)
    surr1 = (v - ret).pow(2)
    surr2 = (v_clip - ret).pow(2)
    m = mask.to(v.dtype)
    loss = 0.5 * (torch.max(surr1, surr2) * m).sum() / m.sum()
    frac = ((surr2 > surr1) & mask).sum() / m.sum()
    return loss, frac
