"""How arrays enter and leave each backend, and which rules a call is held to."""

import functools

import numpy as np
import pytest

from annotator.contracts import Case
from annotator.contracts.running import Fault, rounded, run
from tests.contracts import toy

CASE = Case(
    {"values": np.array([[1.0, 3.0], [5.0, 7.0]]), "mask": np.array([[True, True], [True, False]])}, {"eps": 0.0}
)
CALLS = {"torch": toy.mean_torch, "jax": toy.mean_jax, "numpy": toy.mean_numpy}


def _run(call, backend="torch", **options):
    return run(toy.contract(), call, backend, CASE, **options)


@pytest.mark.parametrize("backend", CALLS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_outputs_are_the_same_from_every_backend(backend, dtype):
    result = _run(CALLS[backend], backend, dtype=dtype)
    assert result.outputs["mean"].tolist() == [2.0, 5.0]
    assert result.outputs["mean"].dtype == np.float64
    assert result.outputs["kept"].dtype == np.int64
    assert result.dtypes["mean"] == dtype


def test_gradients_agree_between_torch_and_jax():
    ours, theirs = (_run(CALLS[name], name).gradients["values"] for name in ("torch", "jax"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    assert ours[1, 1] == 0.0
    assert ours[0, 0] != 0.0


def test_the_gradient_is_that_of_the_weighted_sum():
    analytic = _run(toy.mean_torch).gradients["values"]
    step = 1e-6
    from annotator.contracts.running import cotangent

    def scalar(values):
        out = toy.mean_numpy(values, CASE.inputs["mask"], 0.0)["mean"]
        return (out * cotangent("mean", out)).sum()

    moved = CASE.inputs["values"].copy()
    moved[0, 1] += step
    assert analytic[0, 1] == pytest.approx((scalar(moved) - scalar(CASE.inputs["values"])) / step, rel=1e-6)


def test_infinite_outputs_take_no_part_in_the_gradient():
    import torch

    def call(values, mask, eps):
        return {"mean": torch.where(mask, values, -torch.inf).sum(-1), "kept": mask.sum(-1)}

    result = _run(call)
    assert result.outputs["mean"][1] == -np.inf
    assert np.isfinite(result.gradients["values"]).all()
    assert (result.gradients["values"][1] == 0).all()
    assert (result.gradients["values"][0] != 0).all()


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_code_that_looks_at_values_still_runs(backend):
    def call(values, mask, eps):
        if float(values[0, 0]) > 0:
            return CALLS[backend](values, mask, eps)
        raise AssertionError

    if backend == "jax":  # float() of a traced value is refused under vjp, hence without gradient
        result = run(toy.contract(), call, backend, CASE, gradient=False)
    else:
        result = _run(call)
    assert result.outputs["mean"].tolist() == [2.0, 5.0]


def _in_place(values, mask, eps):
    mask[0, 0] = False
    return toy.mean_torch(values, mask, eps)


def _numpy_in_place(values, mask, eps):
    values[:] = 0
    return toy.mean_numpy(values, mask, eps)


FAULTS = [
    ("in place", "torch", _in_place),
    ("device", "torch", lambda values, mask, eps: {"mean": values.mean(-1).to("meta"), "kept": mask.sum(-1)}),
    ("in place", "numpy", _numpy_in_place),
    ("output", "torch", lambda values, mask, eps: {"mean": values.sum(-1)}),
    ("output", "torch", lambda values, mask, eps: values.sum(-1)),
    ("output", "numpy", lambda values, mask, eps: {"mean": "no", "kept": mask.sum(-1)}),
    ("shape", "torch", lambda values, mask, eps: {**toy.mean_torch(values, mask, eps), "mean": values}),
    ("shape", "numpy", lambda values, mask, eps: {"mean": values.sum(), "kept": mask.sum(-1)}),
    ("raises", "torch", lambda values, mask, eps: 1 / 0),
    ("raises", "jax", lambda values, mask, eps: 1 / 0),
]


@pytest.mark.parametrize(("rule", "backend", "call"), FAULTS)
def test_a_broken_rule_is_named(rule, backend, call):
    with pytest.raises(Fault) as caught:
        _run(call, backend)
    assert caught.value.rule == rule
    assert "\n" not in str(caught.value)


def test_an_axis_has_one_size():
    from annotator.contracts import Output

    contract = toy.contract(outputs=(Output("mean", ("T",), ""), Output("kept", ("B",), "")))
    assert run(contract, toy.mean_torch, "torch", CASE).outputs["mean"].shape == (2,)  # B = T here
    wide = Case({name: np.repeat(array, 2, axis=1) for name, array in CASE.inputs.items()}, CASE.knobs)
    with pytest.raises(Fault, match="T=4"):
        run(contract, toy.mean_torch, "torch", wide)


def test_a_missing_library_is_not_a_fault():
    def call(**_):
        import no_such_library  # noqa: F401

    with pytest.raises(ModuleNotFoundError):
        _run(call)


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 53), ("float32", 24), ("float16", 11), ("bfloat16", 8)])
def test_rounding_is_to_nearest_even(dtype, bits):
    ulp = 2.0 ** (1 - bits)
    table = {1.0: 1.0, 1 + ulp: 1 + ulp, 1 + ulp / 2: 1.0, 1 + 3 * ulp / 2: 1 + 2 * ulp, np.inf: np.inf}
    assert rounded(np.array(list(table)), dtype).tolist() == list(table.values())
    assert np.isnan(rounded(np.array([np.nan]), dtype)).all()


def test_bfloat16_is_torchs():
    import torch

    numbers = np.random.default_rng(0).standard_normal(1000).astype(np.float32).astype(np.float64)
    theirs = torch.tensor(numbers).to(torch.bfloat16).to(torch.float64).numpy()
    assert (rounded(numbers, "bfloat16") == theirs).all()


def test_partials_can_be_called():
    assert _run(functools.partial(toy.mean_torch)).outputs["kept"].tolist() == [2, 1]
