"""`adamw-step`: PyTorch's three eager paths and the twins agree over 8 steps, and every deviation is caught."""

from __future__ import annotations

import numpy as np
import pytest

from annotator.catalog import adamw_step, contract
from annotator.contracts.running import run
from annotator.errors import AnnotatorError

CONTRACT = contract("adamw-step")


@pytest.fixture(scope="module")
def pinned():
    from annotator import pins

    try:
        return pins.load("torch:torch.optim.adamw")
    except AnnotatorError as error:
        pytest.skip(f"the pin of torch cannot be run here: {error}")


def outputs(name, case, dtype="float64"):
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype, gradient=False).outputs


@pytest.mark.parametrize("case", CONTRACT.edges(), ids=lambda case: case.label)
def test_single_and_foreach_agree_bit_for_bit(pinned, case):
    one, other = outputs("torch-single", case, "float32"), outputs("torch-foreach", case, "float32")
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 11])
def test_cutting_into_tensors_loses_nothing(size):
    import torch

    vector = torch.arange(float(size))
    parts = adamw_step._cut(vector)
    assert torch.equal(adamw_step._join(parts), vector)
    assert len({part.dim() for part in parts}) == min(size, 3 if size > 4 else 2)


def test_differentiable_amsgrad_breaks_after_one_step(pinned):
    """What the adapter's copies are for."""
    import torch

    def last(steps):
        start = torch.ones(2, dtype=torch.float64, requires_grad=True)
        theta, gradient = start.clone(), torch.ones(2, dtype=torch.float64, requires_grad=True)
        optimiser = pinned.AdamW([theta], amsgrad=True, differentiable=True, foreach=False)
        for _ in range(steps):
            theta.grad = gradient * 1.0
            optimiser.step()
        return torch.autograd.grad(theta.sum(), [gradient])

    last(1)
    with pytest.raises(RuntimeError, match="inplace"):
        last(3)


def test_differentiable_counts_in_the_default_dtype(pinned):
    """The float64 path is only as good as the dtype of its step count; the adapter sets it."""
    import torch

    case = CONTRACT.edges()[0]
    exact = outputs("torch-single", case)["parameters"]
    assert np.abs(outputs("torch-differentiable", case)["parameters"] - exact).max() < 1e-13
    theta = torch.tensor(case.inputs["parameters"])
    knobs = {"lr": 1e-3, "weight_decay": 1e-2, "differentiable": True, "foreach": False}
    optimiser = pinned.AdamW([theta], **knobs)
    theta.grad = torch.tensor(case.inputs["gradients"][0])
    optimiser.step()
    assert np.abs(theta.numpy() - exact[0]).max() > 1e-10


def test_foreach_refuses_to_be_differentiated(pinned):
    import torch

    theta = torch.ones(2)
    theta.grad = torch.ones(2)
    with pytest.raises(AssertionError):
        pinned.AdamW([theta], foreach=True, differentiable=True).step()
