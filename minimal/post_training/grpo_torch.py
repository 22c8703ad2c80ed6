"""GRPO: how the rewards of one prompt's responses become the weights of their tokens (PyTorch twin).

Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300, section 4.1.2) asks no critic what a response is
worth: the other responses to the same prompt are the yardstick. With r_i the reward of response i and r those of its
group,

    A_{i,t} = (r_i - mean(r)) / (std(r) + eps)        for every token t of response i.

Dr. GRPO (arXiv 2503.20783) leaves the division out, because it gives prompts with little spread a larger say.

Axes: B responses in the batch, T padded response length. ``group`` names the prompt of each response; the rows of a
group may lie anywhere in the batch. Rewards and advantages are in reward units, or without unit once divided by std.
"""

import torch
from torch import Tensor


def outcome_scores(token_level_rewards: Tensor) -> Tensor:
    """The reward of a whole response, r_i: the sum over its tokens, [B, T] -> [B].

    Masked slots are summed too. Rewards are written to real tokens only, so that this makes no difference until
    something else is written there.
    """
    return token_level_rewards.sum(dim=-1)  # [B, T] -> [B]


def group_numbers(group: Tensor) -> Tensor:
    """Group labels as numbers 0, 1, ... in the order of the labels, [B] -> [B]."""
    return torch.unique(group, return_inverse=True)[1]  # [B]


def group_sums(values: Tensor, group: Tensor) -> Tensor:
    """For each row the sum of ``values`` over the rows of its group, [B] -> [B]. ``group`` holds numbers below B."""
    sums = torch.zeros_like(values).index_add(0, group, values)  # [B], one entry a group
    return sums[group]  # [B], one entry a row


def group_means(scores: Tensor, group: Tensor) -> Tensor:
    """For each row mean(r) of its group, [B] -> [B]."""
    return group_sums(scores, group) / group_sums(torch.ones_like(scores), group)  # [B]


def group_stds(scores: Tensor, group: Tensor) -> Tensor:
    """For each row std(r) of its group with Bessel's correction, [B] -> [B]; 0 in a group of one.

    std(r)^2 = sum_j (r_j - mean(r))^2 / (G - 1), G the size of the group. At G = 4 the population's std would be
    13% smaller and every advantage 15% larger.
    """
    size = group_sums(torch.ones_like(scores), group)  # [B]
    centred = scores - group_means(scores, group)  # [B]
    return (group_sums(centred**2, group) / (size - 1).clamp(min=1)).sqrt()  # [B]


def batch_std(scores: Tensor) -> Tensor:
    """std over all rows with Bessel's correction, [B] -> []; 0 for a batch of one."""
    everyone = torch.zeros_like(scores, dtype=torch.long)  # [B]
    return group_stds(scores, everyone)[0]  # []


def kept_alone(scores: Tensor, group: Tensor, *, singleton: str = "raw") -> Tensor:
    """Where a response keeps its reward since there is none to compare it with, [B], [B] -> [B]."""
    return (group_sums(torch.ones_like(scores), group_numbers(group)) == 1) & (singleton == "raw")  # [B]


def centred_scores(scores: Tensor, group: Tensor, *, singleton: str = "raw") -> Tensor:
    """r_i - mean(r), [B], [B] -> [B]."""
    means = group_means(scores, group_numbers(group))  # [B]
    return torch.where(kept_alone(scores, group, singleton=singleton), scores, scores - means)


def score_stds(scores: Tensor, group: Tensor, *, scale: str = "group", singleton: str = "raw") -> Tensor:
    """What each centred reward is divided by, less eps, [B], [B] -> [B]."""
    if scale == "batch":
        return batch_std(scores).expand_as(scores)  # [B]
    keep = kept_alone(scores, group, singleton=singleton)  # [B]
    return torch.where(keep, 1.0, group_stds(scores, group_numbers(group)))


def scaled_scores(centred: Tensor, stds: Tensor, *, eps: float = 1e-6, scale: str = "group") -> Tensor:
    """(r_i - mean(r)) / (std(r) + eps), or the centred reward alone, [B], [B] -> [B]."""
    return centred if scale == "none" else centred / (stds + eps)


def group_advantages(
    scores: Tensor, group: Tensor, *, eps: float = 1e-6, scale: str = "group", singleton: str = "raw"
) -> Tensor:
    """Advantage of each response against its group, [B] -> [B].

    ``scale``: what the centred reward is divided by: ``"group"`` std + eps (the paper), ``"batch"`` std + eps of the
    batch, ``"none"`` nothing (Dr. GRPO). ``singleton``: a group of one has nothing to compare with; ``"raw"`` takes
    its mean as 0 and its std as 1, so that the response keeps its reward; ``"zero"`` takes the mean that it has.
    """
    centred = centred_scores(scores, group, singleton=singleton)  # [B]
    stds = score_stds(scores, group, scale=scale, singleton=singleton)  # [B]
    return scaled_scores(centred, stds, eps=eps, scale=scale)


def token_weights(advantages: Tensor, response_mask: Tensor) -> Tensor:
    """A response's advantage on each of its tokens, 0 where the mask is off, [B], [B, T] -> [B, T]; detached."""
    return (advantages[:, None] * response_mask).detach()  # [B, 1] * [B, T] -> [B, T]


def grpo_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    group: Tensor,
    *,
    eps: float = 1e-6,
    scale: str = "group",
    singleton: str = "raw",
) -> Tensor:
    """The advantage of every token: its response's, and 0 where ``response_mask`` is off, [B, T] -> [B, T].

    A weight, not a path for gradients: the result is detached. Options as in `group_advantages`.
    """
    scores = outcome_scores(token_level_rewards)  # [B, T] -> [B]
    advantages = group_advantages(scores, group, eps=eps, scale=scale, singleton=singleton)  # [B]
    return token_weights(advantages, response_mask)  # [B], [B, T] -> [B, T]
