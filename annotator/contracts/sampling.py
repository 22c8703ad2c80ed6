"""Which cases are tried: Hypothesis draws them from a contract's strategy, and shrinks the one that tells two apart.

Everything here is deterministic: a fixed seed, no example database, budgets counted in calls and not in seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from annotator.contracts.model import Case, Contract

SEED = 20240229


def _settings(examples: int, *, shrink: bool) -> Any:
    from hypothesis import HealthCheck, Phase, settings

    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=_quiet(),
    )


def _quiet() -> Any:
    from hypothesis import Verbosity

    return Verbosity.quiet


def _drive(contract: Contract, visit: Callable[[Case], None], examples: int, *, shrink: bool) -> None:
    """Shows ``visit`` up to ``examples`` cases; with ``shrink``, smaller ones of those on which it raised."""
    from hypothesis import given, seed

    def drive(case: Case) -> None:
        visit(case)

    run = seed(SEED)(_settings(examples, shrink=shrink)(given(contract.cases())(drive)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()


def draw(contract: Contract, examples: int = 40) -> tuple[Case, ...]:
    """All edge cases of the contract, then ``examples`` drawn ones; the same ones every time."""
    drawn: list[Case] = []
    if examples:
        _drive(contract, drawn.append, examples, shrink=False)
    return (*contract.edges(), *drawn)


class _Found(Exception):
    """Raised inside Hypothesis where the predicate holds."""


def witness(
    contract: Contract,
    differs: Callable[[Case], bool],
    *,
    examples: int = 100,
    budget: int = 600,
    known: Sequence[Case] = (),
) -> Case | None:
    """A small case on which ``differs`` holds, shrunk by Hypothesis; None when there is none.

    Where Hypothesis draws none, the smallest one among ``known`` and the edge cases is the answer.
    ``budget`` bounds the calls of ``differs``; the smallest case seen by then is the answer.
    """
    seen: list[Case] = []
    calls = 0

    def visit(case: Case) -> None:
        nonlocal calls
        calls += 1
        if calls <= budget and differs(case):
            seen.append(case)
            raise _Found

    try:
        _drive(contract, visit, examples, shrink=True)
    except Exception:
        # Hypothesis calls the test flaky once the budget has run out under it; what was seen still holds.
        if not seen:
            raise
    others = () if seen else sorted((*known, *contract.edges()), key=size)
    # Of cases of one size the one seen last: Hypothesis goes on from what is simpler to it.
    return min(reversed(seen), key=size) if seen else next((case for case in others if differs(case)), None)


def size(case: Case) -> tuple[int, int, int]:
    """How much there is to read in a case: entries, then entries that are not 0, then digits."""
    arrays = [np.asarray(array) for array in case.inputs.values()]
    digits = sum(len(repr(value)) for array in arrays for value in array.ravel().tolist())
    return sum(a.size for a in arrays), sum(int(np.count_nonzero(a)) for a in arrays), digits
