"""Runs one implementation on one case. The only place that knows how arrays enter and leave a backend.

A case holds NumPy master arrays in float64. They are rounded to the dtype of the run, handed over as arrays of the
backend, and what comes back is widened to float64 again, so that everything beyond this module is NumPy.

The gradient is that of one scalar, ``L = sum over float outputs of sum(output * w)``, with ``w`` drawn from a standard
normal distribution, seeded by the output's name and shape. One number a test, yet every entry of the Jacobian takes
part in it.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from annotator.contracts.model import Backend, Call, Case, Input, Output
from annotator.errors import AnnotatorError, ContractError

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of each dtype: the largest relative error of rounding one number to it."""

Arrays = Mapping[str, np.ndarray]


class Interface(Protocol):
    """What `run` needs of a contract: the names, shapes and kinds that enter and leave."""

    @property
    def inputs(self) -> tuple[Input, ...]: ...  # noqa: D102

    @property
    def outputs(self) -> tuple[Output, ...]: ...  # noqa: D102


class Fault(ContractError):
    """An implementation that ran but broke the rules of a contract. ``rule`` is the rule, in one word."""

    def __init__(self, rule: str, place: str, *, expected: str = "", found: str = "", remedy: str = "") -> None:
        self.rule = rule
        super().__init__(place, expected=expected, found=found, remedy=remedy)


@dataclass(frozen=True)
class Result:
    """What came out of one run.

    Attributes:
        outputs: output name to array: float64, int64 or bool.
        gradients: differentiable input to ``dL/dinput`` in float64; empty when not asked for or nothing carries one.
        carried: the float outputs through which a gradient flows.
        dtypes: output name to the dtype that the implementation returned.
    """

    outputs: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray] = field(default_factory=dict)
    carried: frozenset[str] = frozenset()
    dtypes: dict[str, str] = field(default_factory=dict)


def run(
    interface: Interface,
    call: Call,
    backend: Backend,
    case: Case,
    *,
    dtype: str = "float64",
    device: str = "cpu",
    gradient: bool = True,
    watched: bool = True,
) -> Result:
    """Runs ``call`` on ``case`` with floats in ``dtype``; unless ``watched``, inputs changed in place are not told.

    Raises:
        Fault: it raised, changed an input, left an output out, or returned another shape.
        ModuleNotFoundError: a library that it needs is not installed.
        AnnotatorError: what the call itself raised of that tree (a pin that is not fetched).
    """
    inputs = masters(interface, case, dtype)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = _BACKENDS[backend](interface, call, inputs, case.knobs, dtype, device, gradient, watched)
    check_shapes(interface, inputs, result.outputs)
    return result


def masters(interface: Interface, case: Case, dtype: str) -> dict[str, np.ndarray]:
    """The case's arrays in canonical width, floats rounded to ``dtype`` and held in float64."""
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "float": lambda array: rounded(array, dtype),
        "int": lambda array: np.array(array, dtype=np.int64),
        "bool": lambda array: np.array(array, dtype=np.bool_),
    }
    return {item.name: kinds[item.dtype](np.asarray(case.inputs[item.name])) for item in interface.inputs}


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """``array`` rounded to ``dtype`` (to nearest, ties to even), held in float64. Always a fresh array."""
    wide = np.array(array, dtype=np.float64)
    with np.errstate(all="ignore"):
        if dtype == "float64":
            return wide
        if dtype == "bfloat16":
            return _to_bfloat16(wide.astype(np.float32)).astype(np.float64)
        return wide.astype(dtype).astype(np.float64)


def fits(interface: Interface, case: Case, dtype: str) -> bool:
    """Whether every number of the case that is finite still is in ``dtype``."""
    floats = [np.asarray(case.inputs[item.name], np.float64) for item in interface.inputs if item.dtype == "float"]
    return all(np.array_equal(np.isfinite(array), np.isfinite(rounded(array, dtype))) for array in floats)


def _to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Float32 rounded to its upper 16 bits; by hand, since NumPy has no bfloat16."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    result: np.ndarray = np.where(np.isfinite(array), nearest, bits).astype(np.uint32).view(np.float32)
    return result.reshape(array.shape)


