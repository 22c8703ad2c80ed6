"""For the tests of a user's own project: does my function still do what the reference does?

    from annotator.testing import assert_conforms

    def test_my_advantage():
        assert_conforms(my_advantage, "grpo-advantage", to="verl")

Apart from the command line because a test hands over a function object, which runs in the test's own process: closures,
methods and fixtures work. ``"FILE:FUNC"`` instead runs in a process of its own, as ``annotator diff`` runs it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from annotator.contracts.model import Backend, Case, Contract, Implementation
from annotator.errors import AnnotatorError, ContractError, UserCodeError, did_you_mean, near_matches

if TYPE_CHECKING:
    from annotator.contracts.findings import Finding
    from annotator.contracts.running import Result

EXAMPLES = 25
"""Generated cases, besides the named edge cases; the same ones every time."""

__all__ = ["assert_conforms"]


def assert_conforms(
    function: Callable[..., Any] | str,
    contract: Contract | str,
    *,
    mapping: Mapping[str, str] | None = None,
    to: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    examples: int = EXAMPLES,
    backend: str | None = None,
    device: str = "cpu",
) -> None:
    """Asserts that ``function`` computes what a reference of ``contract`` computes, values and gradients.

    Args:
        function: an object (torch, JAX or NumPy) that takes any of the contract's inputs and knobs by name and returns
            its outputs: one array, a tuple in the contract's order, or a mapping. Or ``"FILE:FUNC"``.
        contract: a contract, or its name in the catalogue.
        mapping: names of yours to names of the contract, for parameters and outputs.
        to: the reference that it must equal; without it, any of them will do.
        knobs: values of the knobs that it does not take as parameters. What is neither taken nor given stands at the
            reference's dialect, else at the contract's default.
        examples: generated cases, besides the named edge cases.
        backend: "torch", "jax" or "numpy"; found from what the function's module imports unless given.
        device: where tensors lie: "cpu", "cuda", ...

    Raises:
        AssertionError: it equals none; the lines say by how much, and show the smallest input that tells them apart.
        UserCodeError: it cannot be called as the contract asks.
        ContractError: no such contract, reference or knob; or no reference can be run here.
    """
    __tracebackhide__ = True
    asked, names = _asked(contract, to, knobs or {})
    if isinstance(function, str):
        lines = _in_a_sandbox(*_split(function), asked, names, mapping or {}, examples, backend, device)
    else:
        lines = _in_this_process(function, asked, names, mapping or {}, examples, backend, device)
    if lines:
        raise AssertionError("\n".join(lines))


# What is asked --------------------------------------------------------------------------------------------------------


def _asked(contract: Contract | str, to: str | None, knobs: Mapping[str, Any]) -> tuple[Contract, tuple[str, ...]]:
    """The contract with the given knobs fixed, and the references of which one must be equalled."""
    found = _contract(contract)
    names = tuple(item.name for item in found.implementations if item.role == "reference")
    _known(found.name, [to] if to else [], names, "a reference")
    _known(found.name, knobs, [knob.name for knob in found.knobs], "a knob")
    return _fixed(found, knobs) if knobs else found, names if to is None else (to,)


def _split(target: str) -> tuple[str, str]:
    file, colon, name = target.rpartition(":")
    if not colon:
        raise UserCodeError(target, expected="FILE:FUNC", found="no colon", remedy='for example "my.py:advantages"')
    return file, name


def _contract(contract: Contract | str) -> Contract:
    if isinstance(contract, Contract):
        return contract
    from annotator import catalog

    return catalog.contract(contract)


def _known(place: str, given: Sequence[str] | Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in given:
        if name not in names:
            remedy = did_you_mean(near_matches(name, names)) or f"it has {', '.join(names) or 'none'}"
            raise ContractError(place, expected=what, found=repr(name), remedy=remedy)


def _fixed(contract: Contract, knobs: Mapping[str, Any]) -> Contract:
    """The contract with these knobs fixed, as if it gave no choice. A reference's own dialect stays what it is."""

    def move(case: Case) -> Case:
        return replace(case, knobs={**case.knobs, **knobs})

    def edges() -> tuple[Case, ...]:
        return tuple({_content(case): case for case in map(move, reversed(contract.edges()))}.values())[::-1]

    fixed = {name: {"default": value, "choices": (value,)} for name, value in knobs.items()}
    stated = tuple(replace(knob, **fixed.get(knob.name, {})) for knob in contract.knobs)
    return replace(contract, knobs=stated, cases=lambda: contract.cases().map(move), edges=edges)


