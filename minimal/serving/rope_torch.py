"""Rotary position embedding: each pair of coordinates of a head is turned by an angle that grows with the position.

Apart from attention because it acts on queries and keys alone, and because two conventions of what a pair is are in
use that look the same in shape, agree at position 0 and do not mix: weights are made for one of them.

    T  tokens    H  heads    D  size of a head    R  coordinates that are turned, R <= D    i = 0..R/2-1  a pair

Names of the paper: m the position, theta_i = base^(-2i/R) the frequency of pair i. ``is_neox_style`` is vLLM's name:
halves (x_i, x_{i+R/2}), else neighbours (x_{2i}, x_{2i+1}), as GPT-J has them. Twin of `rope_jax`: same names, same
order.
"""

from __future__ import annotations

import torch
from torch import Tensor


def frequencies(base: float, rotary_dim: int, like: Tensor) -> Tensor:
    """``theta_i = base^(-2i/R)``: from one radian a token down to nearly 1/base.

    Args:
        base: 10000 in the paper; larger for longer contexts.
        rotary_dim: R, even.
        like: gives the device, and the dtype unless that is narrower than float32.

    Returns:
        [R/2] radians a token.

    Source: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2.
    """
    wide = torch.promote_types(like.dtype, torch.float32)
    even = torch.arange(0, rotary_dim, 2, dtype=wide, device=like.device)  # [R/2], 2i
    return 1 / base ** (even / rotary_dim)


def angles(positions: Tensor, frequencies: Tensor) -> Tensor:
    """``m theta_i``, in no less than float32: not every position above 256 is a bfloat16 number.

    Args:
        positions: [T] m, counted from 0.
        frequencies: [R/2].

    Returns:
        [T, R/2] radians.
    """
    return positions[:, None] * frequencies  # [T, R/2]


def split_pairs(turned: Tensor, is_neox_style: bool) -> tuple[Tensor, Tensor]:
    """First and second coordinate of every pair.

    Args:
        turned: [..., R].
        is_neox_style: halves; else neighbours.

    Returns:
        Two of [..., R/2].
    """
    if is_neox_style:
        half = turned.shape[-1] // 2
        return turned[..., :half], turned[..., half:]
    return turned[..., ::2], turned[..., 1::2]


def join_pairs(first: Tensor, second: Tensor, is_neox_style: bool) -> Tensor:
    """The inverse of `split_pairs`: two of [..., R/2] back to [..., R], every coordinate where it was."""
    if is_neox_style:
        return torch.cat((first, second), dim=-1)
    return torch.stack((first, second), dim=-1).flatten(-2)


def rotate(heads: Tensor, angles: Tensor, is_neox_style: bool) -> Tensor:
    """Turns each pair by its angle and passes on what lies beyond them.

    ``(x, y) -> (x cos - y sin, y cos + x sin)``, a rotation: lengths stay, and the product of a query at m and a key at
    n depends on m - n alone.

    Args:
        heads: [T, H, D] queries or keys; the first R = 2 * angles.shape[-1] coordinates turn.
        angles: [T, R/2], the same for every head.
        is_neox_style: halves; else neighbours.

    Returns:
        [T, H, D].

    Source: RoFormer, arXiv 2104.09864, equation 34;
    vllm:vllm.model_executor.layers.rotary_embedding.common.ApplyRotaryEmb.
    """
    size = 2 * angles.shape[-1]
    cos, sin = angles.cos()[:, None].to(heads), angles.sin()[:, None].to(heads)  # [T, 1, R/2]
    x, y = split_pairs(heads[..., :size], is_neox_style)  # [T, H, R/2] each
    turned = join_pairs(x * cos - y * sin, y * cos + x * sin, is_neox_style)  # [T, H, R]
    return torch.cat((turned, heads[..., size:]), dim=-1)


def rope(
    positions: Tensor, query: Tensor, key: Tensor, base: float, rotary_dim: int | None, is_neox_style: bool
) -> tuple[Tensor, Tensor]:
    """Queries and keys, turned by their positions.

    Args:
        positions: [T] counted from 0.
        query: [T, H, D].
        key: [T, K, D]; there may be fewer heads of keys.
        base: of the frequencies.
        rotary_dim: R; None for the whole head.
        is_neox_style: halves; else neighbours.

    Returns:
        Rotated query [T, H, D] and key [T, K, D].
    """
    size = query.shape[-1] if rotary_dim is None else rotary_dim
    turn = angles(positions, frequencies(base, size, query))  # [T, R/2]
    return rotate(query, turn, is_neox_style), rotate(key, turn, is_neox_style)
