"""``kl-penalty``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import _trl, contract, kl_penalty
from annotator.catalog._third_party import CORE, pinned
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.comparison import bound, split
from annotator.contracts.conforming import accepted, case_errors, references
from annotator.contracts.oracle import Oracle
from annotator.contracts.running import Result, run
from annotator.contracts.sampling import draw
from annotator.contracts.staging import whole
from tests.catalog.seen import seen_by

CONTRACT = contract("kl-penalty")
EDGES = {case.label: case for case in CONTRACT.edges()}


def ran(name: str, case: Case, **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case)


@pytest.mark.parametrize("name", ["own-gradient", "gradient-of-k1", "importance-forgotten", "score-only"])
def test_what_only_the_gradient_tells_is_seen_without_a_reference_too(name: str) -> None:
    probes = seen_by(CONTRACT, name, examples=6)
    assert "value" not in probes
    assert "expected-gradient" in probes
    deviation = next(item for item in CONTRACT.deviations if item.name == name)
    cases, errors = draw(CONTRACT, 6), []
    for reference in references(CONTRACT):
        oracle = Oracle(CONTRACT, reference)
        chosen = [cases[i] for i in accepted(cases, reference)]
        errors += [split(case_errors(oracle, deviation.call, "torch", case, "float64")) for case in chosen]
    assert max(value for value, _ in errors) <= bound("float64", 0.0) < max(slope for _, slope in errors)


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "own-gradient")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=3)
    assert [finding.passed for finding in findings] == [False]


def test_the_dialect_is_real() -> None:
    assert dialect_is_real(CONTRACT, "trl", examples=6) == []


@pytest.mark.parametrize("gradient", kl_penalty.GRADIENTS)
def test_the_stages_arrive_at_the_result(gradient: str) -> None:
    case = replace(EDGES["k3, gradient own"], knobs={"estimator": "k3", "gradient": gradient})
    np.testing.assert_array_equal(whole(CONTRACT, case)["kl"], ran("minimal-torch", case).outputs["kl"])


def test_verl_clamps_and_trl_does_not() -> None:
    verl, trl = EDGES["apart by tens: low_var_kl"], EDGES["apart by tens: k3"]
    assert ran("verl", verl).outputs["kl"].max() == 10
    assert ran("trl", trl).outputs["kl"].max() > 1e12


def test_verl_knows_no_divergence_of_whole_distributions() -> None:
    import torch

    with pytest.raises(NotImplementedError):
        pinned(CORE).kl_penalty(torch.zeros(1, 1), torch.zeros(1, 1), kl_penalty="full")


@pytest.mark.parametrize(("ours", "verls"), [("k1", "kl"), ("k2", "mse"), ("low_var_kl", "k3")])
def test_verl_has_two_names_for_each(ours: str, verls: str) -> None:
    import torch

    pair = [torch.tensor(EDGES["k3, gradient own"].inputs[name]) for name in ("log_prob", "ref_log_prob")]
    both = [pinned(CORE).kl_penalty(*pair, kl_penalty=name) for name in (ours, verls)]
    assert torch.equal(*both)


def test_trl_is_run_and_left_as_it_was() -> None:
    trainer = _trl.grpo_trainer()
    before = trainer.beta, trainer.loss_type, trainer.args.use_bias_correction_kl
    found = ran("trl", EDGES["k3, gradient importance"])
    assert found.outputs["kl"].all()
    assert (trainer.beta, trainer.loss_type, trainer.args.use_bias_correction_kl) == before
    assert not any(trainer._metrics.values())
