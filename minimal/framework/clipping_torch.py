"""Clipping a gradient by its global norm, when the gradient lies in several places.

Apart from an optimiser because it is a decision about the whole vector: whoever holds a part of it (a tensor, a shard
on another rank) must know the norm of all of it, or the clipped gradient points elsewhere.

    P  number of parameters         S  shards, numbered within 0..P-1         p  ``norm_type``

Names: ``norm_type`` and ``max_norm`` are PyTorch's. Twin of `clipping_jax`: same names, same order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Clipped(NamedTuple):
    """What clipping returns.

    Attributes:
        clipped: [P] the gradient, scaled down if it was too long.
        total_norm: [] its norm before that, which is what one logs.
    """

    clipped: Tensor
    total_norm: Tensor


def vector_norm(values: Tensor, norm_type: float) -> Tensor:
    """``(sum_i |x_i|^p)^(1/p)``, and ``max_i |x_i|`` for p = inf; 0 of nothing.

    Args:
        values: [N] x.
        norm_type: p, at least 1.

    Returns:
        [] the norm.
    """
    return torch.linalg.vector_norm(values, norm_type) if len(values) else values.sum()


def shard_norms(gradients: Tensor, shard: Tensor, norm_type: float) -> Tensor:
    """What each rank computes of its own shard, before anything is exchanged.

    Args:
        gradients: [P] g.
        shard: [P] the number of the shard that holds each entry, in 0..P-1.
        norm_type: p.

    Returns:
        [P] the norm of shard s at place s; 0 where no shard has that number.
    """
    sizes, zeros = gradients.abs(), torch.zeros_like(gradients)  # [P]
    if math.isinf(norm_type):
        return zeros.scatter_reduce(0, shard, sizes, "amax")  # [P]
    return zeros.index_add(0, shard, sizes**norm_type) ** (1 / norm_type)  # [P]


def total_norm(shard_norms: Tensor, norm_type: float) -> Tensor:
    """The norm of the whole: the norm of the shards' norms, of the same p.

    ``(sum_s (sum_{i in s} |g_i|^p)^(p/p))^(1/p)``: the inner root and power cancel. Neither the sum of the norms nor
    their mean is a norm of the whole.

    Args:
        shard_norms: [S].
        norm_type: p.

    Returns:
        [] the global norm.
    """
    return vector_norm(shard_norms, norm_type)


def clip_coefficient(total_norm: Tensor, max_norm: float, eps: float) -> Tensor:
    """``min(1, c / (norm + eps))``: never more than 1, so that a short gradient is left as it is.

    Args:
        total_norm: [].
        max_norm: c, the longest that the result may be.
        eps: keeps the quotient finite for a gradient of 0; where it is 0 too, the minimum does.

    Returns:
        [] the factor.

    Source: Pascanu et al., On the difficulty of training recurrent neural networks, arXiv 1211.5063, algorithm 1, whose
    eps is 0; torch:torch.nn.utils.clip_grad._clip_grads_with_norm_.
    """
    return (max_norm / (total_norm + eps)).clamp(max=1)


def scale(gradients: Tensor, coefficient: Tensor) -> Tensor:
    """Every entry of the gradient [P], on whichever shard, by the same factor []: its direction stays."""
    return gradients * coefficient


def clip_gradients(gradients: Tensor, shard: Tensor, max_norm: float, norm_type: float, eps: float) -> Clipped:
    """Scale the gradient down to norm ``max_norm`` where it is longer.

    Args:
        gradients: [P] g.
        shard: [P] where each entry lies; the result does not depend on it.
        max_norm: as in `clip_coefficient`.
        norm_type: p.
        eps: as in `clip_coefficient`.

    Returns:
        `Clipped`. No gradient passes, as in PyTorch: this happens between the backward pass and the step.

    Source: torch:torch.nn.utils.clip_grad.clip_grad_norm_.
    """
    gradients = gradients.detach()
    total = total_norm(shard_norms(gradients, shard, norm_type), norm_type)
    return Clipped(scale(gradients, clip_coefficient(total, max_norm, eps)), total)
