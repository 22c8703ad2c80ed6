import torch


def dr_grpo(per_token_loss, completion_mask, global_batch, ranks):
    width = per_token_loss.size(1)
    return (
        torch.einsum("bt,bt->", per_token_loss, completion_mask.to(per_token_loss.dtype))
        / (global_batch * width)
        * ranks
    )
