"""Clipping from scratch: what must hold of any clipping by the global norm, in both twins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

GRADIENT = np.array([3.0, -1.0, 2.0, -4.0, 0.5])
SHARD = np.array([0, 0, 2, 2, 4])
PAPER = {"max_norm": 1.0, "norm_type": 2.0, "eps": 0.0}
NORMS = (1.0, 2.0, 3.0, math.inf)


@pytest.fixture(params=FRAMEWORKS)
def clipping(request: pytest.FixtureRequest) -> Twin:
    return twin("framework.clipping", request.param)


def test_by_hand(clipping: Twin) -> None:
    clipped, total = clipping("clip_gradients", [3.0, 4.0], [0, 1], max_norm=1.0, norm_type=2.0, eps=0.0)
    np.testing.assert_allclose(clipped, [0.6, 0.8])
    assert total == 5


@pytest.mark.parametrize("norm_type", NORMS)
def test_a_long_gradient_gets_the_norm_and_keeps_its_direction(clipping: Twin, norm_type: float) -> None:
    clipped, total = clipping("clip_gradients", GRADIENT, SHARD, **{**PAPER, "norm_type": norm_type})
    assert np.linalg.norm(clipped, norm_type) == pytest.approx(1)
    assert total == pytest.approx(np.linalg.norm(GRADIENT, norm_type))
    np.testing.assert_allclose(clipped * total, GRADIENT)


@pytest.mark.parametrize("norm_type", NORMS)
def test_a_short_one_is_left_as_it_is(clipping: Twin, norm_type: float) -> None:
    short = GRADIENT / 64
    clipped, _ = clipping("clip_gradients", short, SHARD, **{**PAPER, "norm_type": norm_type})
    np.testing.assert_array_equal(clipped, short)
    stretched = short / np.linalg.norm(short, norm_type)
    assert not np.allclose(clipped, stretched)


@pytest.mark.parametrize("norm_type", NORMS)
def test_the_cut_does_not_matter(clipping: Twin, norm_type: float) -> None:
    cuts = ([0] * 5, [0, 1, 2, 3, 4], [4, 4, 1, 0, 0])
    results = [clipping("clip_gradients", GRADIENT, cut, **{**PAPER, "norm_type": norm_type}) for cut in cuts]
    for clipped, total in results:
        np.testing.assert_allclose(clipped, results[0][0])
        np.testing.assert_allclose(total, results[0][1])


def test_norms_of_shards_are_not_added(clipping: Twin) -> None:
    norms = clipping("shard_norms", GRADIENT, SHARD, 2.0)
    np.testing.assert_allclose(norms, [math.sqrt(10), 0, math.sqrt(20), 0, 0.5])
    assert clipping("total_norm", norms, 2.0) == pytest.approx(np.linalg.norm(GRADIENT))
    assert norms.sum() > 1.3 * np.linalg.norm(GRADIENT)


def test_shards_clipped_alone_point_elsewhere(clipping: Twin) -> None:
    """What goes wrong with the local norm: the whole is no longer parallel to the gradient."""
    whole, _ = clipping("clip_gradients", GRADIENT, SHARD, **PAPER)
    alone = np.concatenate(
        [clipping("clip_gradients", part, [0] * len(part), **PAPER)[0] for part in (GRADIENT[:2], GRADIENT[2:])]
    )
    unit = GRADIENT / np.linalg.norm(GRADIENT)
    assert whole @ unit / np.linalg.norm(whole) == pytest.approx(1)
    assert alone @ unit / np.linalg.norm(alone) < 0.99


@pytest.mark.parametrize(
    ("norm", "eps", "expected"),
    [(2.0, 0.0, 0.5), (0.5, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.5), (0.0, 0.0, 1.0), (math.inf, 0.0, 0.0)],
)
def test_the_factor(clipping: Twin, norm: float, eps: float, expected: float) -> None:
    assert clipping("clip_coefficient", norm, 1.0, eps) == expected


def test_nothing_and_not_a_number(clipping: Twin) -> None:
    clipped, total = clipping("clip_gradients", np.zeros(0), np.zeros(0, dtype=int), **PAPER)
    assert clipped.shape == (0,)
    assert total == 0
    clipped, total = clipping("clip_gradients", [1.0, math.nan], [0, 1], **PAPER)
    assert np.isnan(clipped).all()
    assert np.isnan(total)


def test_no_gradient_passes() -> None:
    import torch

    from minimal.framework import clipping_torch

    gradient = torch.tensor(GRADIENT, requires_grad=True)
    assert not clipping_torch.clip_gradients(gradient, torch.tensor(SHARD), **PAPER).clipped.requires_grad
    assert clipping_torch.scale(gradient, torch.tensor(0.5)).requires_grad


def test_jax_compiles_with_every_knob_traced() -> None:
    import jax
    import jax.numpy as jnp

    from minimal.framework import clipping_jax

    compiled = jax.jit(clipping_jax.clip_gradients)
    for norm_type in NORMS:
        given = (jnp.asarray(GRADIENT), jnp.asarray(SHARD), 1.0, norm_type, 1e-6)
        np.testing.assert_allclose(compiled(*given).clipped, clipping_jax.clip_gradients(*given).clipped, rtol=1e-6)
    assert compiled._cache_size() == 1
