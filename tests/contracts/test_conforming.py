"""Whole contracts: right implementations pass, wrong ones fail with a witness, what cannot run says so."""

import dataclasses

import numpy as np
import pytest

from annotator.contracts import Case, Implementation, Output, conform
from annotator.contracts.conforming import Measured
from annotator.contracts.oracle import Oracle
from annotator.errors import ContractError, PinError
from tests.contracts import toy


def _minimal(call, backend="torch", **more):
    return Implementation("mine", "minimal", backend, call, ("minimal/toy_torch.py",), **more)


def _mine(call, *, contract=None, examples=10, **more):
    """The findings of one minimal implementation, by dtype."""
    options = {k: more.pop(k) for k in ("names", "dtypes", "device") if k in more}
    made = (contract or toy.contract)(implementations=(toy.REFERENCE, _minimal(call, **more)))
    return {f.dtype: f for f in conform(made, examples=examples, **options) if f.implementation == "mine"}


def test_right_implementations_pass():
    found = conform(toy.contract(), examples=5)
    assert [(f.implementation, f.dtype, f.status) for f in found] == [
        (name, dtype, "passed") for name in ("ref", "minimal-jax", "minimal-numpy") for dtype in ("float64", "float32")
    ]
    by_name = {(f.implementation, f.dtype): f for f in found}
    assert (by_name["ref", "float64"].error, by_name["ref", "float64"].reason) == (None, "is the oracle")
    assert 0 < by_name["ref", "float32"].error < 1e-6
    assert by_name["ref", "float32"].bound is None
    assert by_name["minimal-jax", "float32"].bound == pytest.approx(2 * max(by_name["ref", "float32"].error, 2.0**-24))
    assert by_name["minimal-numpy", "float64"].gradient_error is None
    assert all(f.cases == 7 for f in found)


def _late_error(values, mask, eps):
    return {**toy.mean_torch(values, mask, eps), "mean": toy.mean_torch(values, mask, eps)["mean"] * (1 + 1e-8)}


def _half(values, mask, eps):
    out = toy.mean_torch(values.half(), mask, eps)
    return {**out, "mean": out["mean"].to(values.dtype)}


WRONG = [
    (toy.padded, "float64", "mean"),
    (toy.padded, "float32", "mean"),
    (toy.cut, "float64", "gradient of values"),
    (toy.poisoned, "float64", "mean"),
    (_late_error, "float64", "mean"),
    (_half, "float32", "mean"),
]


@pytest.mark.parametrize(("call", "dtype", "part"), WRONG)
def test_a_wrong_implementation_fails_with_a_witness(call, dtype, part):
    finding = _mine(call)[dtype]
    assert finding.status == "failed"
    assert finding.witness is not None
    shown = finding.witness
    assert part in (shown.part, "gradient of values") or shown.part == part
    assert shown.case.inputs["values"].size <= 3
    assert "smallest input" in finding.witness_lines()[0]


def test_a_small_relative_error_passes_in_float32_only():
    found = _mine(_late_error)
    assert (found["float64"].status, found["float32"].status) == ("failed", "passed")


def test_a_detached_result_is_called_so():
    assert "detached" in _mine(toy.cut)["float64"].reason


def test_nan_is_called_so():
    assert "NaN" in _mine(toy.poisoned)["float64"].reason


def test_a_fault_is_a_failure_with_its_reason():
    def call(values, mask, eps):
        mask[:] = False
        return toy.mean_torch(values, mask, eps)

    finding = _mine(call)["float64"]
    assert finding.status == "failed"
    assert "in place" in finding.reason


def _no_pin(**_):
    raise PinError("toy", expected="its tree", found="none", remedy="run annotator fetch toy")


def _no_library(**_):
    raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")


NOT_RUN = [
    ({"requires": ("no_such_library",)}, toy.mean_torch, "no_such_library is not installed"),
    ({}, _no_library, "nowhere is not installed"),
    ({}, _no_pin, "annotator fetch toy"),
    ({"device": "cuda"}, toy.mean_torch, "torch sees no cuda"),
]


@pytest.mark.parametrize(("more", "call", "reason"), NOT_RUN)
def test_what_cannot_run_says_so(more, call, reason):
    import torch

    if "device" in more and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    finding = _mine(call, **more)["float64"]
    assert finding.status == "not run"
    assert not finding.passed
    assert reason in finding.reason
    assert reason in finding.line()


