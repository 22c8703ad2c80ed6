"""What operators give: by the methods of the classes of the pins that they stand for, else as the language has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotator.index.values import Value, made, unknown

if TYPE_CHECKING:
    from annotator.index.evaluating import Evaluator

METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
COMPARING = {"==": ("eq", "eq"), "!=": ("ne", "ne"), "<": ("lt", "gt"), ">": ("gt", "lt"), "<=": ("le", "ge"),
             ">=": ("ge", "le")}  # fmt: skip
SIGNS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
NUMBERS = frozenset(("int", "float", "bool", "complex"))
TRUTH = made("builtins.bool")


def operated(file: Evaluator, left: int, right: int) -> Value:
    """What a binary operator gives."""
    name = METHODS.get(between(file, left, right), "")
    first, second = file.value(left), file.value(right)
    found = by_method(file, ((first, f"__{name}__"), (second, f"__r{name}__")))
    if found is not None:
        return found
    if first.kind == second.kind == "external instance":
        return second if second.last == "float" else first
    plain = first.kind == "external instance" and first.last not in NUMBERS
    return first if plain and second.kind == "unknown" else unknown("a sum or the like")


def compared(file: Evaluator, operands: list[int]) -> Value:
    """What a comparison gives: a truth value, unless a class of the pins has its own idea of that."""
    sign = between(file, operands[0], operands[1])
    if sign not in COMPARING or len(operands) > 2:
        return TRUTH
    values = [file.value(one) for one in operands]
    names = (f"__{name}__" for name in COMPARING[sign])
    found = by_method(file, tuple(zip(values, names, strict=True)))
    if found is not None:
        return found
    return unknown("a comparison") if any(value.kind == "unknown" for value in values) else TRUTH


def signed(file: Evaluator, operand: int, index: int) -> Value:
    """What a sign before an operand gives."""
    value = file.value(operand)
    sign = file.source[file.flat.starts[index] : file.flat.starts[operand]].decode("utf-8", "replace").strip()
    return by_method(file, ((value, SIGNS.get(sign, "")),)) or (
        value if value.kind != "instance" else unknown("a sign")
    )


def by_method(file: Evaluator, tried: tuple[tuple[Value, str], ...]) -> Value | None:
    """What the first of some methods gives that a class of the pins has."""
    for value, name in tried:
        if value.kind in ("instance", "union"):
            method = file.program.attribute(value, name)
            if method.kind == "entry":
                return file.program.call(method)
    return None


def between(file: Evaluator, left: int, right: int) -> str:
    """The operator between two operands."""
    text = file.source[file.flat.ends[left] : file.flat.starts[right]].decode("utf-8", "replace")
    return text.strip("() \t\r\n\\")
