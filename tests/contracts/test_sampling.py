"""The same cases every time, and the smallest one that tells two computations apart."""

import numpy as np

from annotator.contracts.sampling import draw, size, witness
from tests.contracts import toy


def _same(one, two):
    return (
        all(np.array_equal(one.inputs[n], two.inputs[n], equal_nan=True) for n in one.inputs) and one.knobs == two.knobs
    )


def test_draws_are_the_same_every_time():
    first, second = (draw(toy.contract(), 20) for _ in range(2))
    assert len(first) == 22
    assert all(map(_same, first, second))
    assert not _same(first[5], first[15])


def test_edges_come_first():
    assert [case.label for case in draw(toy.contract(), 3)] == ["nothing kept", "NaN under the mask", "", "", ""]


def test_a_witness_is_shrunk():
    def differs(case):
        return case.inputs["mask"].shape[1] >= 3 and case.inputs["values"].max() > 10

    found = witness(toy.contract(), differs)
    assert found.inputs["values"].shape == (1, 3)
    assert found.inputs["values"].max() == 11.0
    assert _same(found, witness(toy.contract(), differs))


def test_a_witness_is_found_among_the_edges():
    found = witness(toy.contract(), lambda case: bool(np.isnan(case.inputs["values"]).any()))
    assert found.label == "NaN under the mask"


def test_no_witness():
    assert witness(toy.contract(), lambda case: False) is None


def test_the_budget_is_kept_and_what_was_seen_is_returned():
    calls = []

    def differs(case):
        calls.append(case)
        return case.inputs["values"].size > 2

    found = witness(toy.contract(), differs, budget=15)
    assert len(calls) <= 15
    assert found.inputs["values"].size > 2


def test_size_orders_cases():
    small, large = draw(toy.contract(), 0)[0], toy.Case({"values": np.zeros((4, 4)), "mask": np.ones((4, 4))})
    assert size(small) < size(large)
