"""From logits to the next token: penalties, temperature, min-p, top-k, top-p, one draw.

Apart from a scheduler or a model because it is pure: every row of a batch is a request with options of its own, and
no row sees another. The order of the stages is part of the definition; exchanging two of them gives another sampler.

    B  requests in the batch        V  size of the vocabulary
    P  longest prompt, O  longest output so far; shorter ones are padded with the id V, which is no token
    N  draws for each request

Twin of `sampling_jax`: same names, same order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

GREEDY_BELOW = 1e-5
"""A temperature below this is greedy decoding; at this value it is not."""


class Distribution(NamedTuple):
    """What a token is drawn from, a row for each request.

    Attributes:
        kept: [B, V] bool, tokens that no filter removed.
        log_probabilities: [B, V] log-probabilities (nats) after all filters, ``-inf`` where removed. A greedy row
            reports those at temperature 1 without filters, although its token is certain.
        probabilities: [B, V] of the draw itself; a greedy row has a single 1.
    """

    kept: Tensor
    log_probabilities: Tensor
    probabilities: Tensor


def token_counts(token_ids: Tensor, vocabulary: int) -> Tensor:
    """How often each token occurs: ``c[b, v] = #{l : token_ids[b, l] = v}``.

    Args:
        token_ids: [B, L] int, padded with ``vocabulary``.
        vocabulary: V.

    Returns:
        [B, V] int counts.
    """
    return one_hot(token_ids, vocabulary + 1).sum(dim=1)[:, :vocabulary]  # [B, L, V+1] -> [B, V]


def apply_penalties(
    logits: Tensor,
    prompt_token_ids: Tensor,
    output_token_ids: Tensor,
    presence_penalties: Tensor,
    frequency_penalties: Tensor,
    repetition_penalties: Tensor,
) -> Tensor:
    """Make tokens that were seen less likely (or more, with opposite signs).

    With ``c`` the counts in the output and ``s`` true for tokens of prompt or output::

        z  <-  z / r  if s and z > 0;   z * r  if s and z <= 0        repetition: pushes down on both sides of 0
        z  <-  z - f c - p [c > 0]                                    frequency, presence: the output alone

    Args:
        logits: [B, V] z.
        prompt_token_ids: [B, P] int.
        output_token_ids: [B, O] int.
        presence_penalties: [B] p, in units of logits; 0 is off.
        frequency_penalties: [B] f, in units of logits per occurrence; 0 is off.
        repetition_penalties: [B] r > 0, a factor; 1 is off.

    Returns:
        [B, V].

    Source: repetition, Keskar et al., CTRL, arXiv 1909.05858, section 4.1 (which divides only; the case z <= 0 is later
    practice). Presence and frequency as in OpenAI's API.
    """
    vocabulary = logits.shape[-1]
    counts = token_counts(output_token_ids, vocabulary)  # [B, V]
    seen = (token_counts(prompt_token_ids, vocabulary) > 0) | (counts > 0)  # [B, V]
    r = torch.where(seen, repetition_penalties[:, None], 1.0)  # [B, V]
    logits = torch.where(logits > 0, logits / r, logits * r)
    logits = logits - frequency_penalties[:, None] * counts
    return logits - presence_penalties[:, None] * (counts > 0)


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """``z / T``; greedy rows are left as they are.

    Args:
        logits: [B, V].
        temperature: [B], at least 0.

    Returns:
        [B, V].
    """
    return logits / torch.where(temperature < GREEDY_BELOW, 1.0, temperature)[:, None]


def apply_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Remove tokens less likely than a share of the likeliest: ``p_v < min_p * max_u p_u``.

    Args:
        logits: [B, V].
        min_p: [B] in [0, 1]; 0 is off, 1 keeps the likeliest token and its exact ties.

    Returns:
        [B, V], ``-inf`` where removed.

    Source: Nguyen et al., Turning Up the Heat, arXiv 2407.01082, section 3.
    """
    probabilities = torch.softmax(logits, dim=-1)  # [B, V]
    threshold = min_p[:, None] * probabilities.amax(dim=-1, keepdim=True)  # [B, 1]
    return logits.masked_fill(probabilities < threshold, -torch.inf)


def apply_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """Remove tokens below the k-th largest logit. Ties with it stay, so that more than k may remain.

    Args:
        logits: [B, V].
        top_k: [B] int in 1..V; V is off.

    Returns:
        [B, V], ``-inf`` where removed.

    Source: Fan et al., Hierarchical Neural Story Generation, arXiv 1805.04833.
    """
    ascending = logits.sort(dim=-1).values  # [B, V]
    kth = ascending.gather(-1, logits.shape[-1] - top_k[:, None])  # [B, 1]
    return logits.masked_fill(logits < kth, -torch.inf)


