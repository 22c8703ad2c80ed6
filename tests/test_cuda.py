"""The contracts on a GPU, in all four dtypes: `pytest -m cuda`. Two cheap ones show on the CPU that the test can run.

``ANNOTATOR_CONTRACTS`` restricts them to some, separated by blanks.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from annotator import catalog
from annotator.contracts import conform
from annotator.contracts.conforming import unavailable
from annotator.contracts.model import LOW, Implementation

DTYPES = ("float64", "float32", *LOW)
NAMES = os.environ.get("ANNOTATOR_CONTRACTS", "").split() or catalog.names()
CHEAP = [name for name in ("grpo-advantage", "loss-aggregation") if name in NAMES]


def parameters() -> list[Any]:
    """Device, dtype and contract: all on the GPU, the dtypes below float32 of cheap ones on the CPU."""
    on = {"cuda": (DTYPES, NAMES, pytest.mark.cuda), "cpu": (LOW, CHEAP, pytest.mark.slow)}
    return [
        pytest.param(device, dtype, name, marks=mark, id=f"{device}-{dtype}-{name}")
        for device, (dtypes, names, mark) in on.items()
        for name in names
        for dtype in dtypes
    ]


def lacking(device: str) -> str:
    """Why torch cannot use the device, or an empty string."""
    return unavailable(Implementation("torch", "minimal", "torch", dict, ()), device)


@pytest.mark.parametrize(("device", "dtype", "name"), parameters())
def test_a_contract_holds(device: str, dtype: str, name: str) -> None:
    if reason := lacking(device):
        pytest.skip(reason)
    found = conform(catalog.contract(name), device=device, dtypes=[dtype], examples=10)
    failed = [finding.line() for finding in found if finding.status == "failed"]
    assert not failed, "\n".join(failed)
    if not any(finding.passed for finding in found):
        reasons = dict.fromkeys(finding.reason for finding in found)
        pytest.skip("; ".join(reasons) or f"{name} has no {dtype}")


def test_without_a_gpu_it_is_skipped_by_name() -> None:
    assert lacking("cpu") == ""
    assert lacking("cuda") in ("", "torch sees no cuda")
