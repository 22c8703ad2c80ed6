"""The rejection test in numbers that can be done by hand, torch and JAX alike."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, twin

P, Q = np.array([0.5, 0.25, 0.25, 0.0]), np.array([0.25, 0.5, 0.125, 0.125])


@pytest.fixture(params=FRAMEWORKS)
def rejection(request):
    pytest.importorskip(request.param)
    return twin("serving.rejection", request.param)


def rows(array, count):
    return np.tile(array, (count, 1, 1))


@pytest.mark.parametrize(("drafted", "expected"), [(0, 1.0), (1, 0.5), (2, 1.0), (3, 0.0)])
def test_a_draft_stands_with_the_ratio(rejection, drafted, expected):
    found = rejection("acceptance", rows(P, 1), rows(Q, 1), [[drafted]], [1])
    assert found.tolist() == [[expected]]


def test_padding_stands_and_what_cannot_be_drawn_does_not(rejection):
    never = rows(np.array([0.0, 1.0, 0.0, 0.0]), 2)
    assert rejection("acceptance", rows(P, 2), never, [[0], [0]], [1, 0]).tolist() == [[0.0], [1.0]]


def test_the_residual_is_what_the_target_has_more(rejection):
    assert rejection("residual", rows(P, 1), rows(Q, 1))[0, 0].tolist() == pytest.approx([2 / 3, 0, 1 / 3, 0])
    assert rejection("residual", rows(P, 1), rows(P, 1))[0, 0].tolist() == P.tolist()


def test_whatever_the_draft_the_token_is_distributed_as_the_target(rejection):
    accept = rejection("acceptance", rows(P, 4), rows(Q, 4), np.arange(4)[:, None], [1] * 4)
    recovered = rejection("residual", rows(P, 4), rows(Q, 4))[:, 0]
    law = np.diag(accept[:, 0]) + (1 - accept) * recovered
    np.testing.assert_allclose(Q @ law, P, atol=1e-15)
    careless = np.diag(P) + (1 - P[:, None]) * recovered  # the draft's probabilities ignored
    assert np.abs(Q @ careless - P).max() > 0.1


def test_outcomes_are_a_run_and_a_replacement(rejection):
    accept, recovered = np.array([[0.5, 0.25]]), np.array([[[1.0, 0.0], [0.25, 0.75]]])
    law = rejection("outcome_probabilities", accept, recovered)
    np.testing.assert_allclose(law, [[0.5, 0.0, 0.09375, 0.28125, 0.125]])
    assert law.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("uniform", "lengths", "expected"),
    [([0.4, 0.2], 2, 2), ([0.4, 0.3], 2, 1), ([0.6, 0.2], 2, 0), ([0.6, 0.2], 0, 0), ([0.5, 0.25], 2, 2)],
)
def test_all_after_the_first_that_falls_is_thrown_away(rejection, uniform, lengths, expected):
    accept = np.where(np.arange(2) < lengths, [[0.5, 0.25]], 1.0)
    assert rejection("accepted_drafts", accept, [uniform], [lengths]).tolist() == [expected]


def test_the_first_clock_to_ring_is_drawn(rejection):
    found = rejection("recovered_tokens", [[[0.75, 0.25, 0.0]]], [[3.5, 1.0, 0.001]])
    assert found.tolist() == [[1]]
    assert rejection("recovered_tokens", [[[0.75, 0.25, 0.0]]], [[2.5, 1.0, 0.001]]).tolist() == [[0]]


def test_tokens_of_every_kind_of_step(rejection):
    logits = np.log(np.tile(np.maximum(P, 1e-300), (4, 2, 1)))
    tokens, law = rejection(
        "rejection_sample",
        logits,
        np.tile(Q, (4, 2, 1)),
        np.array([[0, 1], [1, 0], [0, 3], [1, 1]]),
        np.array([2, 2, 1, 0]),
        np.array([3, 3, 3, 2]),
        np.array([False, False, False, True]),
        np.array([[0.9, 0.4], [0.9, 0.1], [0.9, 0.9], [0.1, 0.1]]),
        np.full((4, 4), 1.0),
    )
    assert tokens.tolist() == [[0, 1, 3], [0, -1, -1], [0, 3, -1], [2, -1, -1]]
    np.testing.assert_allclose(law.sum(axis=1), 1)
    assert law[3].tolist() == [0] * 8 + [1]


def test_a_greedy_row_stands_where_it_is_the_likeliest(rejection):
    logits, q = np.log([[[0.5, 0.3, 0.2]]] * 2), np.full((2, 1, 3), 1 / 3)
    given = (np.array([1, 1]), np.array([2, 2]), np.array([True, True]), np.full((2, 1), 0.99), np.ones((2, 3)))
    tokens, law = rejection("rejection_sample", logits, q, np.array([[0], [2]]), *given)
    assert tokens.tolist() == [[0, 2], [0, -1]]
    assert law.tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]


def test_tokens_tell_the_outcome(rejection):
    tokens = np.array([[2, -1, -1], [0, 1, -1], [0, 1, 2], [1, -1, -1]])
    assert rejection("outcomes", tokens, np.array([2, 2, 2, 0]), vocabulary=3).tolist() == [2, 4, 6, 6]
