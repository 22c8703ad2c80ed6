"""bfloat16 and float16: bounds that the reference sets, and findings instead of crashes where it cannot."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from annotator.contracts import Case, conform
from annotator.contracts.model import LOW
from annotator.contracts.running import ROUNDOFF, fits
from tests.contracts import toy

pytestmark = pytest.mark.slow

MINE = dataclasses.replace(toy.MINIMAL[0], name="mine", backend="torch", call=toy.mean_torch)


def found(*implementations, dtypes=LOW, **changes):
    made = toy.contract(implementations=implementations, **changes)
    return {(item.implementation, item.dtype): item for item in conform(made, dtypes=dtypes, examples=5)}


@pytest.mark.parametrize("dtype", LOW)
def test_right_implementations_pass_within_twice_the_references_error(dtype):
    seen = found(toy.REFERENCE, MINE, toy.MINIMAL[0])
    assert all(item.passed for item in seen.values())
    own = seen["ref", dtype]
    assert 0 < own.error < 8 * ROUNDOFF[dtype]
    assert own.bound is None
    assert seen["mine", dtype].bound == pytest.approx(2 * max(own.error, ROUNDOFF[dtype]))
    assert 0 < seen["mine", dtype].gradient_error <= seen["mine", dtype].gradient_bound


@pytest.mark.parametrize("call", [toy.padded, toy.cut, toy.poisoned])
def test_a_wrong_implementation_fails_there_too(call):
    wrong = found(toy.REFERENCE, dataclasses.replace(MINE, call=call), dtypes=["bfloat16"])
    assert wrong["mine", "bfloat16"].status == "failed"


def _no_half(values, mask, eps):
    if "16" in str(values.dtype):
        raise RuntimeError("not implemented for 'Half'")
    return toy.mean_torch(values, mask, eps)


def test_a_reference_that_cannot_is_a_finding_with_its_reason():
    seen = found(dataclasses.replace(toy.REFERENCE, call=_no_half), MINE, dtypes=["float16", "float32"])
    for name in ("ref", "mine"):
        assert seen[name, "float16"].status == "not run"
        assert "ref computes no case in float16: call" in seen[name, "float16"].reason
        assert "not implemented for 'Half'" in seen[name, "float16"].reason
        assert seen[name, "float32"].passed


def test_numpy_has_no_bfloat16():
    seen = found(toy.REFERENCE, toy.MINIMAL[1])
    assert (seen["minimal-numpy", "bfloat16"].status, seen["minimal-numpy", "float16"].status) == ("not run", "passed")
    assert "NumPy has no bfloat16" in seen["minimal-numpy", "bfloat16"].line()


def _one(value: float, label: str) -> Case:
    return Case({"values": np.full((1, 2), value), "mask": np.ones((1, 2), bool)}, {"eps": 1e-6}, label)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(1e5, "float16", False), (6e4, "float16", True), (1e5, "bfloat16", True), (1e39, "bfloat16", False),
     (float("inf"), "float16", True), (1e39, "float64", True)],
)  # fmt: skip
def test_what_fits(value, dtype, expected):
    assert fits(toy.contract(), _one(value, ""), dtype) is expected


def test_a_case_beyond_the_dtype_is_excluded_and_counted():
    edges = (*toy.edges(), _one(1e5, "overflows float16"))
    seen = found(toy.REFERENCE, MINE, edges=lambda: edges)
    assert {dtype: seen["mine", dtype].excluded for dtype in LOW} == {"bfloat16": 0, "float16": 1}
    assert all(item.passed for item in seen.values())


def test_a_case_of_which_the_reference_keeps_nothing_sets_no_bound():
    """1e-6 in the place of 3e-8 would otherwise allow any error."""

    def shaky(values, mask, eps):
        out = toy.mean_torch(values, mask, eps)
        lost = (values.abs() > 60).any() and "16" in str(values.dtype)
        return {**out, "mean": out["mean"] * (3 if lost else 1)}

    edges = (*toy.edges(), _one(64.0, "lost"))
    seen = found(dataclasses.replace(toy.REFERENCE, call=shaky), MINE, edges=lambda: edges, dtypes=["bfloat16"])
    assert seen["ref", "bfloat16"].excluded >= 1
    assert seen["ref", "bfloat16"].error < 0.1
    assert seen["mine", "bfloat16"].passed
