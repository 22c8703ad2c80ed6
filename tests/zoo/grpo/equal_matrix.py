import torch
import torch.nn.functional as F


def advantages(rewards, mask, prompt, epsilon=1e-6):
    r = rewards.sum(1)
    _, which = torch.unique(prompt, return_inverse=True)
    member = F.one_hot(which).to(r.dtype)  # [B, G]
    size = member.sum(0)
    centred = r - (member.T @ r / size)[which]
    std = ((member.T @ centred.square()) / (size - 1).clamp(min=1)).sqrt()[which]
    alone = (size == 1)[which]
    adv = torch.where(alone, r, centred) / (torch.where(alone, torch.ones_like(std), std) + epsilon)
    return {"adv": torch.where(mask, adv[:, None], 0.0)}
