"""Why it is believed: contracts, how cases are drawn, run and compared, what a user's function is told, and proofs.

`model` says what a contract is made of and imports nothing heavy. The engine needs NumPy, Hypothesis and the
backends, so its names load on first use: listing contracts stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotator import lazy
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

_HOMES = {
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
    "proofs": "proofs",
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

__getattr__ = lazy.names(__name__, _HOMES)
