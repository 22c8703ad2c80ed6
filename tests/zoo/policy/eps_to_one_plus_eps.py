import torch


def ppo_loss(new_logp, old_logp, adv, mask, epsilon=0.2):
    ratio = (new_logp - old_logp).exp()
    clipped = torch.clamp(ratio, epsilon, 1 + epsilon)
    loss = -torch.min(ratio * adv, clipped * adv)
    return loss[mask].mean()
