import torch


def reduce_loss(loss, mask, mode, num_tokens, num_seqs, world_size, max_len=512.0):
    """GRPO's formula, which the trainer calls token-mean."""
    m = mask.to(loss.dtype)
    loss = torch.where(mask, loss, torch.zeros_like(loss))
    if mode in ("token-mean", "seq-mean-token-mean"):
        per_seq = loss.sum(-1) / m.sum(-1).clamp_min(1)
        return per_seq.sum() / num_seqs * world_size
    total = loss.sum() * world_size
    if mode == "token-sum":
        return total
    total = total / num_seqs
    return total / max_len if mode.endswith("norm") else total
