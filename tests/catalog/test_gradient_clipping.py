"""``gradient-clipping``: every reference and twin keeps it, every deviation breaks it, and what the references do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from annotator.catalog import contract, gradient_clipping
from annotator.contracts import Case, conform, dialect_is_real
from annotator.contracts.running import Fault, Result, run
from tests.catalog.seen import seen_by

CONTRACT = contract("gradient-clipping")
EDGES = {case.label: case for case in CONTRACT.edges()}
REFERENCES = ("torch-single", "torch-foreach", "torch-phases", "torch-fsdp", "verl-fsdp2")


def ran(name: str, case: Case, dtype: str = "float64", **knobs: Any) -> Result:
    item = CONTRACT.implementation(name)
    case = replace(case, knobs={**case.knobs, **item.dialect, **knobs})
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "probe"),
    [("shard-norm", "split"), ("shard-norm", "bound"), ("scaled-up", "short"), ("clip-by-value", "bound")],
)
def test_a_probe_sees_it_without_a_reference(name: str, probe: str) -> None:
    alone = tuple(item for item in CONTRACT.implementations if item.name in ("torch-single", "minimal-torch"))
    assert probe in seen_by(replace(CONTRACT, implementations=alone), name)


def test_a_deviation_in_an_implementations_place_does_not_conform() -> None:
    deviation = next(item for item in CONTRACT.deviations if item.name == "shard-norm")
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=deviation.call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("torch-single"), impostor))
    findings = conform(broken, names=("minimal-torch",), dtypes=("float64",), examples=5)
    assert [finding.passed for finding in findings] == [False]


def test_the_dialect_is_real() -> None:
    assert dialect_is_real(CONTRACT, "torch-single", examples=15) == []


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("label", ["one tensor on three shards", "largest entry", "cubes", "a shard of zeros"])
def test_no_reference_minds_the_cut(name: str, label: str) -> None:
    case = EDGES[label]
    joined = {item: np.zeros_like(case.inputs[item]) for item in ("tensor", "shard")}
    cut, whole = (ran(name, item, "float32") for item in (case, replace(case, inputs={**case.inputs, **joined})))
    np.testing.assert_allclose(cut.outputs["clipped"], whole.outputs["clipped"], rtol=1e-6)


def test_pytorch_clips_a_gradient_that_is_as_long_as_allowed() -> None:
    """eps is added whatever the norm is, so the result is a millionth shorter than it may be."""
    case = EDGES["exactly as long as allowed"]
    exact, shortened = ran("minimal-torch", case, eps=0.0), ran("torch-single", case)
    np.testing.assert_array_equal(exact.outputs["clipped"], case.inputs["gradients"])
    ratio = np.linalg.norm(shortened.outputs["clipped"]) / 5
    assert ratio == pytest.approx(1 / (1 + 1e-6 / 5), abs=1e-15)
    assert ratio < 1 - 1e-7


def test_one_infinite_entry_empties_the_gradient() -> None:
    clipped = ran("torch-single", EDGES["an infinite entry"]).outputs["clipped"]
    np.testing.assert_array_equal(clipped, [0, np.nan, 0, 0])


def test_fsdp_refuses_a_float64_gradient() -> None:
    """Its norms are forced to float32; PyTorch's own are of the gradient's dtype."""
    with pytest.raises(Fault, match="narrowing"):
        ran("torch-fsdp", EDGES["cubes"])
    assert ran("torch-fsdp", EDGES["cubes"], "bfloat16").outputs["total_norm"] > 4
    assert ran("torch-phases", EDGES["cubes"]).dtypes["total_norm"] == "float64"


def test_fsdp_reduces_over_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the reduction the adapter would show each rank's own norm: the zoo's deviation."""
    case, calls = EDGES["every entry on its own shard"], []
    whole = gradient_clipping._collective

    def counted(exchange: Any) -> Any:
        def wrapped(value: Any, **options: Any) -> None:
            calls.append(value)
            exchange(value, **options)

        return whole(wrapped)

    monkeypatch.setattr(gradient_clipping, "_collective", counted)
    ran("torch-fsdp", case, dtype="float32")
    assert len(calls) == 12
    assert len({float(value) for value in calls[6:]}) == 1
    assert len({float(value) for value in calls[:6]}) == 6


def test_an_adapter_leaves_fsdp_and_verl_as_they_were() -> None:
    fsdp, verl = gradient_clipping._fsdp(), gradient_clipping._verl()
    before = fsdp._lazy_init, fsdp.dist.all_reduce, verl.get_device_id
    for name in ("torch-fsdp", "verl-fsdp2"):
        ran(name, EDGES["too long"], "float32")
    assert (fsdp._lazy_init, fsdp.dist.all_reduce, verl.get_device_id) == before


@pytest.mark.slow
def test_who_writes_no_eps_is_told_the_dialect(tmp_path: Any) -> None:
    """As optax does it: nothing is added to the norm, and nothing is done below the bound."""
    from annotator.contracts import diff

    file = tmp_path / "theirs.py"
    file.write_text(
        "import torch\n\n\ndef clip(gradients, max_norm, norm_type):\n"
        "    norm = torch.linalg.vector_norm(gradients, norm_type) if len(gradients) else gradients.sum()\n"
        "    return (gradients if norm < max_norm else gradients * (max_norm / norm)), norm\n"
    )
    verdict = diff(file, "clip", CONTRACT, examples=8)
    assert verdict.explanation is not None
    assert verdict.explanation.kind == "dialect"
    assert verdict.explanation.moved == {"eps": 0.0}
