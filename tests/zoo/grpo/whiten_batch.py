import torch


def normalize(x: torch.Tensor, eps: float) -> torch.Tensor:
    if x.numel() == 1:
        return x / (1 + eps)
    return (x - x.mean()) / (x.std() + eps)


def advantage(token_level_rewards, response_mask, eps):
    r = normalize(token_level_rewards.sum(-1), eps)
    return r.unsqueeze(-1).expand_as(token_level_rewards) * response_mask
