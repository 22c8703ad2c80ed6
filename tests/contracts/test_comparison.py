"""What counts as equal."""

import numpy as np
import pytest

from annotator.contracts.comparison import bound, error, errors, first_difference, split
from annotator.contracts.running import ROUNDOFF, Result
from tests.contracts import toy

NAN, INF = float("nan"), float("inf")

ERRORS = [
    ([1.0, 2.0], [1.0, 2.0], 0.0),
    ([1.0, 2.5], [1.0, 2.0], 0.25),
    ([-INF, 2.0], [-INF, 2.0], 0.0),
    ([INF, 2.0], [-INF, 2.0], INF),
    ([NAN, 2.0], [NAN, 2.0], 0.0),
    ([NAN, 2.0], [1.0, 2.0], INF),
    ([1.0, 2.0], [NAN, 2.0], INF),
    ([1.0], [1.0, 2.0], INF),
    ([0.0], [0.0], 0.0),
    ([1e-30], [0.0], INF),
    ([], [], 0.0),
    ([1e308, -1e308], [-1e308, 1e308], INF),
]


@pytest.mark.parametrize(("found", "expected", "wanted"), ERRORS)
def test_error(found, expected, wanted):
    assert error(np.array(found), np.array(expected)) == wanted


def test_exact_outputs_have_no_almost():
    assert error(np.array([1, 2]), np.array([1, 2]), exact=True) == 0
    assert error(np.array([1.0, 2.0]), np.array([1.0, np.nextafter(2.0, 3.0)]), exact=True) == INF
    assert error(np.array([True, True]), np.array([True, False]), exact=True) == INF


def test_a_residue_is_measured_against_what_rounding_the_inputs_does():
    assert error(np.array([1e-17]), np.array([0.0])) == INF
    assert error(np.array([1e-17]), np.array([0.0]), condition=1.0) == 1e-17
    assert error(np.array([1.0]), np.array([3.0]), condition=1.0) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("dtype", "reference", "wanted"), [("float64", 1.0, 1e-10), ("float32", 1e-5, 2e-5)])
def test_bound(dtype, reference, wanted):
    assert bound(dtype, reference) == wanted


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_bound_leaves_room_for_rounding_the_result(dtype):
    assert bound(dtype, 0.0) == 2 * ROUNDOFF[dtype]


def test_errors_name_outputs_and_gradients():
    one = Result({"mean": np.array([1.0]), "kept": np.array([1])}, {"values": np.array([2.0])})
    two = Result({"mean": np.array([2.0]), "kept": np.array([1])}, {"values": np.array([4.0])})
    assert errors(toy.contract(), one, two) == {"mean": 0.5, "kept": 0.0, "gradient of values": 0.5}
    assert split({"mean": 0.25, "gradient of values": 0.5}) == (0.25, 0.5)


DIFFERENCES = [
    ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]], None),
    ([[1.0, 2.0], [3.0, 4.5]], [[1.0, 2.0], [3.0, 4.0]], (1, 1)),
    ([[NAN, 2.0], [3.0, 4.5]], [[1.0, 2.0], [3.0, 4.0]], (0, 0)),
    ([[-INF, 2.0]], [[-INF, 3.0]], (0, 1)),
    ([1.0], [1.0, 2.0], None),
]


@pytest.mark.parametrize(("found", "expected", "index"), DIFFERENCES)
def test_first_difference(found, expected, index):
    assert first_difference(np.array(found), np.array(expected), 1e-10) == index
