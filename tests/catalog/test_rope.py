"""``rope``: vLLM and the twins keep it in both conventions, every deviation breaks it, and position 0 hides most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract
from annotator.catalog import rope as adapters
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import Result, run
from annotator.errors import AnnotatorError
from tests.catalog.seen import seen_by

CONTRACT = contract("rope")
EDGES = {case.label: case for case in CONTRACT.edges()}
DEVIATIONS = {item.name: item for item in CONTRACT.deviations}


@pytest.fixture(scope="module")
def vllm() -> Any:
    try:
        return adapters._vllm()
    except (AnnotatorError, ModuleNotFoundError) as error:
        pytest.skip(f"the pin of vLLM cannot be run here: {error}")


def ran(name: str, case: Case, dtype: str = "float32", **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    return run(
        CONTRACT, item.call, item.backend, replace(case, knobs={**case.knobs, **item.dialect, **knobs}), dtype=dtype
    )


@pytest.mark.parametrize(
    ("name", "seen", "unseen"),
    [
        ("position-from-one", "start", "relative"),
        ("position-by-row", "permutation", "length"),
        ("written-otherwise", "start", "length"),
        ("unsigned", "length", "start"),
        ("query-kept", "relative", "length"),
        ("narrow-angle", "relative", "start"),
    ],
)
def test_what_a_probe_sees_without_a_reference(vllm: Any, name: str, seen: str, unseen: str) -> None:
    probes = seen_by(CONTRACT, name)
    assert seen in probes
    assert unseen not in probes


@pytest.mark.parametrize("name", ["convention-interchanged", "backwards"])
def test_what_no_probe_sees_since_it_is_a_rotation_too(vllm: Any, name: str) -> None:
    assert set(seen_by(CONTRACT, name)) <= {"value", "gradient", "edge"}


@pytest.mark.parametrize("label", ["position 0", "position 0, neighbours"])
def test_position_0_hides_the_convention(label: str) -> None:
    case, wrong = EDGES[label], DEVIATIONS["convention-interchanged"].call
    found = run(CONTRACT, wrong, "torch", case).outputs["rotated_query"]
    np.testing.assert_array_equal(found, case.inputs["query"])
    later = replace(case, inputs={**case.inputs, "positions": np.array([1, 1, 1])})
    found = run(CONTRACT, wrong, "torch", later).outputs["rotated_query"]
    assert np.abs(found - ran("minimal-torch", later, "float64").outputs["rotated_query"]).max() > 0.5


def test_a_deviation_in_an_implementations_place_does_not_conform(vllm: Any) -> None:
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=DEVIATIONS["convention-interchanged"].call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("vllm-neox"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


@pytest.mark.parametrize("name", ["vllm-neox", "vllm-gptj"])
def test_the_dialect_is_real(vllm: Any, name: str) -> None:
    assert dialect_is_real(CONTRACT, name, examples=15) == []


def test_vllm_makes_its_table_in_float32(vllm: Any) -> None:
    """Given float64 heads it still errs by a float32 angle: why the oracle is ours."""
    case = EDGES["far apart"]
    exact = ran("minimal-torch", case, "float64").outputs["rotated_query"]
    error = np.abs(ran("vllm-neox", case, "float64").outputs["rotated_query"] - exact).max()
    assert 1e-9 < error < 1e-4


def test_the_class_that_runs_is_that_of_the_pin(vllm: Any) -> None:
    layer = adapters._layer(8, 4, 512, 10000.0, False)
    assert (layer.rotary_dim, layer.head_size, layer.is_neox_style) == (4, 8, False)
    assert type(layer).__module__ == "vllm.model_executor.layers.rotary_embedding.base"
