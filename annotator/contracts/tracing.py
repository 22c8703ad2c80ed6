"""The kind *trace*: drives a stateful object through a list of operations and keeps what it shows after each.

Apart from `running`, which knows arrays only: here an object is made anew for every case, its methods are called in the
order of the rows, and its observables become arrays. From then on a trace is compared like any other result.

A row of the input ``operations [N, 1 + A]`` is an operation's number and its arguments, padded with 0. An argument
whose name begins with a star is a list: its length, then its entries. It is the last one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from annotator.contracts.comparison import error
from annotator.contracts.model import Call, Case, Contract, Operation, Output, Probe, Runner
from annotator.contracts.running import Fault, brief

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

PAD = -1
"""What fills an observable that is a list shorter than its axis."""

Argument = int | list[int]
Words = tuple[Any, ...]
"""An operation as one writes it down: its name, then its arguments."""


@dataclass(frozen=True)
class Step:
    """One operation with its arguments."""

    operation: Operation
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        names = (name.lstrip("*") for name in self.operation.arguments)
        given = ", ".join(f"{name}={value}" for name, value in zip(names, self.arguments, strict=True))
        return f"{self.operation.name}({given})"


def driven(make: Callable[..., Any], operations: Sequence[Operation], observables: Sequence[Output]) -> Call:
    """An `Implementation.call` that makes ``make(**knobs)``, runs the rows through its methods, and tells what it saw.

    ``make`` gets the knobs, and the inputs other than ``operations`` (a state to start from). The object has a method
    for each operation and, for each observable, an attribute, a property or a method without arguments.
    """
    table = tuple(operations)

    def call(operations: Any, **given: Any) -> Mapping[str, Any]:
        return observed(make(**given), steps(operations, table), observables)

    return call


def driving(
    kind: type, operations: Sequence[Operation], observables: Sequence[Output], names: Mapping[str, str], init: Any
) -> Callable[..., Mapping[str, np.ndarray]]:
    """A user's class as a function of ``operations`` and of what its constructor takes besides ``init``.

    ``names`` are the class's own names of operations and observables. Observables that it does not have are left out.

    Raises:
        LookupError: it has no method for an operation; its argument is that operation's name.
    """
    table = tuple(operations)
    for item in table:
        if not callable(getattr(kind, names.get(item.name, item.name), None)):
            raise LookupError(names.get(item.name, item.name))

    def function(operations: Any, **given: Any) -> Mapping[str, np.ndarray]:
        thing = kind(**init, **given)
        shown = [item for item in observables if hasattr(thing, names.get(item.name, item.name))]
        return observed(thing, steps(operations, table), shown, names)

    own = [item for item in inspect.signature(kind).parameters.values() if item.name not in init]
    first = inspect.Parameter("operations", inspect.Parameter.POSITIONAL_ONLY)
    function.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    function.__wrapped__ = kind.__init__  # type: ignore[attr-defined, misc]
    return function


def observed(
    thing: Any, taken: Sequence[Step], observables: Sequence[Output], names: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """The observables of ``thing`` after each step, ``[N]`` or ``[N, K]``. ``names`` are its own names, if others.

    Raises:
        Fault: a method raised, or an observable has another shape than the contract says.
    """
    own = dict(names or {})
    shown: dict[str, list[np.ndarray]] = {item.name: [] for item in observables}
    for number, step in enumerate(taken):
        _do(thing, step, number, own)
        for item in observables:
            shown[item.name].append(_read(thing, item, own.get(item.name, item.name)))
    return {item.name: _stacked(item, shown[item.name]) for item in observables}


def _do(thing: Any, step: Step, number: int, own: Mapping[str, str]) -> None:
    try:
        getattr(thing, own.get(step.operation.name, step.operation.name))(*map(_copied, step.arguments))
    except Exception as error:
        found = f"{brief(error)} in step {number}, {step}"
        raise Fault("raises", "call", expected="a result", found=found) from error


def _copied(argument: Argument) -> Argument:
    return list(argument) if isinstance(argument, list) else argument


def _read(thing: Any, item: Output, name: str) -> np.ndarray:
    """One observable as an array; a list shorter than an axis of known size is padded."""
    value = getattr(thing, name)
    value = value() if callable(value) else value
    array = np.array(value if np.isscalar(value) or hasattr(value, "shape") else list(value))
    array = array.astype(np.int64) if array.dtype.kind in "biu" or not array.size else array
    axes = item.shape[1:]
    if len(axes) == array.ndim == 1 and axes[0].isdigit() and len(array) < int(axes[0]):
        array = np.append(array, np.full(int(axes[0]) - len(array), PAD, dtype=array.dtype))
    return array


def _stacked(item: Output, values: list[np.ndarray]) -> np.ndarray:
    shapes = sorted({array.shape for array in values})
    if len(shapes) > 1:
        raise Fault("shape", item.name, expected="one shape in all steps", found=" and ".join(map(str, shapes)))
    sizes = [int(axis) if axis.isdigit() else 0 for axis in item.shape[1:]]
    return np.stack(values) if values else np.zeros((0, *sizes), dtype=np.int64)


def skeleton(contract: Contract) -> str:
    """A starting file for `diff`: a class with a method an operation and a property an observable."""
    name = contract.name.title().replace("-", "")
    state = [item for item in contract.inputs if item.name != "operations"]
    given = [item.name for item in state] + [f"{knob.name}={knob.default!r}" for knob in contract.knobs]
    takes = [(item.name, item.doc) for item in state] + [(knob.name, knob.doc) for knob in contract.knobs]
    lines = [
        f'"""{contract.title}: a starting file for `annotator diff FILE:{name} {contract.name}`."""',
        *("", "", f"class {name}:", f'    """{contract.title}.', "", "    Made anew for every run, with:"),
        *(f"        {key}: {doc}" for key, doc in takes),
        *('    """', ""),
        *_stub(f"__init__(self, {', '.join(given)})" if given else "__init__(self)", ""),
    ]
    for operation in contract.operations:
        arguments = "".join(f", {argument.lstrip('*')}" for argument in operation.arguments)
        lines += ["", *_stub(f"{operation.name}(self{arguments})", operation.doc)]
    for output in contract.outputs:
        shape = f"[{', '.join(output.shape[1:])}] " if output.shape[1:] else ""
        lines += ["", "    @property", *_stub(f"{output.name}(self)", f"{shape}{output.doc}")]
    return "\n".join([*lines, ""])