def cotangent(name: str, value: np.ndarray) -> np.ndarray:
    """``w`` of an output: standard normal, exact in every dtype, zero where the output is not finite.

    Rounding it to bfloat16 makes it the same numbers in a run of any dtype, so it adds no error of its own.
    """
    return np.where(np.isfinite(value), normal(name, value.shape), 0.0)


def normal(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weights of an output of that name and shape."""
    seed = zlib.crc32(f"{name}{tuple(shape)}".encode())
    return rounded(np.random.default_rng(seed).standard_normal(shape), "bfloat16")


def check_shapes(interface: Interface, inputs: Arrays, outputs: Arrays) -> None:
    """Asserts that axis names mean one size each, over inputs and outputs.

    Raises:
        Fault: an output has another number of axes, or an axis of another size.
    """
    sizes: dict[str, int] = {}
    for item in interface.inputs:
        _bind(item.name, item.shape, inputs[item.name].shape, sizes)
    for output in interface.outputs:
        _bind(output.name, output.shape, outputs[output.name].shape, sizes)


def _bind(name: str, axes: tuple[str, ...], shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    expected = tuple(int(axis) if axis.isdigit() else sizes.get(axis) for axis in axes)
    if len(axes) != len(shape) or any(want not in (None, got) for want, got in zip(expected, shape, strict=True)):
        stated = ", ".join(
            f"{axis}={size}" if size is not None else axis for axis, size in zip(axes, expected, strict=True)
        )
        raise Fault("shape", name, expected=f"shape [{stated}]", found=f"{list(shape)}")
    sizes.update((axis, size) for axis, size in zip(axes, shape, strict=True) if not axis.isdigit())


def named(interface: Interface, raw: Any) -> dict[str, Any]:
    """The outputs by name, in the contract's order.

    Raises:
        Fault: not a mapping, or an output is missing.
    """
    return _outputs([item.name for item in interface.outputs], raw)


def _outputs(names: Sequence[str], raw: Any) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise Fault("output", "result", expected=f"a mapping with {', '.join(names)}", found=type(raw).__name__)
    missing = [name for name in names if name not in raw]
    if missing:
        raise Fault("output", missing[0], expected="an output of that name", found=", ".join(map(str, raw)) or "none")
    return {name: raw[name] for name in names}


def _called(call: Call, arguments: Mapping[str, Any], knobs: Mapping[str, Any]) -> Any:
    """Calls, and turns what is raised into a `Fault` unless it says that something is not there."""
    try:
        return call(**arguments, **knobs)
    except (AnnotatorError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise Fault("raises", "call", expected="a result", found=brief(error)) from error


def brief(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _unchanged(before: Arrays, after: Arrays) -> None:
    for name, array in before.items():
        if not np.array_equal(array, after[name], equal_nan=array.dtype.kind == "f"):
            raise Fault("in place", name, expected="inputs left as they are", found="it was changed in place")


def _carries(interface: Interface) -> set[str]:
    """The outputs whose gradient is part of the contract."""
    return {item.name for item in interface.outputs if item.differentiable and not item.exact}


def _moving(interface: Interface) -> list[str]:
    return [item.name for item in interface.inputs if item.differentiable]


def _run_numpy(
    interface: Interface,
    call: Call,
    inputs: Arrays,
    knobs: Mapping[str, Any],
    dtype: str,
    device: str,
    gradient: bool,
    watched: bool,
) -> Result:
    given = {item.name: _numpy_in(inputs[item.name], item, dtype) for item in interface.inputs}
    kept = {name: array.copy() for name, array in given.items()}
    raw = named(interface, _called(call, given, knobs))
    if watched:
        _unchanged(kept, given)
    return Result(
        {k: _numpy_out(v) for k, v in raw.items()}, dtypes={k: str(np.asarray(v).dtype) for k, v in raw.items()}
    )


def _numpy_in(array: np.ndarray, item: Input, dtype: str) -> np.ndarray:
    if item.dtype != "float":
        return array.copy()
    if dtype == "bfloat16":
        raise Fault("dtype", item.name, expected="a dtype that NumPy has", found="bfloat16")
    return array.astype(dtype)


def _numpy_out(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        return array.astype(np.bool_ if array.dtype.kind == "b" else np.int64)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise Fault("output", "result", expected="an array of numbers", found=type(value).__name__) from error


def _run_torch(
    interface: Interface,
    call: Call,
    inputs: Arrays,
    knobs: Mapping[str, Any],
    dtype: str,
    device: str,
    gradient: bool,
    watched: bool,
) -> Result:
    import torch

    widths = {"float": getattr(torch, dtype), "int": torch.int64, "bool": torch.bool}
    leaves = {i.name: torch.tensor(inputs[i.name], dtype=widths[i.dtype], device=device) for i in interface.inputs}
    moving = _moving(interface) if gradient else []
    for name in moving:
        leaves[name].requires_grad_(True)
    # Copies are handed over: writing into a leaf would raise in torch's words instead of being told in ours.
    given = {name: leaf.clone() for name, leaf in leaves.items()} if watched or moving else leaves
    raw = named(interface, _called(call, given, knobs))
    for name, value in raw.items():
        if isinstance(value, torch.Tensor) and value.device.type != torch.device(device).type:
            raise Fault("device", name, expected=f"{name!r} on {device}", found=f"a tensor on {value.device}")
    if watched:
        _unchanged({k: _torch_out(v) for k, v in leaves.items()}, {k: _torch_out(v) for k, v in given.items()})
    outputs = {name: _torch_out(value) for name, value in raw.items()}
    returned = {
        name: str(getattr(value, "dtype", outputs[name].dtype)).removeprefix("torch.") for name, value in raw.items()
    }
    carried = {n for n in _carries(interface) if isinstance(raw[n], torch.Tensor) and raw[n].requires_grad}
    gradients = (
        _torch_gradients({n: raw[n] for n in sorted(carried)}, {n: leaves[n] for n in moving}) if carried else {}
    )
    return Result(outputs, gradients, frozenset(carried), returned)


def _torch_gradients(outputs: Mapping[str, Any], leaves: Mapping[str, Any]) -> dict[str, np.ndarray]:
    import torch

    weights = [torch.as_tensor(cotangent(n, _torch_out(v))).to(v) for n, v in outputs.items()]
    try:
        found = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights, allow_unused=True)
    except RuntimeError as error:
        raise Fault("gradient", "backward", expected="a gradient", found=brief(error)) from error
    return {
        name: np.zeros(tuple(leaf.shape)) if part is None else _torch_out(part)
        for (name, leaf), part in zip(leaves.items(), found, strict=True)
    }


def _torch_out(value: Any) -> np.ndarray:
    import torch

    if not isinstance(value, torch.Tensor):
        return _numpy_out(value)
    tensor = value.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.to(torch.float64)
    elif tensor.dtype != torch.bool:
        tensor = tensor.to(torch.int64)
    return np.array(tensor.numpy())


def jax_device(device: str) -> Any:
    """The JAX device of that name; float64 and whole float32 products are switched on, once a process.

    Raises:
        ModuleNotFoundError: JAX is not installed.
        RuntimeError: JAX has no such device here.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    # On a GPU it would round the factors of float32 products to 10 bits, as torch does not unless it is asked to.
    jax.config.update("jax_default_matmul_precision", "highest")
    return jax.devices("gpu" if device.startswith("cuda") else device)[0]


def _run_jax(
    interface: Interface,
    call: Call,
    inputs: Arrays,
    knobs: Mapping[str, Any],
    dtype: str,
    device: str,
    gradient: bool,
    watched: bool,
) -> Result:
    place = jax_device(device)
    import jax
    import jax.numpy as jnp

    widths = {"float": jnp.dtype(dtype), "int": jnp.int64, "bool": jnp.bool_}
    given = {
        i.name: jax.device_put(jnp.asarray(inputs[i.name], dtype=widths[i.dtype]), place) for i in interface.inputs
    }
    plan = _JaxPlan(
        call,
        tuple(item.name for item in interface.outputs),
        tuple(sorted(_carries(interface))),
        tuple(_moving(interface)) if gradient else (),
    )
    returned, pulled = _jax_whole(plan, given, knobs)
    outputs = {name: returned[name] for name in plan.outputs}
    return Result(
        {name: _jax_out(value) for name, value in outputs.items()},
        {name: _jax_out(part) for name, part in pulled.items()},
        frozenset(n for n in plan.carries if pulled and jnp.issubdtype(outputs[n].dtype, jnp.floating)),
        {name: str(jnp.result_type(value)) for name, value in outputs.items()},
    )


@dataclass(frozen=True)
class _JaxPlan:
    """What is compiled once a shape: a call with some knobs fixed, what has a gradient, and what gets it."""

    call: Call
    outputs: tuple[str, ...]
    carries: tuple[str, ...]
    moving: tuple[str, ...]
    knobs: tuple[tuple[str, Any], ...] = ()

    def __call__(self, given: Mapping[str, Any], knobs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Outputs, and gradients of the moving inputs."""
        import jax
        import jax.numpy as jnp

        def forward(moved: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            raw = _outputs(self.outputs, _called(self.call, {**given, **moved}, {**dict(self.knobs), **knobs}))
            raw = {name: jnp.asarray(value) for name, value in raw.items()}
            floats = {n: raw[n] for n in self.carries if jnp.issubdtype(raw[n].dtype, jnp.floating)}
            return floats, {n: v for n, v in raw.items() if n not in floats}

        moving = {name: given[name] for name in self.moving}
        if not moving:
            floats, others = forward({})
            return {**floats, **others}, {}
        floats, back, others = jax.vjp(forward, moving, has_aux=True)
        weights = {n: jnp.where(jnp.isfinite(v), normal(n, v.shape), 0.0).astype(v.dtype) for n, v in floats.items()}
        return {**floats, **others}, back(weights)[0] if floats else {}


def _jax_whole(
    plan: _JaxPlan, given: Mapping[str, Any], knobs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs a plan compiled as a whole, since compiling each operation for each shape takes many times as long.

    Float knobs are arguments of the program, so that one serves all their values. Code that looks at arrays or branches
    on such a knob cannot be compiled and is run operation by operation, then and from then on.
    """
    floats = {name: value for name, value in knobs.items() if type(value) is float}
    for mode in _MODES[_MODES.index(_MODE.get(plan.call, "traced")) :]:
        moving = floats if mode == "traced" else {}
        fixed = replace(plan, knobs=tuple((n, v) for n, v in sorted(knobs.items()) if n not in moving))
        try:
            done: tuple[dict[str, Any], dict[str, Any]] = (fixed if mode == "eager" else _jitted(fixed))(given, moving)
            return done
        except (Fault, TypeError) as error:  # TypeError: a knob that cannot be hashed.
            if mode == "eager" or (isinstance(error, Fault) and error.rule != "raises"):
                raise
            _MODE[plan.call] = _MODES[_MODES.index(mode) + 1]
    raise AssertionError("the last mode returns or raises")


_MODES = ("traced", "eager")

_MODE: dict[Call, str] = {}
"""How a call is run, where the first mode did not do."""


@contextmanager
def eagerly(call: Call, wanted: bool = True) -> Iterator[None]:
    """While it lasts, JAX runs ``call`` operation by operation, so that its side effects happen every time."""
    before = _MODE.get(call)
    if wanted:
        _MODE[call] = "eager"
    try:
        yield
    finally:
        if wanted and before is None:
            del _MODE[call]
        elif wanted and before is not None:
            _MODE[call] = before


@functools.lru_cache(maxsize=512)
def _jitted(plan: _JaxPlan) -> Any:
    import jax

    return jax.jit(plan)


def _jax_out(value: Any) -> np.ndarray:
    array = np.asarray(value)
    # bfloat16 comes as an extension type whose kind NumPy calls "V".
    return _numpy_out(array.astype(np.float64) if array.dtype.kind in "Vf" else array)


_BACKENDS: dict[str, Callable[..., Result]] = {"numpy": _run_numpy, "torch": _run_torch, "jax": _run_jax}
