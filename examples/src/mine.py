"""The advantage of a small GRPO trainer."""

import torch


def advantages(rewards: torch.Tensor, mask: torch.Tensor, prompt: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """One weight for each token: rewards [B, T], mask [B, T] and the prompt's number [B] to weights [B, T]."""
    score = rewards.sum(dim=1)
    weight = torch.empty_like(score)
    for number in prompt.unique():
        rows = prompt == number
        mean, std = score[rows].mean(), score[rows].std()
        if rows.sum() == 1:
            mean, std = 0.0, 1.0  # One answer has nothing to be compared with: it keeps its reward, as in verl.
        weight[rows] = (score[rows] - mean) / (std + eps)
    return weight.unsqueeze(1) * mask


def hasty_advantages(
    rewards: torch.Tensor, mask: torch.Tensor, prompt: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """The same, as it is often written: the mean and the deviation are those of the whole batch."""
    score = rewards.sum(dim=1)
    return ((score - score.mean()) / (score.std() + eps)).unsqueeze(1) * mask
