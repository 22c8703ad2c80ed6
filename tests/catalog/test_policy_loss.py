"""``policy-loss``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from annotator.catalog import _policy, _trl, contract
from annotator.catalog._third_party import CORE, pinned
from annotator.catalog.policy_loss import HIDDEN
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.kills import breaks_are_real
from annotator.contracts.running import Result, run

CONTRACT = contract("policy-loss")
REFERENCES = ("verl", "trl", "liger")
EDGES = {case.label: case for case in CONTRACT.edges()}


def result(name: str, case: Case, **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, replace(case, knobs={**case.knobs, **item.dialect, **knobs}))


def loss(name: str, case: Case, **knobs: Any) -> float:
    return float(result(name, case, **knobs).outputs["loss"])


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "clipped-only")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", REFERENCES)
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


@pytest.mark.parametrize("name", REFERENCES)
def test_references_break_the_probe_that_they_are_said_to_break(name: str) -> None:
    assert breaks_are_real(CONTRACT, name, examples=5) == []


@pytest.mark.parametrize(
    ("name", "finite"), [("verl", True), ("trl", False), ("liger", False), ("minimal-torch", True)]
)
def test_not_a_number_under_the_mask(name: str, finite: bool) -> None:
    found = result(name, EDGES[HIDDEN])
    assert np.isfinite(found.outputs["loss"]) == finite
    assert np.isfinite(found.gradients["log_probs"]).all() == finite


def test_verl_alone_limits_the_log_ratio() -> None:
    case = EDGES["ratios of nothing"]
    assert loss("verl", case) == pytest.approx(-np.exp(-20))
    for name in ("trl", "liger"):
        assert loss(name, case) == pytest.approx(-np.exp(-25))


@pytest.mark.parametrize("name", REFERENCES)
def test_each_bounds_the_loss_of_a_negative_advantage_by_c(name: str) -> None:
    case = EDGES["negative advantages beyond c"]
    assert loss(name, case) == pytest.approx(3)
    assert not result(name, case).gradients["log_probs"].any()
    assert loss(name, case, dual_clip=float("inf")) == pytest.approx(np.exp(2))


def test_trl_takes_micro_batches_of_one_size() -> None:
    case = EDGES["global token-mean"]
    uneven = replace(case, inputs={**case.inputs, "global_batch_size": np.array(7)})
    assert "one size" in (CONTRACT.implementation("trl").accepts(uneven) or "")
    assert CONTRACT.implementation("trl").accepts(case) is None


def test_liger_takes_one_advantage_a_response_and_has_another_luspo() -> None:
    accepts = CONTRACT.implementation("liger").accepts
    assert "one advantage" in (accepts(EDGES["one advantage a token"]) or "")
    assert "luspo" in (accepts(EDGES["global seq-mean-token-sum"]) or "")
    case = EDGES["global seq-mean-token-sum"]
    assert loss("liger", case) != pytest.approx(loss("trl", case), rel=1e-3)


def test_liger_never_divides_by_less_than_a_token_a_rank() -> None:
    """It clamps after it has divided by the ranks, TRL before: one token on two ranks."""
    case = EDGES["global token-mean"]
    few = replace(case, inputs={**case.inputs, "batch_num_tokens": np.array(1)})
    assert loss("trl", few) == pytest.approx(2 * loss("liger", few))
    assert "a token at least" in (CONTRACT.implementation("liger").accepts(few) or "")


def test_what_runs_is_the_pins() -> None:
    files = {
        "trl": type(_trl.grpo_trainer())._compute_loss,
        "verl": pinned(CORE).compute_policy_loss_vanilla,
        "liger-kernel": _policy._liger().ppo_loss_fn,
    }
    for name, function in files.items():
        file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve()
        assert any(part.startswith(f"{name}-") for part in file.parts), file


def test_the_adapter_leaves_the_trainer_as_it_was() -> None:
    trainer = _trl.grpo_trainer()
    before = trainer.loss_type, trainer.beta, trainer.args.delta, trainer.accelerator.num_processes
    loss("trl", EDGES["global token-mean"], kl_coef=0.5, dual_clip=3.0)
    assert before == (trainer.loss_type, trainer.beta, trainer.args.delta, trainer.accelerator.num_processes)
    assert not any(trainer._metrics.values())
    assert "_get_per_token_logps_and_entropies" not in vars(trainer)
