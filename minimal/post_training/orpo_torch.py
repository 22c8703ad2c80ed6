"""ORPO: preference learning without a reference model, beside plain likelihood (PyTorch twin).

Odds ratio preference optimisation (arXiv 2403.07691) fine-tunes on the chosen completion and, in the same loss, pushes
the odds of chosen and rejected apart. With p the geometric mean of a completion's token probabilities (log p is the
average of its log-probabilities),

    odds(y) = p / (1 - p),      log OR = log odds(y_w) - log odds(y_l),
    L = NLL(y_w) - beta log sigmoid(log OR)                                  (eq. 4, 6 and 7; beta is its lambda).

log odds = log p - log(1 - p), and the second logarithm is where it can go wrong: p near 1 leaves nothing of 1 - p.

Axes: B pairs, T padded length of prompt and completion together. Log-probabilities are of single tokens, in nats; that
of a sequence's first token is not there, since nothing predicts it. ``beta`` is without unit.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def log_one_minus_exp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x < 0, of full accuracy on both sides, any shape.

    Near 0 the difference 1 - exp(x) is ``-expm1(x)``, without cancellation; far from it exp(x) is small beside 1, and
    ``log1p`` keeps it. The two meet at -log 2 (Maechler, Accurately computing log(1 - exp(-|a|)), R package Rmpfr).
    Each branch only sees what it is made for: the other's infinity would turn the gradient into 0 times infinity.
    """
    near = x > -math.log(2)
    close, far = torch.where(near, x, -1.0), torch.where(near, -1.0, x)
    return torch.where(near, torch.log(-torch.expm1(close)), torch.log1p(-torch.exp(far)))


def average_logps(logps: Tensor, mask: Tensor) -> Tensor:
    """log p of a completion: the average over its real tokens, [B, T] -> [B].

    Masked slots are dropped before they meet any arithmetic. Every completion has a token.
    """
    return torch.where(mask, logps, 0.0).sum(dim=1) / mask.sum(dim=1)  # [B]


def log_odds_ratios(chosen_averages: Tensor, rejected_averages: Tensor) -> Tensor:
    """log OR = (log p_w - log p_l) - (log(1 - p_w) - log(1 - p_l)), [B], [B] -> [B]."""
    apart = log_one_minus_exp(chosen_averages) - log_one_minus_exp(rejected_averages)  # [B]
    return chosen_averages - rejected_averages - apart


def negative_log_likelihood(logps: Tensor, mask: Tensor) -> Tensor:
    """Cross entropy of the real tokens, one mean over all of the batch, [B, T] -> []."""
    return -torch.where(mask, logps, 0.0).sum() / mask.sum()


def odds_ratio_loss(log_odds: Tensor) -> Tensor:
    """-log sigmoid(log OR), the mean of the pairs, [B] -> []."""
    return -F.logsigmoid(log_odds).mean()


def orpo_loss(
    policy_chosen_logps: Tensor,
    policy_rejected_logps: Tensor,
    chosen_attention: Tensor,
    chosen_mask: Tensor,
    rejected_mask: Tensor,
    *,
    beta: float = 0.1,
    nll_over: str = "sequence",
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of B pairs and the rewards of both sides, two times [B, T] and three masks [B, T] -> [], [B], [B].

    ``chosen_attention`` is on at every real token, ``chosen_mask`` at those of the completion. ``nll_over`` says which
    tokens of the chosen side are learned: ``"sequence"``, prompt and completion, or ``"completion"``. The rewards
    beta log p are what is logged, and detached.
    """
    chosen = average_logps(policy_chosen_logps, chosen_mask)  # [B, T] -> [B]
    rejected = average_logps(policy_rejected_logps, rejected_mask)  # [B, T] -> [B]
    learned = chosen_attention if nll_over == "sequence" else chosen_mask  # [B, T]
    nll = negative_log_likelihood(policy_chosen_logps, learned)  # []
    loss = nll + beta * odds_ratio_loss(log_odds_ratios(chosen, rejected))  # []
    return loss, (beta * chosen).detach(), (beta * rejected).detach()  # [], [B], [B]
