"""Loss aggregation from scratch: who weighs how much, and that micro-batches add up, in both twins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

LOSSES = np.array([[1.0, 3.0, 7.0, 7.0], [2.0, 4.0, 6.0, 8.0]])
MASK = np.array([[True, True, False, False], [True, True, True, True]])
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


@pytest.fixture(params=FRAMEWORKS)
def aggregation(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.aggregation", request.param)


def whole(aggregation: Twin, losses: np.ndarray, mask: np.ndarray, mode: str, ranks: int = 1, **knobs: float) -> float:
    """The loss with the counts of `LOSSES` as a whole batch."""
    return float(aggregation("aggregate", losses, mask, 6, 2, ranks, aggregation=mode, **knobs))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 24 / 6),
        ("token-sum", 24),
        ("seq-mean-token-sum", (4 + 20) / 2),
        ("seq-mean-token-sum-norm", (4 + 20) / 2 / 8),
        ("seq-mean-token-mean", (2 + 5) / 2),
    ],
)
def test_by_hand(aggregation: Twin, mode: str, expected: float) -> None:
    assert whole(aggregation, LOSSES, MASK, mode, horizon=8.0) == pytest.approx(expected)


@pytest.mark.parametrize("mode", MODES)
def test_micro_batches_add_up(aggregation: Twin, mode: str) -> None:
    parts = [whole(aggregation, LOSSES[i : i + 1], MASK[i : i + 1], mode) for i in (0, 1)]
    assert sum(parts) == pytest.approx(whole(aggregation, LOSSES, MASK, mode))


def test_a_mean_of_micro_batch_means_is_another_one(aggregation: Twin) -> None:
    """The negative control: each micro-batch is divided by its own tokens."""
    means = []
    for i in (0, 1):
        counts = aggregation("local_counts", MASK[i : i + 1])
        means.append(float(aggregation("aggregate", LOSSES[i : i + 1], MASK[i : i + 1], *counts, 1)))
    assert means == pytest.approx([2, 5])
    assert whole(aggregation, LOSSES, MASK, "token-mean") == pytest.approx(4)


@pytest.mark.parametrize("mode", MODES)
def test_ranks_are_averaged_afterwards(aggregation: Twin, mode: str) -> None:
    ranks = [whole(aggregation, LOSSES[i : i + 1], MASK[i : i + 1], mode, ranks=2) for i in (0, 1)]
    assert np.mean(ranks) == pytest.approx(whole(aggregation, LOSSES, MASK, mode))


@pytest.mark.parametrize("mode", MODES)
def test_padding_does_not_matter(aggregation: Twin, mode: str) -> None:
    wider = np.pad(LOSSES, ((0, 0), (0, 3)), constant_values=np.nan), np.pad(MASK, ((0, 0), (0, 3)))
    assert whole(aggregation, *wider, mode) == pytest.approx(whole(aggregation, LOSSES, MASK, mode))
    everything = whole(aggregation, LOSSES, np.ones_like(MASK), mode)
    assert everything != pytest.approx(whole(aggregation, LOSSES, MASK, mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_response_without_tokens_adds_nothing(aggregation: Twin, mode: str) -> None:
    more = np.vstack([LOSSES, [[9.0] * 4]]), np.vstack([MASK, [[False] * 4]])
    assert whole(aggregation, *more, mode) == pytest.approx(whole(aggregation, LOSSES, MASK, mode))


def test_equal_lengths_make_the_two_means_one(aggregation: Twin) -> None:
    full = np.ones_like(MASK)
    counts = aggregation("local_counts", full)
    means = [
        float(aggregation("aggregate", LOSSES, full, *counts, 1, aggregation=mode)) for mode in (MODES[0], MODES[4])
    ]
    assert means[0] == pytest.approx(means[1])
    assert whole(aggregation, LOSSES, MASK, MODES[0]) != pytest.approx(whole(aggregation, LOSSES, MASK, MODES[4]))


def test_counts(aggregation: Twin) -> None:
    mask = np.vstack([MASK, [[False] * 4]])
    assert [int(count) for count in aggregation("local_counts", mask)] == [6, 2]