def _stub(signature: str, doc: str) -> list[str]:
    told = [f'        """{doc[:1].upper()}{doc[1:]}."""'] if doc else []
    return [f"    def {signature}:", *told, "        raise NotImplementedError"]


# Rows -----------------------------------------------------------------------------------------------------------------


def steps(operations: Any, table: Sequence[Operation]) -> list[Step]:
    """The rows of ``operations`` as steps.

    Raises:
        Fault: a row has no operation's number.
    """
    return [_step([int(value) for value in row], table) for row in np.asarray(operations)]


def _step(row: list[int], table: Sequence[Operation]) -> Step:
    if not 0 <= row[0] < len(table):
        raise Fault("input", "operations", expected=f"a number below {len(table)}", found=str(row[0]))
    operation, rest, given = table[row[0]], row[1:], []
    for place, name in enumerate(operation.arguments):
        starred = name.startswith("*")
        given.append(rest[place + 1 : place + 1 + rest[place]] if starred else rest[place])
    return Step(operation, tuple(given))


def rows(words: Iterable[Words], table: Sequence[Operation], longest: int = 0) -> np.ndarray:
    """The array ``[N, 1 + A]`` of operations written down as ``("allocate", 0, [1, 2])``.

    ``longest`` is the most entries that a list among the arguments may have; all rows have the width for it.
    """
    numbers = {item.name: number for number, item in enumerate(table)}
    width = 1 + max(
        len(item.arguments) + longest * any(name.startswith("*") for name in item.arguments) for item in table
    )
    flat = [[numbers[name], *_flat(arguments)] for name, *arguments in words]
    return np.array([row + [0] * (width - len(row)) for row in flat], dtype=np.int64).reshape(-1, width)


def _flat(arguments: Iterable[Argument]) -> list[int]:
    return [n for item in arguments for n in ([len(item), *item] if isinstance(item, list) else [item])]


def sequences(
    table: Sequence[Operation],
    arguments: Mapping[str, SearchStrategy[Any]],
    *,
    longest: int = 0,
    most: int = 12,
    often: Sequence[str] = (),
) -> SearchStrategy[np.ndarray]:
    """Lists of 1 to ``most`` operations, as rows. Hypothesis shrinks them to few and early operations.

    ``arguments`` has a strategy for every name of an argument (without star). ``often`` names operations that are drawn
    more often, once more each time that they are named.
    """
    from hypothesis import strategies as st

    named = {item.name: item for item in table}

    def one(name: str) -> SearchStrategy[Words]:
        return st.tuples(st.just(name), *(arguments[a.lstrip("*")] for a in named[name].arguments))

    drawn = st.one_of(*map(one, (*named, *often)))
    return st.lists(drawn, min_size=1, max_size=most).map(lambda words: rows(words, table, longest))


# Probe ----------------------------------------------------------------------------------------------------------------


def injection(state: Mapping[str, str], *, name: str = "injection") -> Probe:
    """A run that starts in the middle goes on as the whole run did, if it is given the state that was reached there.

    ``state`` maps each input that the object starts from to the observable that shows it. What is not in the state and
    yet matters (a hidden counter, a cache that outlives a reset) breaks the relation.
    """

    def relation(run: Runner, case: Case) -> float | None:
        operations = np.asarray(case.inputs["operations"])
        half = len(operations) // 2
        if not half:
            return None
        whole = run(case)
        reached = {place: whole.outputs[shown][half - 1] for place, shown in state.items()}
        rest = run(replace(case, inputs={**case.inputs, **reached, "operations": operations[half:]}, label=""))
        pairs = [(rest.outputs[key], array[half:]) for key, array in whole.outputs.items()]
        return max(error(a, b, exact=b.dtype.kind != "f") for a, b in pairs)

    return Probe(name, "a run from the state in the middle goes on as the whole run did", relation)