def _content(case: Case) -> tuple[Any, ...]:
    """What makes two cases the same case."""
    arrays = tuple((name, array.shape, array.tobytes()) for name, array in sorted(case.inputs.items()))
    return arrays, tuple(sorted((name, repr(value)) for name, value in case.knobs.items()))


# A file's function, in a process of its own ---------------------------------------------------------------------------


def _in_a_sandbox(
    file: str,
    name: str,
    contract: Contract,
    names: Sequence[str],
    mapping: Mapping[str, str],
    examples: int,
    backend: str | None,
    device: str,
) -> list[str]:
    """The verdict's lines, or none when they are equal at the values of the knobs that are asked for."""
    from annotator.contracts import diff

    verdict = diff(file, name, contract, mapping=mapping, backend=backend, examples=examples, device=device)
    if any(name in verdict.equal_to and not verdict.held.get(name) for name in names):
        return []
    asked = f"  asked for: {' or '.join(names)}; knobs={{...}} says at which values of the knobs yours stands"
    return [*verdict.render(), *([asked] if verdict.equal else [])]


# A function object, in this process -----------------------------------------------------------------------------------


def _in_this_process(
    function: Callable[..., Any],
    contract: Contract,
    names: Sequence[str],
    mapping: Mapping[str, str],
    examples: int,
    backend: str | None,
    device: str,
) -> list[str]:
    """What differs from every reference, in lines; none when one of them is equalled in every dtype."""
    from annotator.contracts import conform

    place = _place(function)
    _known(place, list(mapping.values()), _names(contract), "a name of the contract in mapping")
    call = _Call(function, contract, mapping, place)
    chosen = _backend(function, place) if backend is None else cast(Backend, backend)
    with _settings_kept(chosen):
        narrowed, first = _first_call(call, contract, chosen, device)
        mine = Implementation(
            name=call.name,
            role="minimal",
            backend=chosen,
            call=call,
            symbols=(),
            dtypes=("float32",) if narrowed else ("float64", "float32"),
            differentiable=chosen != "numpy",
        )
        findings: list[Finding] = []
        for dialect, alike in _by_dialect(contract, names):
            placed = _placed(first, dialect, call.takes)
            minimal = [item for item in contract.implementations if item.role == "minimal"]
            placed = replace(placed, implementations=(*alike, *minimal, mine))
            findings += conform(placed, names=[call.name], device=device, examples=examples)
    findings = [item for item in findings if item.reference in names]
    lines = _judged(call, contract, findings)
    explained = _explained(function, contract, names, mapping, examples, chosen, device) if lines else []
    return explained or lines


def _by_dialect(contract: Contract, names: Sequence[str]) -> list[tuple[Mapping[str, Any], list[Implementation]]]:
    """The references in groups of one dialect, those groups that hold one of ``names``.

    A reference without float64 has its oracle in another one of its dialect.
    """
    groups: list[tuple[Mapping[str, Any], list[Implementation]]] = []
    for item in contract.implementations:
        if item.role == "reference":
            known = next((alike for dialect, alike in groups if dict(dialect) == dict(item.dialect)), None)
            if known is None:
                groups.append((item.dialect, [item]))
            else:
                known.append(item)
    return [(dialect, alike) for dialect, alike in groups if any(item.name in names for item in alike)]


def _placed(contract: Contract, dialect: Mapping[str, Any], takes: set[str]) -> Contract:
    """The contract with the knobs that the function does not take at a dialect, else at their default."""
    return _fixed(contract, {k.name: dialect.get(k.name, k.default) for k in contract.knobs if k.name not in takes})


