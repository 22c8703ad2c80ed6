"""Probes that need no reference: relations between runs of one function that right code keeps.

Each maker here returns a `Probe` for a contract that has the axes, masks and knobs it names. Apart from the comparison
with an oracle because a probe also tells something of a function that no implementation of the catalogue resembles:
it reads what it must not, or it counts what was padded.

All relations are judged as everything else is: float64, normwise, 1e-10 relative, the gradient taken along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from annotator.contracts.comparison import FLOAT64_BOUND, GRADIENT, error
from annotator.contracts.model import Case, Input, Output, Probe, Runner
from annotator.contracts.running import ROUNDOFF, Result, normal, rounded

Axes = Mapping[str, tuple[str, ...]]
Masks = Mapping[str, str]


def axes_of(inputs: Sequence[Input], outputs: Sequence[Output]) -> Axes:
    """The axes of every input and output of a contract."""
    return {**{item.name: item.shape for item in inputs}, **{item.name: item.shape for item in outputs}}


def poison(masks: Masks, *, value: float = float("nan"), name: str = "poison") -> Probe:
    """What lies under a mask's False must not matter: ``masks`` maps an input to the mask that covers it.

    The covered slots are filled with ``value`` (not a number, so that a product with 0 is seen too; give a large finite
    number for a weaker probe under another name). The result must be as before, and no gradient may flow to them.
    """

    def relation(run: Runner, case: Case) -> float | None:
        covered = {item: ~_spread(case, mask, item) for item, mask in masks.items()}
        if not any(hidden.any() for hidden in covered.values()):
            return None
        filled = {item: np.where(hidden, value, case.inputs[item]) for item, hidden in covered.items()}
        before, after = run(case), run(_with(case, filled))
        leaks = [np.abs(after.gradients[item])[hidden] for item, hidden in covered.items() if item in after.gradients]
        worst = max((float(np.nan_to_num(leak, nan=np.inf).max(initial=0.0)) for leak in leaks), default=0.0)
        return max(apart(after, before, case), float("inf") if worst > 0 else 0.0)

    return Probe(name, f"what lies in masked slots of {_listed(masks)} does not matter", relation)


def padding(axes: Axes, axis: str, fill: Mapping[str, Any], *, name: str = "padding", columns: int = 2) -> Probe:
    """More padding changes nothing: ``columns`` slots are added at the end of ``axis``.

    ``fill`` says what each input along ``axis`` holds there (its mask: False). Outputs and gradients along the axis are
    compared up to the old width.
    """

    def relation(run: Runner, case: Case) -> float | None:
        width = next(np.shape(case.inputs[item])[axes[item].index(axis)] for item in fill)
        longer = {
            item: _longer(case.inputs[item], axes[item].index(axis), columns, value) for item, value in fill.items()
        }
        before, after = run(case), _cut(run(_with(case, longer)), axes, axis, slice(0, width))
        return apart(after, before, case, gradient=_scalar(before, axes, axis))

    return Probe(name, f"{columns} more padded slots along {axis} change nothing", relation)


def permutation(axes: Axes, axis: str, *, name: str = "permutation") -> Probe:
    """Rows may come in any order: a permutation of ``axis`` permutes what lies along it and changes nothing else."""

    def relation(run: Runner, case: Case) -> float | None:
        along = [item for item in case.inputs if axis in axes[item]]
        size = np.shape(case.inputs[along[0]])[axes[along[0]].index(axis)]
        if size < 2:
            return None
        order = np.random.default_rng(size).permutation(size)
        order = np.roll(order, 1) if order[0] == 0 else order
        moved = {item: np.take(case.inputs[item], order, axes[item].index(axis)) for item in along}
        before, after = run(case), run(_with(case, moved))
        return apart(after, _cut(before, axes, axis, order), case, gradient=_scalar(before, axes, axis))

    return Probe(name, f"another order along {axis} only reorders the result", relation)


def split(
    axes: Axes,
    axis: str,
    *,
    parts: Callable[[Case], Sequence[np.ndarray]] | None = None,
    name: str = "split",
) -> Probe:
    """Micro-batches add up: the batch is cut along ``axis``; outputs along it are put together, all others are summed.

    ``parts`` gives the rows of each micro-batch (two uneven runs of rows unless given); what does not lie along the
    axis (a global count) stays as it is.
    """

    def relation(run: Runner, case: Case) -> float | None:
        along = [item for item in case.inputs if axis in axes[item]]
        size = np.shape(case.inputs[along[0]])[axes[along[0]].index(axis)]
        rows = parts(case) if parts else (np.arange(size)[: size // 3 or 1], np.arange(size)[size // 3 or 1 :])
        if len(rows) < 2 or any(len(part) == 0 for part in rows):
            return None
        cut = [
            run(_with(case, {item: np.take(case.inputs[item], part, axes[item].index(axis)) for item in along}))
            for part in rows
        ]
        order = np.argsort(np.concatenate(rows), kind="stable")
        whole = run(case)
        return apart(_joined(cut, axes, axis, order), whole, case, gradient=_scalar(whole, axes, axis))

    return Probe(name, f"micro-batches along {axis} add up to the batch", relation)


def identity(
    name: str, doc: str, prepare: Callable[[Case], Case | None], expected: Callable[[Case], Mapping[str, Any]]
) -> Probe:
    """On prepared inputs the result is known: ``expected`` maps outputs (or ``gradient of INPUT``) to their values.

    ``prepare`` returns None where the case says nothing. The on-policy log-ratio 0 is of this kind.
    """

    def relation(run: Runner, case: Case) -> float | None:
        ready = prepare(case)
        if ready is None:
            return None
        result, worst = run(ready), 0.0
        for key, value in expected(ready).items():
            found = (
                result.gradients.get(key.removeprefix(GRADIENT))
                if key.startswith(GRADIENT)
                else result.outputs.get(key)
            )
            if found is not None:
                worst = max(worst, _absolute(found, np.asarray(value, dtype=np.float64)))
        return worst

    return Probe(name, doc, relation)


def _absolute(found: np.ndarray, value: np.ndarray) -> float:
    """The error against a known value; where that is 0 throughout, in units of 1."""
    plain = np.broadcast_to(value, found.shape)
    return (
        error(found.astype(np.float64), plain)
        if np.abs(plain).max(initial=0.0) > 0
        else float(np.abs(found).max(initial=0.0))
    )


def growth(*, name: str = "growth") -> Probe:
    """Float32 stays as near to float64 as its rounding allows: ``n`` roundings of the inputs and of the result.

    The error is taken in units of what they can do, ``n u (|o| + condition)``, with u the unit roundoff, n the entries
    of the input and the condition measured on the function itself. Scaled so that the bound of float64 stands for 1.
    """

    def relation(run: Runner, case: Case) -> float | None:
        narrow = _rounded(case)
        wide, low = run(narrow), run(narrow, dtype="float32")
        moved = run(_perturbed(narrow))
        entries = max((np.size(array) for array in case.inputs.values()), default=1)
        worst = 0.0
        for key, array in wide.outputs.items():
            if array.dtype.kind == "f":
                slope = _slope(array, moved.outputs[key])
                worst = max(worst, error(_clipped(low.outputs[key]), _clipped(array), condition=slope))
        return worst * FLOAT64_BOUND / (entries * ROUNDOFF["float32"])

    return Probe(name, "float32 errs no more than rounding explains", relation)


_NUDGE = 2.0**-40


def _rounded(case: Case) -> Case:
    """The case with its floats rounded to float32."""
    floats = {name: rounded(a, "float32") for name, a in case.inputs.items() if np.asarray(a).dtype.kind == "f"}
    return _with(case, floats)


def _perturbed(case: Case) -> Case:
    random = np.random.default_rng(0)
    floats = {
        name: a * (1 + _NUDGE * random.choice([-1.0, 1.0], np.shape(a)))
        for name, a in case.inputs.items()
        if np.asarray(a).dtype.kind == "f"
    }
    return _with(case, floats)


def _slope(before: np.ndarray, after: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        moved = np.abs(after - before)
    return float(moved[np.isfinite(moved)].max(initial=0.0)) / _NUDGE


def _clipped(array: np.ndarray) -> np.ndarray:
    """What float32 can hold: larger results count as infinite on both sides."""
    return np.where(np.abs(array) > _LARGEST, np.copysign(np.inf, array), array)


_LARGEST = 1e38


def apart(found: Result, expected: Result, case: Case, *, gradient: bool = True) -> float:
    """The largest error between two results of one function, over outputs and, where asked for, gradients.

    Where both are what rounding left of a difference of equals, they are the same: a scale below a rounding of the
    case's own size counts as that rounding.
    """
    floats = [np.abs(a) for a in map(np.asarray, case.inputs.values()) if a.dtype.kind == "f"]
    size = max((float(a[np.isfinite(a)].max(initial=0.0)) for a in floats), default=0.0)
    entries = max((np.size(array) for array in case.inputs.values()), default=1)
    share = min(1.0, entries * ROUNDOFF["float64"] / FLOAT64_BOUND)
    pairs = [(found.outputs[name], array, share * size) for name, array in expected.outputs.items()]
    if gradient:
        terms = [
            np.nan_to_num(expected.outputs[n], posinf=0, neginf=0) * normal(n, expected.outputs[n].shape)
            for n in expected.carried
        ]
        unit = sum(float(np.abs(term).sum()) for term in terms) / size if size else 0.0
        shared = [name for name in expected.gradients if name in found.gradients]
        pairs += [(found.gradients[name], expected.gradients[name], share * unit) for name in shared]
    return max((error(a, b, exact=b.dtype.kind != "f", condition=c) for a, b, c in pairs), default=0.0)


def _scalar(result: Result, axes: Axes, axis: str) -> bool:
    """Whether gradients can be compared: only then do outputs have the same weights on both sides."""
    return all(axis not in axes[name] for name in result.carried)


def _with(case: Case, inputs: Mapping[str, np.ndarray]) -> Case:
    return replace(case, inputs={**case.inputs, **inputs}, label="")


def _spread(case: Case, mask: str, item: str) -> np.ndarray:
    """A mask in the shape of an input: axes that the mask lacks are added at the end."""
    kept = np.asarray(case.inputs[mask], dtype=bool)
    shape = np.shape(case.inputs[item])
    return np.broadcast_to(kept.reshape(kept.shape + (1,) * (len(shape) - kept.ndim)), shape)


def _longer(array: np.ndarray, axis: int, columns: int, value: Any) -> np.ndarray:
    shape = list(np.shape(array))
    shape[axis] = columns
    return np.concatenate([array, np.full(shape, value, dtype=np.asarray(array).dtype)], axis=axis)


def _cut(result: Result, axes: Axes, axis: str, rows: slice | np.ndarray) -> Result:
    """A result restricted to (or reordered by) some places along an axis."""

    def of(name: str, array: np.ndarray) -> np.ndarray:
        if axis not in axes[name]:
            return array
        index: tuple[Any, ...] = (slice(None),) * axes[name].index(axis) + (rows,)
        cut: np.ndarray = array[index]
        return cut

    return replace(
        result,
        outputs={name: of(name, array) for name, array in result.outputs.items()},
        gradients={name: of(name, array) for name, array in result.gradients.items()},
    )


def _joined(cut: Sequence[Result], axes: Axes, axis: str, order: np.ndarray) -> Result:
    def join(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
        if axis not in axes[name]:
            summed: np.ndarray = np.sum(arrays, axis=0)
            return summed
        return np.take(np.concatenate(arrays, axis=axes[name].index(axis)), order, axes[name].index(axis))

    first = cut[0]
    return replace(
        first,
        outputs={name: join(name, [part.outputs[name] for part in cut]) for name in first.outputs},
        gradients={name: join(name, [part.gradients[name] for part in cut]) for name in first.gradients},
    )


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(names)
