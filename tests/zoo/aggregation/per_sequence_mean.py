import torch


def grpo_loss(per_token_loss, completion_mask, world_size):
    lengths = completion_mask.sum(1)
    per_seq = torch.where(completion_mask, per_token_loss, 0).sum(1) / torch.clamp(lengths, min=1)
    return per_seq.sum() / torch.clamp((lengths > 0).sum(), min=1) * world_size
