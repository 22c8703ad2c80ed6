"""What functions of the language and its library give, and the methods of its containers, where that is plain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from annotator.index.flow import Scope
from annotator.index.values import KEYED, Value, either, made, out_of

if TYPE_CHECKING:
    from annotator.index.evaluating import Evaluator

LISTING = frozenset(("list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "deque", "filter"))
SAME = frozenset(
    ("copy.copy", "copy.deepcopy", "dataclasses.replace", "asyncio.run", "asyncio.create_task", "builtins.dict")
)
"""Functions of the library that give an object of the class of their first argument."""


def known_call(file: Evaluator, name: str, arguments: list[int], scope: Scope) -> Value | None:
    """What a call of a function of the language or its library gives, if that is plain."""
    module, _, last = name.rpartition(".")
    if not arguments:
        return None
    if name in SAME:
        return file.value(arguments[0])
    if name in ("typing.cast", "typing_extensions.cast"):
        return file.annotated(arguments[0], scope)
    if name.endswith(".run_in_executor") and len(arguments) > 1:
        return file.program.call(file.value(arguments[1])).unsure("what another thread or process returns")
    if name == "asyncio.to_thread":
        return file.program.call(file.value(arguments[0]))
    if name == "functools.partial":
        return Value("callable", items=(file.program.call(file.value(arguments[0])),))
    if module != "builtins" and name != "collections.deque":
        return None
    return built_in(file, last, arguments)


def built_in(file: Evaluator, name: str, arguments: list[int]) -> Value | None:
    """What a call of a built-in function gives."""
    first = file.value(arguments[0])
    if name == "getattr" and len(arguments) > 1 and (literal := file.literal(arguments[1])):
        return file.program.result(file.program.attribute(first, literal))
    if name == "type" and len(arguments) == 1:
        return replace(first, kind="entry") if first.kind == "instance" else None
    if name in ("next", "min", "max"):
        if name != "next" and len(arguments) > 1:
            return either(map(file.value, arguments), "one of several values")
        return file.program.iterated(first)
    if name in LISTING:
        last = file.value(arguments[-1]) if name == "filter" else first
        return made(f"builtins.{name if name in ('set', 'tuple') else 'list'}", file.program.iterated(last))
    if name == "enumerate":
        return made("builtins.list", made("builtins.tuple", made("builtins.int"), file.program.iterated(first)))
    if name == "zip":
        items = [file.program.iterated(file.value(one)) for one in arguments]
        return made("builtins.list", made("builtins.tuple", *items))
    return None


def on_container(file: Evaluator, base: Value, method: str) -> Value | None:
    """What a method of a container of known items gives."""
    if base.kind != "external instance" or not base.items:
        return None
    if base.last in KEYED and len(base.items) > 1:
        key, item = (out_of(base, one) for one in base.items[:2])
        if method in ("get", "pop", "setdefault", "__getitem__"):
            return item
        if method == "values":
            return made("builtins.list", item)
        if method in ("items", "popitem"):
            pair = made("builtins.tuple", key, item)
            return pair if method == "popitem" else made("builtins.list", pair)
    if method == "keys":
        return made("builtins.list", out_of(base, base.items[0]))
    if method in ("pop", "popleft", "__getitem__"):
        return file.program.iterated(base)
    return base if method == "copy" else None
