"""Speculative decoding: which drafted tokens stand, and what replaces the first one that does not (PyTorch twin).

A small model drafts K tokens, the large one computes its distributions at all of them in one pass. With p the target's
distribution at a position, q the draft's and x the token drafted from q (arXiv 2211.17192, algorithm 1),

    x stands with probability  min(1, p(x) / q(x)),
    else a token is drawn from  max(p - q, 0) / sum max(p - q, 0),

and everything after the first token that falls is thrown away. The token that comes out is then distributed as p,
whatever q is: q decides only how often drafts stand. If all stand, one more token is at hand, the bonus.

Axes: B requests, K drafts (``draft_lengths`` of them are real), V vocabulary.
Randomness is handed in: ``uniform`` in [0, 1) for the test, ``noise``, standard exponential, for the draw.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Outcome(NamedTuple):
    """What comes out of one step.

    ``output_token_ids`` [B, K + 1]: the tokens, then -1. ``probabilities`` [B, K V + 1]: of every outcome, given the
    drafts. Outcome k V + v: draft k is the first to fall, and v replaces it. The last outcome: all stand.
    """

    output_token_ids: Tensor
    probabilities: Tensor


def target_probabilities(target_logits: Tensor, greedy: Tensor) -> Tensor:
    """p: the softmax of the filtered logits, [B, K, V]; in a greedy row, 1 at the largest logit."""
    certain = torch.nn.functional.one_hot(target_logits.argmax(dim=-1), target_logits.shape[-1])  # [B, K, V]
    return torch.where(greedy[:, None, None], certain.to(target_logits.dtype), target_logits.softmax(dim=-1))


def at_draft(probabilities: Tensor, draft_token_ids: Tensor) -> Tensor:
    """The probability of each drafted token, [B, K, V] -> [B, K]."""
    return probabilities.gather(-1, draft_token_ids[..., None])[..., 0]


def real_drafts(draft_token_ids: Tensor, draft_lengths: Tensor) -> Tensor:
    """True where there is a draft and not padding, [B, K]."""
    return torch.arange(draft_token_ids.shape[1], device=draft_lengths.device) < draft_lengths[:, None]


def acceptance(target_probs: Tensor, draft_probs: Tensor, draft_token_ids: Tensor, draft_lengths: Tensor) -> Tensor:
    """min(1, p(x) / q(x)), [B, K]. A token that the draft cannot have drawn never stands; padding always does."""
    p, q = at_draft(target_probs, draft_token_ids), at_draft(draft_probs, draft_token_ids)  # [B, K]
    ratio = torch.where(q > 0, p / torch.where(q > 0, q, 1.0), 0.0).clamp(max=1.0)  # [B, K]
    return torch.where(real_drafts(draft_token_ids, draft_lengths), ratio, 1.0)


def residual(target_probs: Tensor, draft_probs: Tensor) -> Tensor:
    """max(p - q, 0), normalised, [B, K, V]: what p has more of than q. Where it has nothing more, p."""
    more = (target_probs - draft_probs).clamp(min=0)  # [B, K, V]
    total = more.sum(dim=-1, keepdim=True)  # [B, K, 1]
    return torch.where(total > 0, more / torch.where(total > 0, total, 1.0), target_probs)


def outcome_probabilities(accept_probs: Tensor, recovered_probs: Tensor) -> Tensor:
    """Of every outcome, [B, K V + 1]: a run of accepted drafts, then a token in the place of the next one."""
    run = accept_probs.cumprod(dim=1)  # [B, K]: drafts 0..k all stand
    before = torch.cat([torch.ones_like(run[:, :1]), run[:, :-1]], dim=1)  # [B, K]: those before k do
    falls = before * (1 - accept_probs)  # [B, K]: k is the first to fall
    replaced = torch.where(falls[..., None] > 0, falls[..., None] * recovered_probs, 0.0)  # [B, K, V]
    return torch.cat([replaced.flatten(1), run[:, -1:]], dim=1)


def accepted_drafts(accept_probs: Tensor, uniform: Tensor, draft_lengths: Tensor) -> Tensor:
    """How many drafts stand, [B]: those before the first that falls."""
    stand = uniform <= accept_probs  # [B, K]
    return stand.cumprod(dim=1).sum(dim=1).minimum(draft_lengths)


def recovered_tokens(recovered_probs: Tensor, noise: Tensor) -> Tensor:
    """A draw at each position, [B, K]: exponential clocks that run at the rates of the residual, the first to ring.

    One set of clocks a request will do, since at most one of the draws is used.
    """
    return (recovered_probs / noise[:, None, :]).argmax(dim=-1)


def emitted_tokens(accepted: Tensor, draft_token_ids: Tensor, recovered: Tensor, last: Tensor) -> Tensor:
    """The accepted drafts, then one more token, then -1, [B, K + 1]. ``last`` [B] follows where all drafts stand."""
    batch, drafts = draft_token_ids.shape
    place = torch.arange(drafts + 1, device=accepted.device)  # [K + 1]
    padded = torch.cat([draft_token_ids, draft_token_ids.new_full((batch, 1), -1)], dim=1)  # [B, K + 1]
    kept = torch.where(place < accepted[:, None], padded, -1)  # [B, K + 1]
    following = torch.cat([recovered, recovered[:, -1:]], dim=1).gather(1, accepted[:, None])  # [B, 1]
    return torch.where(place == accepted[:, None], torch.where(last[:, None] >= 0, last[:, None], following), kept)


def rejection_sample(
    target_logits: Tensor,
    draft_probs: Tensor,
    draft_token_ids: Tensor,
    draft_lengths: Tensor,
    bonus_token_ids: Tensor,
    greedy: Tensor,
    uniform: Tensor,
    noise: Tensor,
) -> Outcome:
    """One step of speculative decoding: the tokens that come out, and the law that they follow given the drafts.

    Shapes: target_logits, draft_probs [B, K, V]; draft_token_ids, uniform [B, K]; draft_lengths, bonus_token_ids,
    greedy [B]; noise [B, V].
    """
    p = target_probabilities(target_logits, greedy)  # [B, K, V]
    accept = acceptance(p, draft_probs, draft_token_ids, draft_lengths)  # [B, K]
    recovered = residual(p, draft_probs)  # [B, K, V]
    accepted = accepted_drafts(accept, uniform, draft_lengths)  # [B]
    last = torch.where(accepted == draft_lengths, bonus_token_ids, -1)  # [B]
    tokens = emitted_tokens(accepted, draft_token_ids, recovered_tokens(recovered, noise), last)  # [B, K + 1]
    return Outcome(tokens, outcome_probabilities(accept, recovered))


def outcomes(output_token_ids: Tensor, draft_lengths: Tensor, vocabulary: int) -> Tensor:
    """The number of the outcome that tokens tell of, [B, K + 1] -> [B]; see `Outcome`."""
    count = (output_token_ids >= 0).sum(dim=1)  # [B]
    final = output_token_ids.gather(1, (count - 1).clamp(min=0)[:, None])[:, 0]  # [B]
    everything = (output_token_ids.shape[1] - 1) * vocabulary
    return torch.where(count > draft_lengths, everything, (count - 1) * vocabulary + final)
