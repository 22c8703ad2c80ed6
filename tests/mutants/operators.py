"""Faults of numerical code that a general mutation tester does not make: what cosmic-ray's operators leave out.

Each operator takes an expression and yields others to put in its place. They are made of syntax trees and not of text,
for what they exchange are arguments and calls.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

Operator = Callable[[ast.expr], Iterator[ast.expr]]

EXCHANGED = (
    ("sum", "mean"),
    ("sum", "prod"),
    ("cumsum", "cumprod"),
    ("segment_sum", "segment_max"),
    ("min", "max"),
    ("amin", "amax"),
    ("cummin", "cummax"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("zeros_like", "ones_like"),
    ("zeros", "ones"),
    ("any", "all"),
    ("logical_and", "logical_or"),
    ("floor", "ceil"),
    ("exp", "expm1"),
    ("log", "log1p"),
    ("sigmoid", "tanh"),
    ("std", "var"),
    ("softmax", "log_softmax"),
    ("tril", "triu"),
)
"""Names of functions and methods that take the same arguments and return the same shape."""

KEEPS_SHAPE = {
    "abs",
    "astype",
    "clamp",
    "clamp_",
    "clip",
    "cumsum",
    "detach",
    "double",
    "exp",
    "expm1",
    "flip",
    "float",
}
KEEPS_SHAPE |= {"log", "log1p", "long", "nan_to_num", "relu", "sigmoid", "sqrt", "square", "stop_gradient", "to"}
"""Functions of one array, or methods, that can be left out: what remains has the same shape."""

BRANCHING = frozenset({"where", "select"})


def exchanged_function(node: ast.expr) -> Iterator[ast.expr]:
    """Another reduction, extremum or constant: ``x.sum()`` becomes ``x.mean()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for pair in EXCHANGED:
            if node.func.attr in pair:
                changed = copy.deepcopy(node)
                assert isinstance(changed.func, ast.Attribute)
                changed.func.attr = pair[1 - pair.index(node.func.attr)]
                yield changed


def removed_call(node: ast.expr) -> Iterator[ast.expr]:
    """A step left out: ``x.detach()`` and ``stop_gradient(x)`` become ``x``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in KEEPS_SHAPE:
        return
    module = _is_module(node.func.value)
    if module and node.args:
        yield node.args[0]
    elif not module:
        yield node.func.value


def exchanged_branches(node: ast.expr) -> Iterator[ast.expr]:
    """``where(c, a, b)`` becomes ``where(c, b, a)``."""
    if isinstance(node, ast.Call) and _name(node.func) in BRANCHING and len(node.args) == 3:
        changed = copy.deepcopy(node)
        changed.args[1:] = changed.args[:0:-1]
        yield changed


def chosen_branch(node: ast.expr) -> Iterator[ast.expr]:
    """``a if c else b`` becomes ``b if c else a``."""
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


def exchanged_arguments(node: ast.expr) -> Iterator[ast.expr]:
    """Two neighbouring arguments of one of the module's own functions change places."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.islower():
        for i in range(len(node.args) - 1):
            if not any(isinstance(argument, ast.Starred) for argument in node.args[i : i + 2]):
                changed = copy.deepcopy(node)
                changed.args[i], changed.args[i + 1] = changed.args[i + 1], changed.args[i]
                yield changed


def scaled_number(node: ast.expr) -> Iterator[ast.expr]:
    """A float is half as large again: ``1e-6`` becomes ``1.5e-6``. Adding 1 would be seen by anybody."""
    if isinstance(node, ast.Constant) and type(node.value) is float and node.value:
        yield ast.Constant(1.5 * node.value)


def removed_operand(node: ast.expr) -> Iterator[ast.expr]:
    """A term, a factor or a condition is forgotten: ``a + b`` becomes ``a``, and ``b``."""
    if isinstance(node, ast.BinOp):
        yield node.left
        yield node.right
    if isinstance(node, ast.BoolOp):
        yield from node.values


OPERATORS: dict[str, Operator] = {
    "ExchangeFunction": exchanged_function,
    "RemoveCall": removed_call,
    "ExchangeBranches": exchanged_branches,
    "ExchangeChoice": chosen_branch,
    "ExchangeArguments": exchanged_arguments,
    "ScaleNumber": scaled_number,
    "RemoveOperand": removed_operand,
}


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_module(node: ast.expr) -> bool:
    """Whether what stands before the point is a library (``jnp``, ``jax.lax``) and not an array."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in {"torch", "jax", "jnp", "F", "math", "lax"}
