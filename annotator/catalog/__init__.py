"""The contracts themselves, one file a topic, with the adapters that call each reference.

A file ``some_name.py`` here defines ``CONTRACT``, the contract ``some-name``. Files import torch, jax and references
inside their functions only, so that listing the catalogue is fast.
"""

from __future__ import annotations

import importlib
import pkgutil

from annotator.catalog._formulas import FORMULAS, Formula
from annotator.contracts.model import Contract
from annotator.errors import ContractError, did_you_mean, near_matches


def names() -> tuple[str, ...]:
    """The names of all contracts, sorted."""
    return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def contract(name: str) -> Contract:
    """The contract of that name.

    Raises:
        ContractError: there is none; near matches are suggested.
    """
    if name not in names():
        remedy = did_you_mean(near_matches(name, names())) or f"the catalogue has {', '.join(names())}"
        raise ContractError(name, expected="a contract of the catalogue", found="none of that name", remedy=remedy)
    module = importlib.import_module(f"annotator.catalog.{name.replace('-', '_')}")
    found: Contract = module.CONTRACT
    return found


def formula(name: str) -> Formula:
    """The formula of a contract, for a page.

    Raises:
        ContractError: none is written.
    """
    if name not in FORMULAS:
        remedy = "write it in annotator/catalog/_formulas.py"
        raise ContractError(name, expected="a formula of the contract", found="none", remedy=remedy)
    return FORMULAS[name]
