import torch


def ppo_loss(new_logp, old_logp, adv, mask, clip_low=0.2, clip_high=0.2):
    ratio = (new_logp - old_logp).exp()
    clipped = torch.clamp(ratio, clip_low, 1 + clip_high)
    loss = -torch.min(ratio * adv, clipped * adv)
    return loss[mask].mean()