def _explained(
    function: Callable[..., Any],
    contract: Contract,
    names: Sequence[str],
    mapping: Mapping[str, str],
    examples: int,
    backend: Backend,
    device: str,
) -> list[str]:
    """What `diff` says of a function that its file defines at the top: it also names the dialect or the deviation."""
    file, name = inspect.getsourcefile(_plain(function)), getattr(function, "__name__", "")
    if not file or not inspect.isfunction(function) or function.__qualname__ != name or not name.isidentifier():
        return []
    try:
        return _in_a_sandbox(file, name, contract, names, mapping, examples, backend, device)
    except AnnotatorError:  # The file cannot be imported by itself, say.
        return []


def _judged(call: _Call, contract: Contract, findings: Sequence[Finding]) -> list[str]:
    """The lines of a failure: the answer, the smallest witness against the nearest reference, and every comparison."""
    ran = [item for item in findings if item.status != "not run"]
    if not ran:
        reasons = dict.fromkeys(f"{item.reference}: {item.reason}" for item in findings)
        found = "; ".join(reasons) or "no reference"
        raise ContractError(contract.name, expected="a reference that can be run here", found=found)
    names = dict.fromkeys(item.reference for item in ran)
    failed = {name: [item for item in ran if item.reference == name and not item.passed] for name in names}
    if not all(failed.values()):
        return []
    nearest = min(failed.values(), key=lambda items: (len(items), min((i.error or 0.0) for i in items)))[0]
    whom = ", ".join(names)
    lines = [f"{call.place}: {call.name} differs from {whom} in {contract.name}; {nearest.reference} is the nearest"]
    return [*lines, *nearest.witness_lines(), "", *(f"  {item.line()}" for item in findings)]


def _first_call(call: _Call, contract: Contract, backend: Backend, device: str) -> tuple[bool, Contract]:
    """Whether it narrows float64, and the contract with the outputs that it returns.

    Raises:
        UserCodeError: it raises, changes an input or returns another shape.
    """
    from annotator.contracts.running import Fault, run

    case = contract.edges()[0]
    try:
        run(replace(contract, outputs=()), call, backend, case, device=device, gradient=False)
        returned = tuple(item for item in contract.outputs if item.name in call.returned)
        first = replace(contract, outputs=returned)
        once, again = (run(first, call, backend, case, device=device, gradient=False) for _ in range(2))
    except Fault as fault:
        expected = fault.expected if fault.place in ("call", "result") else f"{fault.expected} of {fault.place!r}"
        raise UserCodeError(call.place, expected=expected, found=fault.found, remedy=fault.remedy) from fault
    _same(once, again, call.place)
    return any(dtype in ("float32", "float16", "bfloat16") for dtype in once.dtypes.values()), first


def _same(once: Result, again: Result, place: str) -> None:
    import numpy as np

    for name, array in once.outputs.items():
        if not np.array_equal(array, again.outputs[name], equal_nan=array.dtype.kind == "f"):
            found, remedy = f"two different values of {name!r}", "fix the seed inside the function"
            raise UserCodeError(place, expected="the same result on the same input", found=found, remedy=remedy)


def _names(contract: Contract) -> list[str]:
    return [*_canonical(contract), *(item.name for item in contract.outputs)]


def _canonical(contract: Contract) -> list[str]:
    return [*(item.name for item in contract.inputs), *(knob.name for knob in contract.knobs)]


