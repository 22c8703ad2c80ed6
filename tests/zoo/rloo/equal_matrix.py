import torch


def advantages(rewards, mask, prompt):
    r = rewards.sum(-1)
    peers = (prompt[:, None] == prompt[None, :]).to(r.dtype) - torch.eye(len(r), dtype=r.dtype)
    baseline = peers @ r / peers.sum(1).clamp(min=1)
    return torch.where(mask, (r - baseline)[:, None], 0.0)
