"""How far one result is from another. Apart from running, so that what counts as equal is stated in one place.

The error of an array ``a`` against the oracle's ``o`` is normwise::

    error = max|a - o| / max(max|o|, share * condition)        over entries that are finite in o

with the non-finite pattern required identical. ``condition`` is how fast the oracle itself moves when its inputs move
relatively (see `oracle`); it only matters where rounding the inputs alone moves the result by more than the result's
own size: the mean of equal rewards minus each of them is 0, and 1e-17 is as right an answer. ``share`` is what rounding
``n`` inputs can use up of it at the bound in force.

Exact outputs have error 0 or infinity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from annotator.contracts.model import Contract
from annotator.contracts.running import ROUNDOFF, Interface, Result

FLOAT64_BOUND = 1e-10
"""The relative agreement that DESIGN.md asks for in float64."""

GRADIENT = "gradient of "
"""What precedes an input's name where an error is that of its gradient."""

_TINY = 1e-300
"""Below this a scale is 0: no relative error can be told."""


def bound(dtype: str, reference_error: float) -> float:
    """What an implementation may err in ``dtype``, the reference having erred by ``reference_error`` on the same cases.

    Twice the reference's own error, which counts as one unit roundoff at least: the result has to be rounded.
    """
    return FLOAT64_BOUND if dtype == "float64" else 2.0 * max(reference_error, ROUNDOFF[dtype])


def error(found: np.ndarray, expected: np.ndarray, *, exact: bool = False, condition: float = 0.0) -> float:
    """The error of ``found`` against ``expected``: 0 when equal, infinite when shapes or non-finite entries differ."""
    if found.shape != expected.shape or not _same_pattern(found, expected):
        return float("inf")
    if exact:
        return 0.0 if np.array_equal(found, expected, equal_nan=True) else float("inf")
    finite = np.isfinite(expected)
    if not finite.any():
        return 0.0
    with np.errstate(over="ignore"):
        apart = np.abs(found[finite].astype(np.float64) - expected[finite].astype(np.float64)).max()
    scale = max(float(np.abs(expected[finite]).max()), condition)
    return 0.0 if apart == 0 else float(apart / scale) if scale > _TINY else float("inf")


def _same_pattern(found: np.ndarray, expected: np.ndarray) -> bool:
    """NaN where NaN, and the same infinities."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    odd = ~np.isfinite(b)
    return bool(np.array_equal(~np.isfinite(a), odd) and np.array_equal(a[odd], b[odd], equal_nan=True))


def errors(
    contract: Interface,
    found: Result,
    expected: Result,
    *,
    gradient: bool = True,
    condition: Callable[[str], float] | None = None,
    enough: float = 4 * ROUNDOFF["float64"],
) -> dict[str, float]:
    """The error of every output, and under ``gradient of NAME`` of every gradient that both carry.

    ``condition`` is asked only where the plain error is not below ``enough``, since it costs oracle runs.
    """
    parts = {
        item.name: (found.outputs[item.name], expected.outputs[item.name], item.exact)
        for item in contract.outputs
        if item.name in found.outputs
    }
    if gradient:
        shared = [name for name in expected.gradients if name in found.gradients]
        parts |= {GRADIENT + name: (found.gradients[name], expected.gradients[name], False) for name in shared}
    return {key: _conditioned(key, *part, condition, enough) for key, part in parts.items()}


def _conditioned(
    key: str,
    found: np.ndarray,
    expected: np.ndarray,
    exact: bool,
    condition: Callable[[str], float] | None,
    enough: float,
) -> float:
    plain = error(found, expected, exact=exact)
    if (
        condition is None
        or exact
        or found.shape != expected.shape
        or plain < enough
        or not _same_pattern(found, expected)
    ):
        return plain
    return error(found, expected, condition=condition(key))


def split(parts: dict[str, float]) -> tuple[float, float]:
    """The largest error over outputs, and over gradients."""
    values = [value for key, value in parts.items() if not key.startswith(GRADIENT)]
    gradients = [value for key, value in parts.items() if key.startswith(GRADIENT)]
    return max(values, default=0.0), max(gradients, default=0.0)


def part(result: Result, key: str) -> np.ndarray:
    """The array that ``key`` names: an output, or the gradient of an input."""
    return result.gradients[key.removeprefix(GRADIENT)] if key.startswith(GRADIENT) else result.outputs[key]


def first_difference(
    found: np.ndarray, expected: np.ndarray, limit: float, *, exact: bool = False
) -> tuple[int, ...] | None:
    """The index of the first entry that is too far off, in reading order (a trajectory's first axis is its step)."""
    if found.shape != expected.shape:
        return None
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    scale = 0.0 if exact or not finite.any() else float(np.abs(b[finite]).max())
    with np.errstate(all="ignore"):
        off = np.where(
            finite & np.isfinite(a), np.abs(a - b) > limit * scale, ~((a == b) | (np.isnan(a) & np.isnan(b)))
        )
    hits = np.argwhere(off)
    return tuple(int(i) for i in hits[0]) if len(hits) else None


def is_exact(contract: Contract | Interface, key: str) -> bool:
    """Whether ``key`` names an output that must agree bit for bit."""
    return any(item.name == key and item.exact for item in contract.outputs)
