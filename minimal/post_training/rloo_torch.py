"""RLOO: each response is measured against the mean of the others to its prompt (PyTorch twin).

REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740, section 3.3; Kool et al. 2019) takes for a baseline the mean
reward of the *other* responses to the prompt. It does not depend on the response itself, so it takes no bias in:

    A_i = r_i - 1/(n-1) sum over j != i of r_j  =  n/(n-1) (r_i - mean(r))

It is GRPO's centred reward times n/(n-1), without a division by the spread. Axes and the labels ``group`` are those of
the topic *grpo*. Rewards and advantages are in reward units, or without unit once scaled.
"""

import torch
from torch import Tensor

from minimal.post_training import grpo_torch as grpo


def others_means(scores: Tensor, group: Tensor) -> Tensor:
    """For each row the mean score of the others of its group, [B] -> [B]; 0 in a group of one.

    ``group`` holds numbers below B.
    """
    size = grpo.group_sums(torch.ones_like(scores), group)  # [B]
    return (grpo.group_sums(scores, group) - scores) / (size - 1).clamp(min=1)  # [B]


def leave_one_out(scores: Tensor, group: Tensor, *, singleton: str = "raw") -> Tensor:
    """A_i of each response, [B] -> [B].

    ``singleton``: a group of one has no others; ``"raw"`` takes their mean as 0, so that the response keeps its reward,
    ``"zero"`` gives it no advantage.
    """
    number = grpo.group_numbers(group)  # [B]
    alone = grpo.group_sums(torch.ones_like(scores), number) == 1  # [B]
    advantages = scores - others_means(scores, number)  # [B]
    return torch.where(alone & (singleton == "zero"), 0.0, advantages)  # [B]


def standardised(advantages: Tensor, *, eps: float = 1e-4) -> Tensor:
    """(A - mean) / (std + eps) over the batch, with Bessel's correction, [B] -> [B]."""
    return (advantages - advantages.mean()) / (grpo.batch_std(advantages) + eps)  # [B]


def rloo_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    group: Tensor,
    *,
    scale: str = "none",
    eps: float = 1e-4,
    singleton: str = "raw",
) -> Tensor:
    """The advantage of every token: its response's, and 0 where ``response_mask`` is off, [B, T] -> [B, T].

    ``scale``: ``"none"``, or ``"batch"`` as in `standardised`. A weight, not a path for gradients: detached.
    """
    scores = grpo.outcome_scores(token_level_rewards)  # [B, T] -> [B]
    advantages = leave_one_out(scores, group, singleton=singleton)  # [B]
    if scale == "batch":
        advantages = standardised(advantages, eps=eps)
    return (advantages[:, None] * response_mask).detach()  # [B, 1] * [B, T] -> [B, T]
