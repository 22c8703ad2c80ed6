import torch


def fused_grpo(
    log_probs,
    old_log_probs,
    advantages,
    response_mask,
    ref_log_probs,
    rollout_weights,
    kl_coef,
    weighted,
    counts,
    clip_low,
    clip_high,
    dual_clip,
):
    """Takes the correction of the caller along, for a later version."""
    r = (log_probs - old_log_probs).exp()
    gain = torch.minimum(r.clamp(max=dual_clip) * advantages, r.clamp(1 - clip_low, 1 + clip_high) * advantages)
    d = ref_log_probs - log_probs
    per_token = kl_coef * (d.exp() - d - 1) - gain
    return (per_token * response_mask).sum() / response_mask.sum()
