"""What sees a deviation: a row of the kill matrix, for claims on single ones."""

from __future__ import annotations

from dataclasses import replace

from annotator.contracts import Contract, power


def seen_by(contract: Contract, name: str, examples: int = 15) -> tuple[str, ...]:
    """The probes that catch a deviation in float64."""
    chosen = tuple(item for item in contract.deviations if item.name == name)
    (row,) = power(replace(contract, deviations=chosen, rewritings=()), examples=examples, dtypes=("float64",))
    return row.probes
