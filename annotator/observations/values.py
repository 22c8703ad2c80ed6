"""A value in a few words: type, dtype, shape, range, first numbers. Knows torch, NumPy and JAX by their look alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from annotator.observations.model import Seen

FEW = 6
"""How many numbers of an array are shown."""
LONG = 60
"""Characters of a plain value."""


def describe(name: str, value: Any) -> Seen:
    """What is seen of a value now; nothing of it is kept, because code may change it later."""
    if hasattr(value, "keys") and not isinstance(value, type):
        items = [f"{_plain(key)}: {describe('', value[key]).text or '…'}" for key in [*value.keys()][:FEW]]
        return Seen(name, type(value).__name__, shape=(len(value.keys()),), text=_short(", ".join(items)))
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        return _array(name, value)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, slice, range)):
        return Seen(name, type(value).__name__, text=_plain(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _several(name, value)
    return Seen(name, type(value).__name__, text=_short(getattr(value, "__name__", "")))


def _several(name: str, values: Sequence[Any] | Any) -> Seen:
    """A collection by its length and its first elements."""
    shown = []
    for value in [*values][:FEW]:
        seen = describe("", value)
        shown.append(f"{seen.type} {list(seen.shape)}" if seen.shape else seen.text)
    return Seen(name, type(values).__name__, shape=(len(values),), text=_short(", ".join(shown)))


def _array(name: str, value: Any) -> Seen:
    """A tensor or an array."""
    kind = "tensor" if type(value).__module__.startswith("torch") else "array"
    dtype, shape = str(value.dtype).removeprefix("torch."), tuple(int(size) for size in value.shape)
    try:
        flat = _numbers(value)
    except Exception:  # no numbers can be had of it (a fake tensor, a structured array): its shape must do
        return Seen(name, kind, dtype, shape)
    finite = [x for x in flat if not isinstance(x, float) or math.isfinite(x)]
    numeric = bool(finite) and not isinstance(finite[0], (bool, str, bytes)) and bool(shape)
    low, high = (number(min(finite)), number(max(finite))) if numeric else ("", "")
    text = ", ".join(map(_plain, flat[:FEW])) + (", …" if len(flat) > FEW else "")
    if dtype == "bool" and len(flat) > 1:
        text += f" ({sum(flat)} of {len(flat)} True)"
    return Seen(name, kind, dtype, shape, text, low, high)


def _numbers(value: Any) -> list[Any]:
    """All numbers of an array, as Python's own."""
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.float() if str(value.dtype) in ("torch.bfloat16", "torch.float16") else value
    found: list[Any] = value.reshape(-1).tolist()
    return found


def number(value: Any) -> str:
    """A number in at most four significant digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _short(str(value))
    return (str(value) if isinstance(value, int) else f"{value + 0.0:.4g}").replace("-", "−")


def _plain(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number(value)
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= LONG else text[: LONG - 1] + "…"
