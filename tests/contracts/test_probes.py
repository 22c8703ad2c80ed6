"""Probes without a reference: right code keeps each, and each sees the mistake that it is for."""

import dataclasses

import numpy as np
import pytest

from annotator.contracts import Case, Implementation, Input, Output, Rewriting, conform, power, refuse
from annotator.contracts.kills import breaks_are_real
from annotator.contracts.probes import axes_of, growth, identity, padding, permutation, poison, split
from annotator.contracts.probing import limit, probed, runner
from annotator.errors import ContractError
from tests.contracts import toy

INPUTS = (
    Input("values", ("B", "T"), "float", "numbers", differentiable=True),
    Input("mask", ("B", "T"), "bool", "what counts"),
    Input("count", (), "float", "how many slots count in the whole batch"),
)
OUTPUTS = (Output("loss", (), "their mean square"), Output("rows", ("B",), "sum of each row"))
AXES = axes_of(INPUTS, OUTPUTS)


def right(values, mask, count):
    import torch

    kept = torch.where(mask, values, 0.0)
    return {"loss": (kept**2).sum() / count, "rows": kept.sum(-1).detach()}


def multiplied(values, mask, count):
    kept = values * mask
    return {"loss": (kept**2).sum() / count, "rows": kept.sum(-1).detach()}


def reads_pads(values, mask, count):
    return {**right(values, mask, count), "rows": values.sum(-1).detach()}


def by_width(values, mask, count):
    return {"loss": right(values, mask, values.new_tensor(float(values.numel())))["loss"], "rows": values.sum(-1) * 0}


def first_row_counts_twice(values, mask, count):
    return {**right(values, mask, count), "loss": right(values, mask, count)["loss"] + (values[0] * mask[0]).sum()}


def local_count(values, mask, count):
    return right(values, mask, mask.sum().clamp(min=1))


def off_by_one(values, mask, count):
    return {**right(values, mask, count), "loss": right(values, mask, count)["loss"] + 1}


def coarse(values, mask, count):
    """Takes the square as a difference of large numbers."""
    import torch

    kept = torch.where(mask, values, 0.0)
    return {"loss": (((kept + 1e3) ** 2 - 1e6 - 2e3 * kept).sum()) / count, "rows": kept.sum(-1).detach()}


def zero(case):
    return dataclasses.replace(case, inputs={**case.inputs, "values": np.zeros_like(case.inputs["values"])})


PROBES = {
    "poison": (poison({"values": "mask"}), multiplied),
    "finite poison": (poison({"values": "mask"}, value=1e3, name="finite poison"), reads_pads),
    "padding": (padding(AXES, "T", {"values": 7.0, "mask": False}), by_width),
    "permutation": (permutation(AXES, "B"), first_row_counts_twice),
    "split": (split(AXES, "B"), local_count),
    "zero": (identity("zero", "nothing from nothing", zero, lambda case: {"loss": 0.0}), off_by_one),
    "growth": (growth(), coarse),
}


def example(seed, rows=3, width=4):
    random = np.random.default_rng(seed)
    mask = random.random((rows, width)) < 0.6
    values = np.round(random.standard_normal((rows, width)) * 8) / 8
    return Case({"values": values, "mask": mask, "count": np.array(float(max(mask.sum(), 1)))})


CASES = [example(seed) for seed in range(8)]


def fares(probe, call, cases=CASES):
    made = toy.contract(inputs=INPUTS, outputs=OUTPUTS)
    return probed(probe, runner(made, call, "torch", lambda case: None, "float64", "cpu"), cases, limit("float64"))


@pytest.mark.parametrize("name", PROBES)
def test_right_code_keeps_the_probe(name):
    seen = fares(PROBES[name][0], right)
    assert seen.cases == len(CASES)
    assert seen.kept, seen.line()


