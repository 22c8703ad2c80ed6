"""Why it is believed: contracts, how cases are drawn, run and compared, what a user's function is told, and proofs.

`model` says what a contract is made of and imports nothing heavy. The engine needs NumPy, Hypothesis and the
backends, so its names load on first use: listing contracts stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from annotator.contracts.model import (
    Case,
    Contract,
    Deviation,
    Implementation,
    Input,
    Knob,
    Operation,
    Output,
    Probe,
    Rewriting,
    Stage,
)

if TYPE_CHECKING:
    from annotator.contracts import proofs
    from annotator.contracts.conforming import conform
    from annotator.contracts.diffing import Verdict, diff, template
    from annotator.contracts.findings import Finding, Witness
    from annotator.contracts.kills import Kill, dialect_is_real, power, refuse
    from annotator.contracts.spreading import conform_all

_LAZY = {
    "conform": "conforming",
    "conform_all": "spreading",
    "diff": "diffing",
    "template": "diffing",
    "Verdict": "diffing",
    "Finding": "findings",
    "Witness": "findings",
    "Kill": "kills",
    "dialect_is_real": "kills",
    "power": "kills",
    "refuse": "kills",
}

__all__ = [
    "Case",
    "Contract",
    "Deviation",
    "Finding",
    "Implementation",
    "Input",
    "Kill",
    "Knob",
    "Operation",
    "Output",
    "Probe",
    "Rewriting",
    "Stage",
    "Verdict",
    "Witness",
    "conform",
    "conform_all",
    "dialect_is_real",
    "diff",
    "power",
    "proofs",
    "refuse",
    "template",
]


def __getattr__(name: str) -> Any:
    if name == "proofs":
        return importlib.import_module(f"{__name__}.proofs")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
