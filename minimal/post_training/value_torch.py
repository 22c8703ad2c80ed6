"""Value loss of PPO: what the critic pays for missing the returns, with its steps clipped (PyTorch twin).

As the policy does in PPO (Schulman et al., arXiv 1707.06347), the critic takes several steps on one rollout, and as
there the step is clipped: against the values *recorded at rollout*, not against anything that moves with the critic.
With v the prediction, V the recorded value, R the return and c the range,

    v' = min(max(v, V - c), V + c)
    l  = 1/2 max((v - R)^2, (v' - R)^2)

The larger of both is taken: moving beyond the range brings no gain (v' is constant there, so no gradient comes of it),
but a step that leads away from R is always paid for. The clipping is not in the paper; it comes from OpenAI's code.

Axes: B responses, T padded response length. Values and returns are in reward units, losses in their squares.
"""

import torch
from torch import Tensor

from minimal.post_training import aggregation_torch as aggregation_


def clipped_values(value_preds: Tensor, values: Tensor, *, clip_range: float = 0.5) -> Tensor:
    """v', the prediction kept within ``clip_range`` of the recorded value, [B, T] -> [B, T]."""
    return torch.maximum(torch.minimum(value_preds, values + clip_range), values - clip_range)  # [B, T]


def squared_errors(value_preds: Tensor, returns: Tensor) -> Tensor:
    """(v - R)^2, [B, T] -> [B, T]."""
    return (value_preds - returns) ** 2  # [B, T]


def token_value_losses(value_preds: Tensor, clipped_preds: Tensor, returns: Tensor) -> Tensor:
    """l = 1/2 max((v - R)^2, (v' - R)^2), [B, T] -> [B, T]."""
    return 0.5 * torch.maximum(squared_errors(value_preds, returns), squared_errors(clipped_preds, returns))  # [B, T]


def clip_fraction(value_preds: Tensor, clipped_preds: Tensor, returns: Tensor, response_mask: Tensor) -> Tensor:
    """The share of tokens whose loss the clipping raised, [B, T] -> []; a number to watch, without gradient."""
    raised = squared_errors(clipped_preds, returns) > squared_errors(value_preds, returns)  # [B, T]
    return (raised & response_mask).sum().to(value_preds.dtype) / response_mask.sum()  # []


def aggregated(
    token_losses: Tensor, response_mask: Tensor, *, aggregation: str = "token-mean", horizon: float = 512.0
) -> Tensor:
    """The loss of the batch by a mode of the topic *aggregation*, [B, T] -> []; its divisors are the batch's own."""
    whole = aggregation_.Whole(*aggregation_.local_counts(response_mask), horizon)
    return aggregation_.MODES[aggregation](token_losses, response_mask, whole)  # []


def value_loss(
    value_preds: Tensor,
    values: Tensor,
    returns: Tensor,
    response_mask: Tensor,
    *,
    clip_range: float = 0.5,
    aggregation: str = "token-mean",
    horizon: float = 512.0,
) -> tuple[Tensor, Tensor]:
    """The critic's loss and the share of tokens that were clipped, [B, T] -> [], [].

    ``values`` are those of the rollout, as ``returns`` were made of. Gradients belong to ``value_preds`` alone. Masked
    slots are emptied before any arithmetic: what is not a number would else come back as a gradient, 0 times it.
    """
    value_preds, values, returns = (torch.where(response_mask, item, 0.0) for item in (value_preds, values, returns))
    clipped_preds = clipped_values(value_preds, values, clip_range=clip_range)  # [B, T]
    token_losses = token_value_losses(value_preds, clipped_preds, returns)  # [B, T]
    loss = aggregated(token_losses, response_mask, aggregation=aggregation, horizon=horizon)  # []
    return loss, clip_fraction(value_preds, clipped_preds, returns, response_mask)