def _place(function: Callable[..., Any]) -> str:
    """``file:line`` of a function, or its name."""
    code = getattr(_plain(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else getattr(function, "__name__", repr(function))


def _plain(function: Any) -> Any:
    """The function beneath partials, decorators and bound methods."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    return getattr(function, "__func__", function)


def _backend(function: Callable[..., Any], place: str) -> Backend:
    """The backend that a function computes with: what it names itself, else what its module imports, else NumPy.

    Raises:
        UserCodeError: its module imports both torch and JAX, and it names both or neither.
    """
    plain = _plain(function)
    plain = plain if hasattr(plain, "__code__") else getattr(type(plain), "__call__", plain)  # noqa: B004
    for found in (_backends_of(_used(plain)), _backends_of(getattr(plain, "__globals__", {}).values())):
        if len(found) == 1:
            return found.pop()
        if found:
            raise UserCodeError(place, expected="one of torch and jax", found="both", remedy='say backend="torch"')
    return "numpy"


def _used(function: Any, seen: set[Any] | None = None) -> list[Any]:
    """The globals that a function names, and those that the functions of its module do that it names."""
    seen = set() if seen is None else seen
    scope, code = getattr(function, "__globals__", {}), getattr(function, "__code__", None)
    if code is None or code in seen:
        return []
    seen.add(code)
    values = [scope[name] for name in code.co_names if name in scope]
    deeper = [_used(value, seen) for value in values if getattr(value, "__globals__", None) is scope]
    return [*values, *(item for items in deeper for item in items)]


def _backends_of(values: Any) -> set[Backend]:
    """Which backends modules, and functions or classes imported from them, belong to."""
    names = (v.__name__ if isinstance(v, ModuleType) else str(getattr(v, "__module__", "")) for v in list(values))
    roots = {name.partition(".")[0] for name in names}
    return {backend for backend in cast(tuple[Backend, ...], ("torch", "jax")) if backend in roots}


@contextmanager
def _settings_kept(backend: Backend) -> Iterator[None]:
    """Leaves JAX's width of floats as the user's other tests have it."""
    if backend != "jax":
        yield
        return
    import jax

    before = jax.config.jax_enable_x64
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


class _Call:
    """A user's function with the canonical names in and out."""

    def __init__(
        self, function: Callable[..., Any], contract: Contract, mapping: Mapping[str, str], place: str
    ) -> None:
        self.function, self.mapping, self.place = function, dict(mapping), place
        self.name = getattr(_plain(function), "__name__", type(function).__name__)
        self.outputs = [item.name for item in contract.outputs]
        self.positional, self.named = self._plan(_canonical(contract))
        self.takes = {*self.positional, *self.named.values()}
        self.returned: tuple[str, ...] = ()

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        """Hands over what it takes, and names what it returns."""
        first = [arguments[name] for name in self.positional]
        rest = {theirs: arguments[ours] for theirs, ours in self.named.items()}
        outputs = self._named(self.function(*first, **rest))
        self.returned = self.returned or tuple(outputs)
        return outputs

    def _plan(self, canonical: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """What goes by position, and what by name (theirs to ours).

        Raises:
            UserCodeError: a parameter without a default has no counterpart, or none has one.
        """
        positional: list[str] = []
        named: dict[str, str] = {}
        for item in inspect.signature(self.function).parameters.values():
            ours = self.mapping.get(item.name, item.name)
            if item.kind is item.VAR_KEYWORD:
                named |= {name: name for name in canonical if name not in (*named.values(), *positional)}
            elif ours in canonical and item.kind is item.POSITIONAL_ONLY:
                positional.append(ours)
            elif ours in canonical and item.kind is not item.VAR_POSITIONAL:
                named[item.name] = ours
            elif item.default is item.empty and item.kind is not item.VAR_POSITIONAL:
                raise self._unnamed(item.name, canonical)
        if not positional and not named:
            raise UserCodeError(self.place, expected=f"a parameter among {', '.join(canonical)}", found="none")
        return positional, named

    def _unnamed(self, name: str, canonical: Sequence[str]) -> UserCodeError:
        hint = did_you_mean(near_matches(name, canonical)) or f"the names are {', '.join(canonical)}"
        remedy = f"{hint}; mapping={{{name!r}: ...}} renames"
        return UserCodeError(self.place, expected="parameters of the contract's names", found=repr(name), remedy=remedy)

    def _named(self, raw: Any) -> dict[str, Any]:
        if isinstance(raw, Mapping):
            renamed = {self.mapping.get(str(name), str(name)): value for name, value in raw.items()}
            found = {name: renamed[name] for name in self.outputs if name in renamed}
        elif isinstance(raw, tuple):
            found = dict(zip(self.outputs, raw, strict=False))
        else:
            found = {self.outputs[0]: raw} if raw is not None else {}
        if not found:
            shown = ", ".join(map(str, raw)) if isinstance(raw, Mapping) else type(raw).__name__
            raise UserCodeError(self.place, expected=f"outputs named {', '.join(self.outputs)}", found=shown or "none")
        return found
