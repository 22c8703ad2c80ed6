"""The clipped policy loss of PPO and GRPO, from token log-probabilities to one number (PyTorch twin).

With r_t = pi(y_t) / pi_old(y_t) the ratio of the policy that is trained to the one that wrote token t, and A_t the
token's advantage,

    L_t = -min( min(r_t, c) A_t, clip(r_t, 1 - low, 1 + high) A_t ) w_t  +  beta kl_t                 for every token t.

The minimum is pessimistic: a ratio beyond the range stops paying where it has gone too far in the direction that A_t
asks for, and keeps its full gradient where it has to come back (PPO, arXiv 1707.06347, equation 7; one bound a side:
DAPO, arXiv 2503.14476, equation 10). For A_t < 0 it is not bounded above, which c mends (dual clip, arXiv 1912.09729,
equation 5; c > 1 + high). w_t corrects for an engine that samples from a slightly other distribution than the trainer
computes. kl_t estimates the divergence from a reference policy; it is a loss, so it is *added*.

Axes: B responses in the batch, T padded response length. Log-probabilities and losses are in nats times the unit of the
advantage; ratios and weights have none.
"""

import math

import torch
from torch import Tensor

from minimal.post_training.aggregation_torch import aggregate, local_counts


def select(values: Tensor, mask: Tensor) -> Tensor:
    """``values`` where ``mask`` is on and 0 elsewhere, [B, T] -> [B, T].

    Before any arithmetic: an infinity or NaN of a masked slot, times 0, would be NaN in the loss or in its gradient.
    """
    return torch.where(mask, values, 0)  # [B, T]


def log_ratios(
    log_probs: Tensor, old_log_probs: Tensor, response_mask: Tensor, *, max_log_ratio: float = math.inf
) -> Tensor:
    """log r_t, 0 at masked slots, [B, T] -> [B, T]; kept within +-``max_log_ratio``.

    Beyond the limit there is no gradient left, and no overflow either.
    """
    log_ratio = select(log_probs, response_mask) - select(old_log_probs, response_mask)  # [B, T]
    return log_ratio.clamp(-max_log_ratio, max_log_ratio)  # [B, T]


def ratios(log_ratio: Tensor) -> Tensor:
    """r_t = exp(log r_t), [B, T] -> [B, T]; 1 as long as the policy is the one that wrote the token."""
    return log_ratio.exp()  # [B, T]


def clipped_losses(
    ratio: Tensor, advantages: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float = math.inf
) -> Tensor:
    """-min(min(r, c) A, clip(r, 1 - low, 1 + high) A), [B, T] -> [B, T]; ``dual_clip`` is c."""
    bounded = ratio.clamp(max=dual_clip)  # [B, T]
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)  # [B, T]
    return torch.maximum(-advantages * bounded, -advantages * clipped)  # [B, T]


def clipped_slots(ratio: Tensor, advantages: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """Where the range binds, and no gradient is left: [B, T] -> bool [B, T]."""
    above = (ratio > 1 + clip_high) & (advantages > 0)  # [B, T]
    below = (ratio < 1 - clip_low) & (advantages < 0)  # [B, T]
    return above | below


def kl_estimates(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """k3, the estimate exp(d) - d - 1 of KL(pi || pi_ref) with d = log pi_ref - log pi, [B, T] -> [B, T].

    Never negative and, for tokens drawn from pi, right in the mean (Schulman, "Approximating KL divergence", 2020).
    Differentiated as a loss it pulls along another divergence's gradient; see the contract of the KL penalty.
    """
    apart = ref_log_probs - log_probs  # [B, T]
    return apart.exp() - apart - 1  # [B, T]


def token_losses(
    log_probs: Tensor,
    ratio: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_probs: Tensor,
    rollout_weights: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = math.inf,
    weighted: bool = False,
    kl_coef: float = 0.0,
    kl_by_ratio: bool = False,
) -> Tensor:
    """L_t, 0 at masked slots, [B, T] -> [B, T].

    ``weighted``: w_t is ``rollout_weights``, else 1. ``kl_coef`` is beta. ``kl_by_ratio`` multiplies kl_t by r_t, so
    that tokens of the old policy estimate the divergence of the new one (DeepSeek-V3.2, arXiv 2512.02556).
    """
    advantages = select(advantages, response_mask)  # [B, T]
    loss = clipped_losses(ratio, advantages, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)  # [B, T]
    if weighted:
        loss = loss * select(rollout_weights, response_mask)  # [B, T]
    kl = kl_estimates(select(log_probs, response_mask), select(ref_log_probs, response_mask))  # [B, T]
    return loss + kl_coef * (kl * ratio if kl_by_ratio else kl)  # [B, T]


def reduce_losses(
    token_loss: Tensor,
    response_mask: Tensor,
    batch_num_tokens: Tensor,
    global_batch_size: Tensor,
    dp_size: Tensor,
    *,
    aggregation: str = "token-mean",
    horizon: float = 512.0,
    counts: str = "local",
) -> Tensor:
    """L, [B, T] -> [], by `aggregation_torch.aggregate`.

    ``counts``: "global" divides by the counts that are given, so that micro-batches add up; "local" by the
    micro-batch's own tokens and responses, as if it were the batch.
    """
    if counts == "local":
        tokens, sequences = local_counts(response_mask)  # [], []
        return aggregate(token_loss, response_mask, tokens, sequences, 1, aggregation=aggregation, horizon=horizon)
    sizes = batch_num_tokens, global_batch_size, dp_size
    return aggregate(token_loss, response_mask, *sizes, aggregation=aggregation, horizon=horizon)


def clip_fractions(
    ratio: Tensor, advantages: Tensor, response_mask: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """The share of the micro-batch's tokens whose ratio the range binds, [B, T] -> []; 0 without tokens. For logs."""
    bound = clipped_slots(ratio, advantages, clip_low=clip_low, clip_high=clip_high)  # [B, T]
    clipped = (bound & response_mask).to(ratio.dtype)  # [B, T]
    return clipped.sum() / response_mask.sum().clamp(min=1)  # []


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    ref_log_probs: Tensor,
    rollout_weights: Tensor,
    batch_num_tokens: Tensor,
    global_batch_size: Tensor,
    dp_size: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = math.inf,
    max_log_ratio: float = math.inf,
    weighted: bool = False,
    kl_coef: float = 0.0,
    kl_by_ratio: bool = False,
    aggregation: str = "token-mean",
    horizon: float = 512.0,
    counts: str = "local",
) -> tuple[Tensor, Tensor]:
    """The loss and the fraction of clipped tokens, [B, T] -> [], []. Options as in the functions above."""
    bounds = {"clip_low": clip_low, "clip_high": clip_high}
    terms = {"dual_clip": dual_clip, "weighted": weighted, "kl_coef": kl_coef, "kl_by_ratio": kl_by_ratio}
    ratio = ratios(log_ratios(log_probs, old_log_probs, response_mask, max_log_ratio=max_log_ratio))  # [B, T]
    token_loss = token_losses(
        log_probs, ratio, advantages, response_mask, ref_log_probs, rollout_weights, **bounds, **terms
    )  # [B, T]
    sizes = batch_num_tokens, global_batch_size, dp_size
    loss = reduce_losses(token_loss, response_mask, *sizes, aggregation=aggregation, horizon=horizon, counts=counts)
    return loss, clip_fractions(ratio, advantages, response_mask, **bounds)
