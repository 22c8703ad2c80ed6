"""Loss aggregation: how the losses of tokens become the one number that is differentiated (PyTorch twin).

Whoever averages chooses who counts the same. Over all tokens of the batch every token does, so that a long response
weighs more than a short one (DAPO, arXiv 2503.14476, section 3.3); over each response first every response does, so
that a token of a long one weighs less (GRPO, arXiv 2402.03300, equation 3). Dr. GRPO (arXiv 2503.20783) divides by a
constant instead of by any length.

    token-mean                dp/N  sum_i sum_t l_it              N   tokens of the whole batch
    token-sum                 dp    sum_i sum_t l_it
    seq-mean-token-sum        dp/S  sum_i sum_t l_it              S   responses of the whole batch
    seq-mean-token-sum-norm   dp/(S H) sum_i sum_t l_it           H   ``horizon``, a stated constant
    seq-mean-token-mean       dp/S  sum_i (1/n_i) sum_t l_it      n_i tokens of response i

What is summed is a micro-batch, what it is divided by belongs to the *whole* batch: only so do the gradients of the
micro-batches add up to that of the batch, however it was cut. dp is the number of data-parallel ranks: their
gradients are averaged afterwards, which divides by dp once more than was meant.

Axes: B responses of the micro-batch, T padded response length. Losses and results have the same unit.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Whole(NamedTuple):
    """What losses are divided by; it belongs to the whole batch. N, S and H of the table above."""

    tokens: Tensor
    sequences: Tensor
    horizon: float


def masked_sums(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of each row over the slots where ``mask`` is on, [B, T] -> [B].

    A masked slot is replaced, not multiplied by 0: what lies there may be infinite or not a number.
    """
    return torch.where(mask, values, 0).sum(dim=-1)  # [B, T] -> [B]


def local_counts(response_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens, and responses with any token, of the micro-batch itself: [B, T] -> [], [].

    Right as N and S only where the batch is not cut.
    """
    return response_mask.sum(), response_mask.any(dim=-1).sum()


def token_mean(token_losses: Tensor, response_mask: Tensor, whole: Whole) -> Tensor:
    """Every token of the batch weighs 1/N, [B, T] -> []."""
    return masked_sums(token_losses, response_mask).sum() / whole.tokens


def token_sum(token_losses: Tensor, response_mask: Tensor, whole: Whole) -> Tensor:
    """Every token weighs 1, [B, T] -> []; a larger batch has a larger gradient."""
    return masked_sums(token_losses, response_mask).sum()


def seq_mean_token_sum(token_losses: Tensor, response_mask: Tensor, whole: Whole) -> Tensor:
    """Every token weighs 1/S, [B, T] -> []; a longer response has a larger gradient."""
    return masked_sums(token_losses, response_mask).sum() / whole.sequences


def seq_mean_token_sum_norm(token_losses: Tensor, response_mask: Tensor, whole: Whole) -> Tensor:
    """Every token weighs 1/(S H), [B, T] -> []: Dr. GRPO, whose H is the longest response that is allowed."""
    return masked_sums(token_losses, response_mask).sum() / whole.sequences / whole.horizon


def seq_mean_token_mean(token_losses: Tensor, response_mask: Tensor, whole: Whole) -> Tensor:
    """Every token of response i weighs 1/(S n_i), [B, T] -> []; a response without tokens adds 0."""
    lengths = response_mask.sum(dim=-1).clamp(min=1)  # [B]
    return (masked_sums(token_losses, response_mask) / lengths).sum() / whole.sequences


MODES = {
    "token-mean": token_mean,
    "token-sum": token_sum,
    "seq-mean-token-sum": seq_mean_token_sum,
    "seq-mean-token-sum-norm": seq_mean_token_sum_norm,
    "seq-mean-token-mean": seq_mean_token_mean,
}


def aggregate(
    token_losses: Tensor,
    response_mask: Tensor,
    batch_num_tokens: Tensor,
    global_batch_size: Tensor,
    dp_size: Tensor,
    *,
    aggregation: str = "token-mean",
    horizon: float = 512.0,
) -> Tensor:
    """The loss of a micro-batch, [B, T] -> []: the micro-batches of a rank add up, the ranks are averaged.

    ``batch_num_tokens`` (N) and ``global_batch_size`` (S) count over all micro-batches of all ranks, ``dp_size`` is the
    number of ranks. ``horizon`` (H) is read by seq-mean-token-sum-norm alone.
    """
    whole = Whole(batch_num_tokens, global_batch_size, horizon)
    return MODES[aggregation](token_losses, response_mask, whole) * dp_size  # []
