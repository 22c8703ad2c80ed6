"""KTO: preferences without pairs, each completion only called good or bad (PyTorch twin).

Kahneman-Tversky optimisation (arXiv 2402.01306) needs no two completions of one prompt. With h the log-ratio of policy
and reference, summed over a completion's tokens, and z0 the batch's estimate of KL(policy, reference),

    desirable:    L = w_D (1 - sigmoid(beta (h - z0)))
    undesirable:  L = w_U (1 - sigmoid(beta (z0 - h)))                                                      (eq. 7).

z0 is what a gain or a loss is counted from: the mean log-ratio of *mismatched* completions, each another row's after
this row's prompt, never below 0, and without gradient. ``apo_zero_unpaired`` (arXiv 2408.06266) counts from 0 instead.

Axes: B completions, T padded length. Log-probabilities are of single tokens, in nats; weights and ``beta`` are without
unit.
"""

import torch
from torch import Tensor


def log_ratios(policy_logps: Tensor, ref_logps: Tensor, mask: Tensor) -> Tensor:
    """h: how much likelier the policy makes a completion than the reference, [B, T] twice -> [B].

    Masked slots are dropped before they meet any arithmetic.
    """
    return torch.where(mask, policy_logps - ref_logps, 0.0).sum(dim=1)


def reference_point(mismatched: Tensor) -> Tensor:
    """z0 = max(0, mean of the mismatched log-ratios), detached, [B] -> []."""
    return mismatched.mean().clamp(min=0).detach()


def kto_losses(h: Tensor, z0: Tensor, desirable: Tensor, *, beta: float, loss_type: str = "kto") -> Tensor:
    """The loss of each completion before its weight, in [0, 1], [B] -> [B].

    1 - sigmoid(x) is written sigmoid(-x): the difference has no digits left where x is large.
    """
    gain = h - z0 if loss_type == "kto" else h  # [B]
    return torch.sigmoid(torch.where(desirable, -gain, gain) * beta)


def kto_loss(
    policy_logps: Tensor,
    ref_logps: Tensor,
    mask: Tensor,
    policy_kl_logps: Tensor,
    ref_kl_logps: Tensor,
    kl_mask: Tensor,
    desirable: Tensor,
    *,
    beta: float = 0.1,
    loss_type: str = "kto",
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of B completions and the summed rewards of the good and of the bad ones, [B, T] -> [], [], [].

    ``desirable`` [B] calls a completion good. ``policy_kl_logps``, ``ref_kl_logps`` and ``kl_mask`` are those of the
    mismatched completions; ``loss_type`` is ``"kto"`` or ``"apo_zero_unpaired"``, which does without them. The rewards
    beta h are what is logged, and detached.
    """
    h = log_ratios(policy_logps, ref_logps, mask)  # [B, T] -> [B]
    z0 = reference_point(log_ratios(policy_kl_logps, ref_kl_logps, kl_mask))  # [B, T] -> []
    losses = kto_losses(h, z0, desirable, beta=beta, loss_type=loss_type)  # [B]
    loss = torch.where(desirable, desirable_weight * losses, undesirable_weight * losses).mean()  # []
    rewards = (beta * h).detach()  # [B]
    return loss, torch.where(desirable, rewards, 0.0).sum(), torch.where(desirable, 0.0, rewards).sum()