def test_a_missing_reference_is_the_reason_of_everybody_measured_by_it():
    absent = dataclasses.replace(toy.REFERENCE, requires=("no_such_library",))
    found = conform(toy.contract(implementations=(absent, *toy.MINIMAL)), examples=2)
    assert {f.status for f in found} == {"not run"}
    assert all("no_such_library" in f.reason for f in found)


def test_names_and_dtypes_restrict_the_run():
    found = conform(toy.contract(), names=["minimal-numpy"], dtypes=["float32"], examples=2)
    assert [(f.implementation, f.dtype) for f in found] == [("minimal-numpy", "float32")]


def test_each_reference_is_met_at_its_own_dialect():
    other = dataclasses.replace(toy.REFERENCE, name="other", dialect={"eps": 1e-4})
    found = conform(toy.contract(implementations=(toy.REFERENCE, other, toy.MINIMAL[1])), examples=5)
    assert {(f.implementation, f.reference) for f in found} == {
        ("ref", "ref"), ("other", "other"), ("minimal-numpy", "ref"), ("minimal-numpy", "other"),
    }  # fmt: skip
    assert all(f.passed for f in found)


def test_a_reference_outside_its_declared_dialect_is_seen():
    def stubborn(values, mask, eps):
        return toy.mean_torch(values, mask, 1e-3)

    liar = dataclasses.replace(toy.REFERENCE, call=stubborn)
    found = conform(toy.contract(implementations=(liar, toy.MINIMAL[1])), dtypes=["float64"], examples=5)
    assert {f.implementation: f.status for f in found} == {"ref": "passed", "minimal-numpy": "failed"}


def test_an_oracle_of_its_own_binds_the_reference_too():
    def wrong(values, mask, eps):
        return {**toy.mean_numpy(values, mask, eps), "mean": toy.mean_numpy(values, mask, eps)["mean"] * 2}

    right = conform(toy.contract(oracle=toy.mean_numpy), dtypes=["float64"], names=["ref"], examples=5)
    bad = conform(toy.contract(oracle=wrong), dtypes=["float64"], names=["ref"], examples=5)
    assert [f.status for f in (*right, *bad)] == ["passed", "failed"]


def test_a_reference_without_float64_needs_an_oracle():
    narrow = dataclasses.replace(toy.REFERENCE, dtypes=("float32",))
    with pytest.raises(ContractError, match="oracle"):
        conform(toy.contract(implementations=(narrow,)), examples=1)
    found = conform(toy.contract(implementations=(narrow, toy.MINIMAL[1]), oracle=toy.mean_numpy), examples=5)
    assert all(f.passed for f in found)
    assert {(f.implementation, f.dtype) for f in found} == {
        ("ref", "float32"), ("minimal-numpy", "float64"), ("minimal-numpy", "float32"),
    }  # fmt: skip


def test_cases_outside_a_domain_are_left_out():
    def narrow(case):
        return "one row only" if case.inputs["values"].shape[0] > 1 else None

    finding = _mine(toy.mean_torch, accepts=narrow)["float64"]
    assert finding.passed
    assert 2 <= finding.cases < 12
    assert _mine(toy.mean_torch, accepts=lambda case: "nothing at all")["float64"].status == "failed"


def test_a_case_beyond_the_references_range_is_excluded_in_that_dtype():
    huge = Case(
        {"values": np.full((1, 2), 3e38), "mask": np.ones((1, 2), bool)}, {"eps": 1e-6}, "sum overflows float32"
    )
    made = toy.contract(implementations=(toy.REFERENCE, toy.MINIMAL[1]), edges=lambda: (huge, *toy.edges()))
    found = {(f.implementation, f.dtype): f for f in conform(made, examples=3)}
    assert found["minimal-numpy", "float64"].excluded == 0
    assert found["minimal-numpy", "float32"].excluded == 1


