import torch


def agg(loss_mat, loss_mask):
    return (loss_mat * loss_mask).sum() / loss_mask.sum()


def compute_policy_loss(log_probs, old_log_probs, advantages, response_mask, cliprange=0.2):
    ratio = torch.exp(log_probs - old_log_probs)
    losses = -advantages * ratio
    clipped = -advantages * torch.clamp(ratio, 1.0 - cliprange, 1.0 + cliprange)
    return agg(torch.max(losses, clipped), advantages)
