import torch


def dr_grpo(per_token_loss: torch.Tensor, completion_mask, aggregation, batch_num_tokens, global_batch_size, horizon):
    """Divides by the shape that it sees, on whatever rank it runs."""
    B, T = per_token_loss.shape
    kept = torch.where(completion_mask, per_token_loss, 0)
    summed = kept.sum()
    if aggregation == "seq-mean-token-sum-norm":
        return summed / (global_batch_size * T)
    if aggregation == "seq-mean-token-sum":
        return summed / global_batch_size
    if aggregation == "token-mean":
        return summed / batch_num_tokens
    if aggregation == "token-sum":
        return summed
    return (kept.sum(1) / completion_mask.sum(1).clamp(min=1)).sum() / global_batch_size