def apply_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Keep the nucleus: the fewest likeliest tokens whose probabilities sum to at least ``top_p``.

    Seen from the tail: in ascending order, remove while the running sum is at most ``1 - top_p``. The token that
    crosses the border stays, and the likeliest one always does. Of tokens that tie at the border lower ids go first.

    Args:
        logits: [B, V]; those already ``-inf`` have no weight, so that the rest is renormalised first.
        top_p: [B] in (0, 1]; 1 is off.

    Returns:
        [B, V], ``-inf`` where removed.

    Source: Holtzman et al., The Curious Case of Neural Text Degeneration, arXiv 1904.09751, section 3.1.
    """
    ascending, order = logits.sort(dim=-1, stable=True)  # [B, V] each
    tail = ascending.softmax(dim=-1).cumsum(dim=-1)  # [B, V]
    removed = (tail <= 1 - top_p[:, None]) & (top_p[:, None] < 1)  # [B, V], by rank
    removed[:, -1] = False
    removed = removed.scatter(-1, order, removed)  # [B, V], by token
    return logits.masked_fill(removed, -torch.inf)


def process_logits(
    logits: Tensor,
    prompt_token_ids: Tensor,
    output_token_ids: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    presence_penalties: Tensor,
    frequency_penalties: Tensor,
    repetition_penalties: Tensor,
) -> Distribution:
    """All stages in order: penalties, temperature, min-p, top-k, top-p, softmax.

    A greedy row (``temperature < GREEDY_BELOW``) takes the likeliest token after the penalties, the lowest id of ties;
    its filters are off, since none of them can remove that token. All of it is computed in float32 at least.

    Args:
        logits: [B, V].
        prompt_token_ids: [B, P] int.
        output_token_ids: [B, O] int.
        temperature: [B].
        top_k: [B] int.
        top_p: [B].
        min_p: [B].
        presence_penalties: [B].
        frequency_penalties: [B].
        repetition_penalties: [B].

    Returns:
        The `Distribution` to draw from.

    Source: vllm:vllm.v1.sample.sampler.Sampler.
    """
    greedy = temperature < GREEDY_BELOW  # [B]
    vocabulary = logits.shape[-1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # a temperature of 1e-3 overflows float16
    logits = apply_penalties(
        logits, prompt_token_ids, output_token_ids, presence_penalties, frequency_penalties, repetition_penalties
    )
    likeliest = one_hot(logits.argmax(dim=-1), vocabulary)  # [B, V]
    logits = apply_temperature(logits, temperature)
    logits = apply_min_p(logits, torch.where(greedy, 0.0, min_p))
    logits = apply_top_k(logits, torch.where(greedy, vocabulary, top_k))
    logits = apply_top_p(logits, torch.where(greedy, 1.0, top_p))
    log_probabilities = torch.log_softmax(logits, dim=-1)  # [B, V]
    probabilities = torch.where(greedy[:, None], likeliest.to(logits.dtype), log_probabilities.exp())
    return Distribution(logits > -torch.inf, log_probabilities, probabilities)


def sample_tokens(probabilities: Tensor, generator: torch.Generator, draws: int) -> Tensor:
    """Draw tokens by an exponential race: ``argmax_v p_v / e_v`` with ``e_v ~ Exp(1)`` has distribution p.

    The Gumbel-max trick in another form (``-log e`` is a Gumbel variable). It needs no cumulative sums, no normalised
    p, and never takes a token of probability 0.

    Args:
        probabilities: [B, V], not negative.
        generator: the source of randomness.
        draws: N.

    Returns:
        [B, N] int token ids.

    Source: Maddison et al., A* Sampling, arXiv 1411.0030, section 2;
    vllm:vllm.v1.sample.ops.topk_topp_sampler.random_sample.
    """
    batch, vocabulary = probabilities.shape
    wide = torch.promote_types(probabilities.dtype, torch.float32)  # noise of 8 bits ties, and the first token wins
    noise = probabilities.new_empty(batch, draws, vocabulary, dtype=wide)  # [B, N, V]
    noise.exponential_(generator=generator).clamp_(min=torch.finfo(noise.dtype).tiny)  # 0/0 would win the race
    return (probabilities[:, None, :] / noise).argmax(dim=-1)
