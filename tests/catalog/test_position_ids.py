"""``position-ids``: every implementation keeps it, every deviation breaks it; references part at padding only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from annotator.catalog import contract
from annotator.catalog._third_party import pinned
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import run

CONTRACT = contract("position-ids")
EDGES = {case.label: case for case in CONTRACT.edges()}
REFERENCES = ("verl", "verl-images", "trl")


def positions(name: str, case: Case) -> np.ndarray:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect})
    return run(CONTRACT, item.call, item.backend, case).outputs["position_ids"]


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "slots-counted")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("verl"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", REFERENCES)
def test_the_dialect_is_real(name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


def test_the_references_agree_on_real_tokens_and_nowhere_else() -> None:
    case = EDGES["holes: a prompt that ends before its response begins"]
    real = case.inputs["attention_mask"]
    found = [positions(name, case) for name in REFERENCES]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        np.testing.assert_array_equal(found[one][real], found[other][real])
        assert (found[one] != found[other])[~real].any()


def test_eight_bits_would_not_do() -> None:
    """The edge that shows it is long enough, and verl is handed int64 by its callers."""
    case = EDGES["more tokens than eight bits count"]
    assert positions("verl", case).max() == 279


def test_what_runs_is_that_of_the_pins() -> None:
    import inspect

    verl = pinned("verl:verl.utils.model").compute_position_id_with_mask
    trl = pinned("trl:trl.experimental.utils").get_reward
    for name, function in (("verl", verl), ("trl", trl)):
        file = inspect.getsourcefile(function)
        assert any(part.startswith(f"{name}-") for part in Path(file or "").resolve().parts), file