def test_equal_values_minus_their_mean_leave_any_residue():
    """The residue is rounding, and no rule of the contract: neither 0 nor 1e-17 is wrong; 1e-6 is."""

    def centred(values, mask, eps):
        return {"mean": values[:, 0] - values.mean(-1), "kept": mask.sum(-1)}

    def other_order(values, mask, eps):
        return {"mean": (values.shape[-1] * values[:, 0] - values.sum(-1)) / values.shape[-1], "kept": mask.sum(-1)}

    def off(values, mask, eps):
        return {"mean": other_order(values, mask, eps)["mean"] + 1e-6, "kept": mask.sum(-1)}

    equal = Case({"values": np.full((1, 7), 0.1), "mask": np.ones((1, 7), bool)}, {"eps": 1e-6}, "equal")
    reference = dataclasses.replace(toy.REFERENCE, call=centred, differentiable=False)
    statuses = []
    for call in (other_order, off):
        items = (reference, _minimal(call, differentiable=False))
        found = conform(toy.contract(implementations=items, edges=lambda: (equal,)), dtypes=["float64"], examples=0)
        statuses += [f.status for f in found if f.implementation == "mine"]
    assert statuses == ["passed", "failed"]


def test_a_tie_that_flips_is_no_condition():
    """At a jump, moving the inputs says nothing about rounding: the tolerance must not grow."""
    import torch

    def step(values, mask, eps):
        return {"mean": (values[:, :1] >= values).to(values.dtype).sum(-1), "kept": mask.sum(-1)}

    made = toy.contract(implementations=(dataclasses.replace(toy.REFERENCE, call=step, differentiable=False),))
    tied = Case({"values": torch.ones(1, 4).double().numpy(), "mask": np.ones((1, 4), bool)}, {"eps": 1e-6})
    assert Oracle(made, made.implementations[0]).condition(tied, "float64", "mean") == 0.0


def test_the_worst_of_nothing_is_zero_and_a_fault_is_infinite():
    assert Measured().worst([]) == (0.0, 0.0)
    assert Measured().worst([3]) == (float("inf"), 0.0)


# Trajectories and distributions ---------------------------------------------------------------------------------------


def _walk(values, mask, eps, *, late=0.0):
    import torch

    steps = [values * (1 - eps) ** k for k in range(1, 6)]
    steps[3] = steps[3] + late
    return {"path": torch.stack(steps), "kept": mask.sum(-1)}


def test_a_trajectory_names_the_first_step_that_differs():
    outputs = (Output("path", ("K", "B", "T"), ""), Output("kept", ("B",), "", exact=True))
    items = (
        dataclasses.replace(toy.REFERENCE, call=_walk, differentiable=False),
        _minimal(lambda **given: _walk(**given, late=1.0), differentiable=False),
    )
    made = toy.contract(kind="trajectory", outputs=outputs, implementations=items, edges=lambda: (toy.edges()[0],))
    finding = next(f for f in conform(made, dtypes=["float64"], examples=5) if f.implementation == "mine")
    assert finding.reason == "the first step that differs is 3"
    assert finding.witness.index[0] == 3


def _softmax(values, mask, eps):
    import torch

    kept = torch.where(mask | ~mask.any(-1, keepdim=True), values / 50, -torch.inf)
    return {"probabilities": kept.softmax(-1)}


def _sampler(power=1.0):
    def sample(values, mask, eps, *, draws, seed):
        import torch

        weights = _softmax(values, mask, eps)["probabilities"] ** power
        return torch.multinomial(weights, draws, replacement=True, generator=torch.Generator().manual_seed(seed))

    return sample


def _leaky(values, mask, eps, *, draws, seed):
    return _sampler()(values, mask | True, eps, draws=draws, seed=seed)


def _short(values, mask, eps, *, draws, seed):
    return _sampler()(values, mask, eps, draws=draws - 1, seed=seed)


@pytest.mark.parametrize(
    ("sample", "status"), [(_sampler(), "passed"), (_sampler(1.3), "failed"), (_leaky, "failed"), (_short, "failed")]
)
def test_draws_follow_the_probabilities(sample, status):
    finite = Case({"values": np.zeros((1, 3)), "mask": np.array([[True, True, False]])}, {"eps": 1e-6}, "one ruled out")
    items = (
        dataclasses.replace(toy.REFERENCE, call=_softmax, differentiable=False, sample=_sampler()),
        _minimal(_softmax, differentiable=False, sample=sample),
    )
    outputs = (Output("probabilities", ("B", "T"), ""),)
    made = toy.contract(kind="distribution", outputs=outputs, implementations=items, edges=lambda: (finite,))
    found = conform(made, dtypes=["float64"], examples=8)
    assert [f.status for f in found] == ["passed", status]
    assert found[0].p_value > 1e-6
