"""Rotary embedding from scratch: what must hold of any rotation by position, in both twins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

RANDOM = np.random.default_rng(0)
QUERY, KEY = RANDOM.standard_normal((3, 2, 8)), RANDOM.standard_normal((3, 1, 8))
PLAIN = {"base": 10000.0, "rotary_dim": None, "is_neox_style": True}
STYLES = [True, False]


@pytest.fixture(params=FRAMEWORKS)
def rope(request: pytest.FixtureRequest) -> Twin:
    return twin("serving.rope", request.param)


def scores(rope: Twin, positions: list[int], **options: object) -> np.ndarray:
    query, key = rope("rope", positions, QUERY, KEY, **{**PLAIN, **options})
    return np.einsum("thd,skd->tshk", query, key)


@pytest.mark.parametrize(("neox", "second"), [(True, 2), (False, 1)])
def test_a_pair_turns_by_a_radian_a_token(rope: Twin, neox: bool, second: int) -> None:
    """The first coordinate's partner is half a head away, or its neighbour; the first pair's frequency is 1."""
    unit = np.zeros((1, 1, 4))
    unit[..., 0] = 1
    turned, _ = rope("rope", [3], unit, unit, **{**PLAIN, "is_neox_style": neox})
    expected = np.zeros(4)
    expected[[0, second]] = math.cos(3), math.sin(3)
    np.testing.assert_allclose(turned[0, 0], expected, atol=1e-15)


def test_frequencies_fall_from_one_to_nearly_one_over_base(rope: Twin) -> None:
    with rope.wide():
        theta = np.asarray(rope.module.frequencies(10000.0, 8, rope.array(QUERY)))
    np.testing.assert_allclose(theta, [1, 0.1, 0.01, 0.001])


@pytest.mark.parametrize("neox", STYLES)
def test_nothing_turns_at_position_0(rope: Twin, neox: bool) -> None:
    query, key = rope("rope", [0, 0, 0], QUERY, KEY, **{**PLAIN, "is_neox_style": neox})
    np.testing.assert_array_equal(query, QUERY)
    np.testing.assert_array_equal(key, KEY)


@pytest.mark.parametrize("neox", STYLES)
def test_products_depend_on_the_difference_of_positions(rope: Twin, neox: bool) -> None:
    here = scores(rope, [4, 9, 2], is_neox_style=neox)
    np.testing.assert_allclose(scores(rope, [104, 109, 102], is_neox_style=neox), here, atol=1e-12)
    assert np.abs(scores(rope, [104, 110, 102], is_neox_style=neox) - here).max() > 0.1


@pytest.mark.parametrize("neox", STYLES)
def test_lengths_stay(rope: Twin, neox: bool) -> None:
    query, _ = rope("rope", [4, 9, 2], QUERY, KEY, **{**PLAIN, "is_neox_style": neox})
    np.testing.assert_allclose(np.linalg.norm(query, axis=-1), np.linalg.norm(QUERY, axis=-1))
    assert not np.allclose(query, QUERY)


def test_the_conventions_differ_by_an_order_of_coordinates(rope: Twin) -> None:
    """Why weights can be converted: what halves do to permuted coordinates, neighbours do to the plain ones."""
    order = np.arange(8).reshape(2, 4).T.ravel()  # 0 4 1 5 2 6 3 7
    halves, _ = rope("rope", [1, 2, 3], QUERY, KEY, **PLAIN)
    neighbours, _ = rope("rope", [1, 2, 3], QUERY[..., order], KEY, **{**PLAIN, "is_neox_style": False})
    np.testing.assert_allclose(neighbours, halves[..., order])
    unordered, _ = rope("rope", [1, 2, 3], QUERY, KEY, **{**PLAIN, "is_neox_style": False})
    assert not np.allclose(unordered, halves)


@pytest.mark.parametrize("neox", STYLES)
def test_the_rest_of_a_head_is_passed_through(rope: Twin, neox: bool) -> None:
    query, _ = rope("rope", [1, 2, 3], QUERY, KEY, **{**PLAIN, "rotary_dim": 4, "is_neox_style": neox})
    np.testing.assert_array_equal(query[..., 4:], QUERY[..., 4:])
    alone, _ = rope("rope", [1, 2, 3], QUERY[..., :4], KEY[..., :4], **{**PLAIN, "is_neox_style": neox})
    np.testing.assert_allclose(query[..., :4], alone)


@pytest.mark.parametrize("neox", STYLES)
def test_pairs_are_joined_as_they_were_split(rope: Twin, neox: bool) -> None:
    first, second = rope("split_pairs", QUERY, neox)
    np.testing.assert_array_equal(rope("join_pairs", first, second, is_neox_style=neox), QUERY)
    assert not np.array_equal(rope("join_pairs", first, second, is_neox_style=not neox), QUERY)


def test_narrow_heads_turn_by_angles_in_float32() -> None:
    """bfloat16 has no 257: the angle would be a radian off."""
    import torch

    from minimal.serving import rope_torch

    heads = torch.ones(1, 1, 4, dtype=torch.bfloat16)
    turned, _ = rope_torch.rope(torch.tensor([257]), heads, heads, 10000.0, None, True)
    assert turned.dtype == torch.bfloat16
    assert turned[0, 0, 0].item() == pytest.approx(math.cos(257) - math.sin(257), abs=0.01)
    assert rope_torch.frequencies(10000.0, 4, heads).dtype == torch.float32


def test_jax_compiles_with_the_base_traced() -> None:
    import jax
    import jax.numpy as jnp

    from minimal.serving import rope_jax

    compiled = jax.jit(rope_jax.rope, static_argnames=("rotary_dim", "is_neox_style"))
    given = (jnp.asarray([1, 2, 3]), jnp.asarray(QUERY), jnp.asarray(KEY))
    for base in (10000.0, 500000.0):
        found = compiled(*given, base, rotary_dim=None, is_neox_style=True)[0]
        expected = rope_jax.rope(*given, base, None, True)[0]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert compiled._cache_size() == 1