@pytest.mark.parametrize("name", PROBES)
def test_the_probe_sees_the_mistake_that_it_is_for(name):
    probe, wrong = PROBES[name]
    seen = fares(probe, wrong)
    assert not seen.kept
    assert seen.case is not None
    assert f"{probe.name}: broken" in seen.line()


def test_a_gradient_at_a_masked_slot_is_a_leak():
    def leaks(values, mask, count):
        return {
            **right(values, mask, count),
            "loss": right(values, mask, count)["loss"] + 0 * values.nansum() + _ghost(values, mask),
        }

    def _ghost(values, mask):
        """0 in value whatever lies there, but a path for the gradient."""
        import torch

        hidden = torch.where(mask, 0.0, values)
        return (hidden - hidden.detach()).nan_to_num().sum()

    assert not fares(poison({"values": "mask"}, value=2.0), leaks).kept


def test_a_case_that_says_nothing_is_not_counted():
    one_row = [example(0, rows=1)]
    assert fares(PROBES["permutation"][0], right, one_row).cases == 0
    full = [Case({"values": np.ones((2, 2)), "mask": np.ones((2, 2), bool), "count": np.array(4.0)})]
    assert fares(PROBES["poison"][0], right, full).cases == 0


def test_what_cannot_run_on_the_changed_input_breaks_the_probe():
    def two_rows_only(values, mask, count):
        if values.shape[-1] > 4:
            raise ValueError("too wide")
        return right(values, mask, count)

    seen = fares(PROBES["padding"][0], two_rows_only)
    assert not seen.kept
    assert "too wide" in seen.reason


# In a contract --------------------------------------------------------------------------------------------------------

NAN = poison({"values": "mask"}, name="nan")


def poisoned_minimal(**changes):
    return Implementation("minimal-x", "minimal", "torch", toy.poisoned, ("minimal/x.py",), **changes)


def without_edges(**changes):
    return toy.contract(edges=tuple, probes=(NAN,), **changes)


def test_conform_fails_an_implementation_that_breaks_a_probe():
    made = without_edges(implementations=(toy.REFERENCE, poisoned_minimal()))
    by_name = {f.implementation: f for f in conform(made, dtypes=("float64",), examples=10)}
    assert by_name["ref"].passed
    assert by_name["ref"].probes["nan"] == 0
    assert not by_name["minimal-x"].passed
    assert "probe nan" in by_name["minimal-x"].reason


def test_a_declared_break_passes_and_must_be_real():
    made = without_edges(implementations=(toy.REFERENCE, poisoned_minimal(breaks=("nan",))))
    assert all(finding.passed for finding in conform(made, dtypes=("float64",), examples=10))
    assert breaks_are_real(made, "minimal-x", examples=10) == []
    idle = without_edges(implementations=(dataclasses.replace(toy.REFERENCE, breaks=("nan",)),))
    assert breaks_are_real(idle, "ref", examples=10) == ["nan"]


def test_the_matrix_has_a_column_for_the_probe():
    rows = {row.deviation: row for row in power(without_edges(), examples=10, dtypes=("float64",))}
    assert rows["poisoned"].probes == ("nan",)


def test_a_probe_that_the_reference_breaks_catches_nobody():
    reference = dataclasses.replace(toy.REFERENCE, breaks=("nan",))
    made = without_edges(implementations=(reference, *toy.MINIMAL))
    assert not {row.deviation: row for row in power(made, examples=10, dtypes=("float64",))}["poisoned"].caught


def test_a_rewriting_that_raises_an_alarm_is_refused():
    good = Rewriting("as numpy", "by NumPy", toy.mean_numpy, "numpy")
    rows = [r for r in power(toy.contract(rewritings=(good,)), examples=5) if r.kind == "rewriting"]
    assert len(rows) == 2
    assert all(row.sound and "no alarm" in row.line() for row in rows)
    bad = Rewriting("padded", "by the width", toy.padded)
    with pytest.raises(ContractError, match="FALSE ALARM"):
        refuse(toy.contract(rewritings=(bad,)), examples=5)
