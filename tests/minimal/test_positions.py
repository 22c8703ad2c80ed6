"""Position ids from scratch: masks written out with their answers, in both twins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin


@pytest.fixture(params=FRAMEWORKS)
def positions(request: pytest.FixtureRequest) -> Twin:
    return twin("serving.positions", request.param)


def mask(*rows: str) -> np.ndarray:
    return np.array([[slot == "x" for slot in row] for row in rows])


@pytest.mark.parametrize(
    ("row", "padding", "expected"),
    [
        ("xxxx", "held", [0, 1, 2, 3]),
        ("..xx", "held", [0, 0, 0, 1]),
        ("..xx", "next", [0, 0, 0, 1]),
        ("..xx", "one", [1, 1, 0, 1]),
        ("..xx", "zero", [0, 0, 0, 1]),
        ("xxx.", "held", [0, 1, 2, 2]),
        ("xxx.", "next", [0, 1, 2, 3]),
        ("xxx.", "one", [0, 1, 2, 1]),
        ("xxx.", "zero", [0, 1, 2, 0]),
        ("x..x", "held", [0, 0, 0, 1]),
        ("....", "held", [0, 0, 0, 0]),
    ],
)
def test_by_hand(positions: Twin, row: str, padding: str, expected: list[int]) -> None:
    assert positions("position_ids", mask(row), padding=padding).tolist() == [expected]


def test_a_text_has_the_same_positions_wherever_its_padding_lies(positions: Twin) -> None:
    left, right = (positions("position_ids", mask(row))[0] for row in ("...xxx", "xxx..."))
    np.testing.assert_array_equal(left[3:], right[:3])
    assert (np.arange(6)[3:] != right[:3]).all()  # negative control: slots are no positions


@pytest.mark.parametrize(("row", "expected"), [("..xx", 2), ("xx..", 2), ("xxxx", 4), ("....", 0)])
def test_the_next_position_is_the_number_of_tokens(positions: Twin, row: str, expected: int) -> None:
    assert positions("next_position", mask(row)).tolist() == [expected]


@pytest.mark.parametrize("padding", ["held", "next", "one", "zero"])
def test_the_last_position_plus_one_is_not_the_next_position(positions: Twin, padding: str) -> None:
    """It is for text that ends at the last slot, and for a short one only where padding holds the last position."""
    full, short = mask("..xx"), mask("xxx.")
    assert positions("position_ids", full, padding=padding)[0, -1] + 1 == positions("next_position", full)[0]
    same = positions("position_ids", short, padding=padding)[0, -1] + 1 == positions("next_position", short)[0]
    assert bool(same) is (padding == "held")


def test_more_tokens_than_eight_bits_count(positions: Twin) -> None:
    assert positions("position_ids", np.ones((1, 300), dtype=bool))[0, -1] == 299


def test_jax_compiles() -> None:
    import jax

    from minimal.serving import positions_jax

    compiled = jax.jit(positions_jax.position_ids, static_argnames="padding")
    assert compiled(jax.numpy.asarray(mask(".xx")), padding="one").tolist() == [[1, 0, 1]]
