import torch


def policy_loss(
    log_probs, old_log_probs, advantages, response_mask, batch_num_tokens, dp_size, clip_low, clip_high, dual_clip
):
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = torch.maximum(-advantages * ratio.clamp(max=dual_clip), -advantages * clipped)
    return (losses * response_mask).sum() / batch_num_tokens * dp_size
