"""The terminal reward from scratch: what must hold of it, in both twins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

SCORES = np.array([1.0, -0.5, 2.0])
RAGGED = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)
HOLES = np.array([[1, 0, 1, 0], [1, 1, 0, 1], [0, 1, 0, 0]], dtype=bool)


@pytest.fixture(params=FRAMEWORKS)
def reward(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.terminal_reward", request.param)


@pytest.mark.parametrize(
    ("mask", "place", "columns"),
    [
        (RAGGED, "count", [3, 1, 0]),
        (RAGGED, "last", [3, 1, 0]),
        (HOLES, "count", [1, 2, 0]),
        (HOLES, "last", [2, 3, 1]),
        (RAGGED[:, ::-1], "last", [3, 3, 3]),
        (RAGGED & False, "count", [3, 3, 3]),
        (RAGGED & False, "last", [0, 0, 0]),
    ],
)
def test_the_last_place(reward: Twin, mask: np.ndarray, place: str, columns: list[int]) -> None:
    np.testing.assert_array_equal(reward("last_places", np.ascontiguousarray(mask), place=place), columns)


def test_the_score_lands_there_and_nowhere_else(reward: Twin) -> None:
    found = reward("terminal_rewards", SCORES, RAGGED)
    np.testing.assert_array_equal(found, [[0, 0, 0, 1], [0, -0.5, 0, 0], [2, 0, 0, 0]])
    np.testing.assert_array_equal(found[~RAGGED], 0)


def test_more_padding_moves_nothing(reward: Twin) -> None:
    longer = np.pad(RAGGED, ((0, 0), (0, 3)))
    np.testing.assert_array_equal(
        reward("terminal_rewards", SCORES, longer)[:, :4], reward("terminal_rewards", SCORES, RAGGED)
    )


def test_a_reward_on_the_first_pad_is_lost_to_rewards_to_go(reward: Twin) -> None:
    """What the place is for: ReMax's sums leave masked slots out, and so do the losses of all methods."""
    framework = "torch" if "torch" in reward.module.__name__ else "jax"
    remax = twin("post_training.remax", framework)
    right = reward("terminal_rewards", SCORES, RAGGED)
    late = np.roll(right, 1, axis=1)
    assert remax("rewards_to_go", right, RAGGED)[1, 0] == -0.5
    assert remax("rewards_to_go", late, RAGGED)[1, 0] == 0


def test_jax_compiles() -> None:
    import jax

    from minimal.post_training import terminal_reward_jax

    compiled = jax.jit(terminal_reward_jax.terminal_rewards, static_argnames="place")
    for place in ("count", "last"):
        found = compiled(SCORES, RAGGED, place=place)
        np.testing.assert_array_equal(found, terminal_reward_jax.terminal_rewards(SCORES, RAGGED, place=place))
