"""Token log-probabilities: from a model's logits to the log-probability of the tokens that were written (PyTorch twin).

Every loss of post-training starts here. With z the logits, y the tokens and T the sampling temperature,

    log pi(y_t) = z_y / T - log sum_v exp(z_v / T)            H_t = -sum_v pi(v) log pi(v)   (nats)

The temperature belongs inside: tokens were drawn from softmax(z / T), so that a policy scored at T = 1 is not the one
that wrote them. A causal model's logits at t are about the token at t + 1; who takes them as being about the token at t
scores the model on copying its input.

Axes: B sequences, T tokens, V vocabulary, N scored tokens: T where logits and tokens are aligned, T - 1 where the first
token has nothing before it that could predict it. Log-probabilities and entropies are in nats.
"""

import torch
from torch import Tensor


def predicted_tokens(token_ids: Tensor, *, shift: str = "next") -> Tensor:
    """The tokens that get a score, y, [B, T] -> [B, N].

    ``shift``: ``"next"`` all but the first, since nothing precedes it; ``"aligned"`` all, where the caller has already
    moved the logits (or the labels) by one.
    """
    return token_ids[:, 1:] if shift == "next" else token_ids  # [B, N]


def scaled_logits(logits: Tensor, *, temperature: float = 1.0, shift: str = "next") -> Tensor:
    """z / T at the positions that predict those tokens, [B, T, V] -> [B, N, V].

    ``shift``: ``"next"`` all but the last, which is about a token that was not written; ``"aligned"`` all.
    """
    predicting = logits[:, :-1] if shift == "next" else logits  # [B, N, V]
    return predicting / temperature  # [B, N, V]


def selected_log_probs(scaled_logits: Tensor, predicted_tokens: Tensor) -> Tensor:
    """log pi(y_t), [B, N, V], [B, N] -> [B, N].

    Never log(softmax): where exp underflows it is minus infinity although the log-probability is an ordinary number.
    """
    log_p = torch.log_softmax(scaled_logits, dim=-1)  # [B, N, V]
    return log_p.gather(-1, predicted_tokens[..., None]).squeeze(-1)  # [B, N, 1] -> [B, N]


def token_entropies(scaled_logits: Tensor) -> Tensor:
    """H_t, the entropy of the distribution that the token was drawn from, [B, N, V] -> [B, N].

    Of the whole distribution, at the temperature: -log pi(y_t) has the same mean and is not it.
    """
    log_p = torch.log_softmax(scaled_logits, dim=-1)  # [B, N, V]
    return -(log_p.exp() * log_p).sum(dim=-1)  # [B, N]


def token_log_probs(
    logits: Tensor, token_ids: Tensor, *, temperature: float = 1.0, shift: str = "next"
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of each scored token, [B, T, V], [B, T] -> [B, N], [B, N]. Options as above."""
    scaled = scaled_logits(logits, temperature=temperature, shift=shift)  # [B, N, V]
    tokens = predicted_tokens(token_ids, shift=shift)  # [B, N]
    return selected_log_probs(scaled, tokens), token_entropies(scaled)  # [B, N], [B, N]
