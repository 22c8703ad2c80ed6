"""``kl-cov``: every implementation keeps it, every deviation breaks it, and the references do as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, kl_cov
from annotator.contracts import Case, conform, dialect_is_real, probes
from annotator.contracts.kills import breaks_are_real
from annotator.contracts.running import Result, run
from annotator.contracts.staging import whole
from tests.catalog.seen import seen_by

CONTRACT = contract("kl-cov")
EDGES = {case.label: case for case in CONTRACT.edges()}


def ran(name: str, case: Case, **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case)


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "share-of-micro-batch")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=3)
    assert [finding.passed for finding in findings] == [False]


def test_the_dialect_is_real() -> None:
    assert dialect_is_real(CONTRACT, "verl", examples=3) == []
    assert breaks_are_real(CONTRACT, "verl", examples=3) == []


def test_the_order_of_rows_tells_of_a_share_per_micro_batch() -> None:
    assert "permutation" in seen_by(CONTRACT, "share-of-micro-batch", examples=6)


@pytest.mark.parametrize("name", ["verl", "minimal-torch"])
def test_micro_batches_do_not_add_up_and_cannot(name: str) -> None:
    """The statistic is that of what the loss is called with, so that the choice has to come before the cut."""
    split = probes.split(kl_cov.AXES, "B")
    case = replace(EDGES["no padding"], knobs={"share": 0.25, "coef": 1.0, "loss_aggregation": "token-sum"})
    apart = split.relation(lambda at: ran(name, at), case)
    assert apart is not None
    assert apart > 1e-3
    plain = replace(case, knobs={**case.knobs, "coef": 0.0})
    assert (split.relation(lambda at: ran(name, at), plain) or 0) < 1e-12


def test_the_stages_arrive_at_the_result() -> None:
    case = EDGES["share 0.5, seq-mean-token-sum"]
    np.testing.assert_allclose(whole(CONTRACT, case)["loss"], ran("minimal-torch", case).outputs["loss"], rtol=1e-14)


def test_no_two_covariances_are_equal_in_any_case() -> None:
    """Else which token is held back would be an accident of sorting."""
    import torch

    from annotator.contracts.sampling import draw
    from minimal.post_training import cov_torch

    for case in draw(CONTRACT, 20):
        given = [torch.tensor(case.inputs[name]) for name in ("log_prob", "advantages", "response_mask")]
        values = cov_torch.token_covariances(*given)[given[2]].sort().values
        gaps = values.diff()
        assert len(gaps) == 0 or gaps.min() > 1e-7, case.label
