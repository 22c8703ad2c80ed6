import torch


def dr_grpo(per_token_loss, completion_mask, global_batch, max_completion_length):
    kept = torch.where(completion_mask, per_token_loss, 0)
    return kept.sum() / global_batch / max_completion_length
