"""Stages: what a user's file exposes of the way, compared step by step."""

import numpy as np
import pytest

from annotator.contracts import Case, Deviation, Implementation, Output, Stage, diff
from annotator.contracts.staging import culprit, right_values, whole
from tests.contracts import toy


def kept(values, mask):
    import torch

    return torch.where(mask, values, 0.0)


def total(kept):
    return kept.sum(-1)


def mean(total, mask, eps):
    return total / (mask.sum(-1).to(total.dtype) + eps)


STAGES = (
    Stage("kept", ("B", "T"), "values, and 0 where the mask is off", kept),
    Stage("total", ("B",), "their sum", total),
    Stage("mean", ("B",), "over the count", mean),
)
MINIMAL = Implementation("minimal-torch", "minimal", "torch", toy.mean_torch, ("minimal/toy_torch.py",))
DEVIATIONS = (
    *toy.DEVIATIONS[1:],
    Deviation("padded", "divides by the width", "by the count", toy.padded, stage="mean"),
)
CONTRACT = toy.contract(
    implementations=(toy.REFERENCE, MINIMAL),
    outputs=(Output("mean", ("B",), "the mean"),),
    stages=STAGES,
    deviations=DEVIATIONS,
)
CASE = Case(
    {"values": np.array([[1.0, 2.0], [3.0, 4.0]]), "mask": np.array([[True, False], [True, True]])}, {"eps": 1e-6}
)

BY_FUNCTIONS = """
import torch

def kept(values, mask):
    return torch.where(mask, values, 0.0)

def total(kept):
    return (kept ** 2).sum(-1)

def mean(total, mask, eps):
    return total / (mask.sum(-1).to(total.dtype) + eps)

def f(values, mask, eps):
    return mean(total(kept(values, mask)), mask, eps)
"""

RETURNED = """
import torch

def f(values, mask, eps):
    kept = torch.where(mask, values, 0.0)
    sums = kept.abs().sum(-1)
    return {"mean": sums / (mask.sum(-1).to(sums.dtype) + eps), "kept": kept, "sums": sums}
"""

DETACHED = """
import torch

def total(kept):
    return kept.detach().sum(-1)

def f(values, mask, eps):
    return total(torch.where(mask, values, 0.0)) / (mask.sum(-1).to(values.dtype) + eps)
"""

CLOSED = """
import torch

def f(values, mask, eps):
    return torch.where(mask, values, 0.0).abs().sum(-1) / (mask.sum(-1).to(values.dtype) + eps)

def padded(values, mask, eps):
    return torch.where(mask, values, 0.0).sum(-1) / (values.shape[-1] + eps)
"""


@pytest.fixture
def asked(tmp_path):
    def ask(text, function="f", **options):
        file = tmp_path / "mine.py"
        file.write_text(text)
        return diff(file, function, CONTRACT, timeout=60.0, examples=10, **options)

    return ask


def test_stages_lead_from_the_inputs_to_the_output():
    held = right_values(CONTRACT, CASE)
    assert held.inputs["total"].tolist() == [1.0, 7.0]
    np.testing.assert_allclose(whole(CONTRACT, CASE)["mean"], [1 / (1 + 1e-6), 7 / (2 + 1e-6)], rtol=1e-15)


def test_a_function_answers_for_its_own_step_only(asked):
    verdict = asked(BY_FUNCTIONS)
    assert verdict.stage == "total"
    assert {item.stage: item.same for item in verdict.stages} == {"kept": True, "total": False, "mean": True}
    assert "it leaves the path at stage total" in "\n".join(verdict.render())
    assert verdict.to_json()["stage"] == "total"


def test_a_returned_value_answers_for_the_way_up_to_it(asked):
    verdict = asked(RETURNED, mapping={"sums": "total"})
    assert [(item.stage, item.how, item.same) for item in verdict.stages] == [
        ("kept", "returned", True),
        ("total", "returned", False),
    ]
    assert verdict.stage == "total"


def test_a_stage_that_only_loses_the_gradient_is_found(asked):
    verdict = asked(DETACHED)
    found = culprit(verdict.stages)
    assert found is not None
    assert (found.stage, found.part) == ("total", "gradient of kept")


def test_a_file_that_exposes_nothing_is_told_what_would_be_compared(asked):
    verdict = asked(CLOSED)
    assert verdict.stages == ()
    assert verdict.stage == ""
    assert any("kept, total, mean are compared" in note for note in verdict.notes)


def test_else_the_deviation_that_explains_it_names_the_stage(asked):
    assert asked(CLOSED, "padded").stage == "mean"


def test_a_right_file_has_no_stage_to_name(asked):
    verdict = asked(BY_FUNCTIONS.replace("(kept ** 2)", "kept"))
    assert verdict.equal
    assert verdict.stage == ""
