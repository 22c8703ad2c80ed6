"""`assert_conforms`: function objects of every backend, what a failure says, and the example project that uses it."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from annotator.errors import ContractError, UserCodeError
from annotator.testing import assert_conforms
from tests.contracts import toy

ROOT = Path(__file__).parents[1]
OTHER = toy.Implementation("other", "reference", "torch", toy.padded, ("torch:toy",), {"eps": 1e-6})
CONTRACT = toy.contract(implementations=(toy.REFERENCE, OTHER))


def mean_of(values, mask, eps=1e-6):
    return torch.where(mask, values, 0.0).sum(-1) / (mask.sum(-1).to(values.dtype) + eps)


class Averager:
    def __init__(self, eps):
        self.eps = eps

    def mean(self, values, mask):
        return mean_of(values, mask, self.eps)

    def __call__(self, values, mask):
        return self.mean(values, mask)  # Names no backend itself.


def in_jax(values, mask, eps):
    return jnp.where(mask, values, 0.0).sum(-1) / (mask.sum(-1).astype(values.dtype) + eps)


def in_numpy(values, mask, eps):
    return {"average": np.where(mask, values, np.zeros_like(values)).sum(-1) / (mask.sum(-1) + values.dtype.type(eps))}


def over_width(values, mask):
    return torch.where(mask, values, 0.0).mean(-1)


def by_product(values, mask):
    return (values * mask).sum(-1) / (mask.sum(-1) + 1e-6)


def detached(values, mask):
    return mean_of(values.detach(), mask)


def changes(values, mask):
    values[:] = 0
    return mean_of(values, mask)


def positional(values, mask, /):
    return mean_of(values, mask)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (mean_of, {}),
        (positional, {}),
        (functools.partial(mean_of, eps=1e-6), {}),
        (Averager(1e-6).mean, {}),
        (Averager(1e-6), {"backend": "torch"}),
        (lambda values, mask, **rest: mean_of(values, mask), {"backend": "torch"}),
        (lambda x, keep: mean_of(x, keep), {"mapping": {"x": "values", "keep": "mask"}, "backend": "torch"}),
        (in_jax, {}),
        (jax.jit(in_jax), {}),
        (in_numpy, {"mapping": {"average": "mean"}, "backend": "numpy"}),
        (lambda values, mask: (mean_of(values.float(), mask), mask.sum(-1)), {"backend": "torch"}),
    ],
)
def test_what_is_equal_passes(function, options):
    assert_conforms(function, CONTRACT, to="ref", examples=5, **options)


@pytest.mark.parametrize(
    ("function", "says"),
    [(over_width, "with deviation padded"), (by_product, "differs from"), (detached, "with deviation cut")],
)
def test_what_differs_fails_with_the_deviation_and_the_smallest_input(function, says):
    with pytest.raises(AssertionError, match="smallest input") as caught:
        assert_conforms(function, CONTRACT, to="ref", examples=5, backend="torch")
    first, *rest = str(caught.value).splitlines()
    assert function.__name__ in first
    assert says in first
    assert any("values = [[" in line for line in rest)


def test_a_function_that_no_file_has_at_its_top_fails_all_the_same():
    width = [over_width]
    with pytest.raises(AssertionError, match="smallest input") as caught:
        assert_conforms(lambda values, mask: width[0](values, mask), CONTRACT, to="ref", examples=5, backend="torch")
    assert "<lambda> differs from ref in toy-mean" in str(caught.value).splitlines()[0]


def test_any_reference_will_do_unless_one_is_named():
    eps = {"eps": 1e-6}
    with_eps = functools.partial(lambda values, mask, eps: toy.padded(values, mask, eps)["mean"], eps=1e-6)
    assert_conforms(with_eps, CONTRACT, examples=5, knobs=eps, backend="torch")
    with pytest.raises(AssertionError):
        assert_conforms(with_eps, CONTRACT, to="ref", examples=5, knobs=eps, backend="torch")


def test_a_knob_that_the_function_fixes_is_stated():
    loose = toy.contract(implementations=(toy.Implementation("ref", "reference", "torch", toy.mean_torch, ()),))
    assert_conforms(Averager(1e-6).mean, loose, examples=20)
    with pytest.raises(AssertionError):
        assert_conforms(Averager(1e-4).mean, loose, examples=20)
    assert_conforms(Averager(1e-4).mean, loose, examples=20, knobs={"eps": 1e-4})


def test_a_file_is_run_in_a_process_of_its_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import torch\n\ndef width(values, mask):\n    return torch.where(mask, values, 0.0).mean(-1)\n")
    with pytest.raises(AssertionError, match="smallest input"):
        assert_conforms(f"{file}:width", CONTRACT, to="ref", examples=3)


count = itertools.count()


@pytest.mark.parametrize(
    ("function", "options", "error", "says"),
    [
        (mean_of, {"to": "reff"}, ContractError, "expected a reference, found 'reff'; did you mean ref?"),
        (mean_of, {"knobs": {"epss": 1}}, ContractError, "expected a knob, found 'epss'; did you mean eps?"),
        (mean_of, {"mapping": {"values": "valeus"}}, ContractError, "did you mean values?"),
        (lambda values, maks: values, {"backend": "torch"}, UserCodeError, "did you mean mask?"),
        (lambda: 0, {"backend": "torch"}, UserCodeError, "expected a parameter among values, mask, eps, found none"),
        (lambda values: {"meen": values}, {"backend": "torch"}, UserCodeError, "expected outputs named mean, kept"),
        (lambda values: values, {"backend": "torch"}, UserCodeError, "shape"),
        (lambda values: values[7], {"backend": "torch"}, UserCodeError, "IndexError"),
        (lambda values: values.sum(-1), {}, UserCodeError, "expected one of torch and jax, found both"),
        (lambda values: values.sum(-1) + next(count), {"backend": "torch"}, UserCodeError, "the same result"),
        (changes, {}, UserCodeError, "changed in place"),
        ("mine.py", {}, UserCodeError, "expected FILE:FUNC"),
    ],
)
def test_what_cannot_be_run_is_an_error_of_one_line(function, options, error, says):
    with pytest.raises(error) as caught:
        assert_conforms(function, CONTRACT, examples=2, **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_reference_to_be_had_is_no_pass():
    nowhere = toy.Implementation("ref", "reference", "torch", toy.mean_torch, (), requires=("no_such_library",))
    with pytest.raises(ContractError, match="no_such_library is not installed"):
        assert_conforms(mean_of, toy.contract(implementations=(nowhere,)), examples=2)


def test_jax_keeps_the_width_that_other_tests_rely_on():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        assert_conforms(in_jax, CONTRACT, to="ref", examples=2)
        assert jnp.ones(1).dtype == "float32"
    finally:
        jax.config.update("jax_enable_x64", before)


@pytest.mark.slow
def test_the_example_project_passes_its_own_tests():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT / "examples", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
