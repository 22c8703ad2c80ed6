"""What ``isinstance`` makes sure of: the class of a name or attribute behind a test of it.

Apart from the rest of evaluation because it reads conditions, where that reads values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from annotator.index.flow import LEAVING, OPENING
from annotator.index.scoping import COMPREHENSIONS
from annotator.index.values import Value, either

if TYPE_CHECKING:
    from annotator.index.evaluating import Evaluator

NESTED, NESTED_TENSOR = "is_nested", "torch.nested._internal.nested_tensor.NestedTensor"


def narrowed(file: Evaluator, index: int) -> Value | None:
    """The class that an ``isinstance`` before or around a name or attribute makes sure of."""
    name = file.text(index)
    if name not in file.guarded:
        return None
    flat, node = file.flat, index
    while (parent := flat.parents[node]) >= 0 and flat.types[node] not in OPENING:
        for test, holds in tests(file, node, parent):
            found = checked(file, test, name, holds)
            if found is not None and not rebound(file, name, test, index):
                return found
        node = parent
    return None


def tests(file: Evaluator, node: int, parent: int) -> list[tuple[int, bool]]:
    """The conditions that are known to hold (or not to) where a node stands in its parent."""
    flat, kind = file.flat, file.flat.types[parent]
    parts, kids = flat.children[parent], flat.kids[parent]
    if kind in ("if_statement", "elif_clause", "while_statement") and "condition" in parts:
        if flat.fields[node] in ("consequence", "body"):
            return [(parts["condition"], True)]
        return [(parts["condition"], False)] if flat.fields[node] == "alternative" else []
    if kind == "conditional_expression" and len(kids) == 3:
        return [(kids[1], node == kids[0])] if node != kids[1] else []
    if kind == "boolean_operator" and flat.fields[node] == "right":
        between = file.source[flat.ends[parts["left"]] : flat.starts[node]].strip()
        return [(parts["left"], between == b"and")]
    if kind in COMPREHENSIONS:
        return [(flat.kids[kid][0], True) for kid in kids if flat.types[kid] == "if_clause" and kid != node]
    if kind in ("block", "module"):
        return tests_before(file, kids, node)
    return []


def tests_before(file: Evaluator, kids: list[int], node: int) -> list[tuple[int, bool]]:
    """What statements before a node in its block make sure of: assertions, and branches that leave."""
    flat, found = file.flat, []
    for kid in kids[: kids.index(node)]:
        if flat.types[kid] == "assert_statement":
            found.append((flat.kids[kid][0], True))
        elif flat.types[kid] == "if_statement" and "consequence" in flat.children[kid]:
            body = flat.kids[flat.children[kid]["consequence"]]
            if body and flat.types[body[-1]] in LEAVING and "alternative" not in flat.children[kid]:
                found.append((flat.children[kid]["condition"], False))
    return found[::-1]


def checked(file: Evaluator, test: int, name: str, holds: bool) -> Value | None:
    """The class that a condition makes sure of, if it ``holds`` or if it does not."""
    flat, kind = file.flat, file.flat.types[test]
    parts, kids = flat.children[test], flat.kids[test]
    if kind == "parenthesized_expression" and kids:
        return checked(file, kids[0], name, holds)
    if kind == "not_operator" and kids:
        return checked(file, kids[0], name, not holds)
    if kind == "boolean_operator" and "right" in parts:
        between = file.source[flat.ends[parts["left"]] : flat.starts[parts["right"]]].strip()
        if (between == b"and") != holds:
            return None
        return checked(file, parts["right"], name, holds) or checked(file, parts["left"], name, holds)
    if kind == "attribute" and holds and file.text(test) == f"{name}.{NESTED}":
        return nested(file)
    if kind != "call" or not holds or file.text(parts.get("function", test)) != "isinstance":
        return None
    arguments = file.arguments(parts)
    if len(arguments) != 2 or file.text(arguments[0]) != name:
        return None
    return classes(file, arguments[1])


def nested(file: Evaluator) -> Value | None:
    """What a tensor is that says ``is_nested``, now that the old layout is left to C++."""
    module, _, name = NESTED_TENSOR.rpartition(".")
    found = file.program.member(Value("module", name=module, pin="torch"), name)
    value = file.program.instance(found) if found is not None else None
    return value.unsure("by is_nested") if value is not None and value.kind == "instance" else None


def classes(file: Evaluator, node: int) -> Value | None:
    """An object of the class, or of one of the classes, that ``isinstance`` is given."""
    flat, kind = file.flat, file.flat.types[node]
    nodes = flat.kids[node] if kind in ("tuple", "binary_operator") else [node]
    values = [file.program.instance(file.value(one)) for one in nodes]
    if any(value.kind == "unknown" for value in values):
        return None
    return either(values, "one of several classes")


def rebound(file: Evaluator, name: str, test: int, use: int) -> bool:
    """Whether a name is bound between a condition and its use."""
    scope = file.scopes[use]
    head = re.split(r"\W", name, maxsplit=1)[0]
    _, binder = file.named(head, scope)
    ways = binder.names.get(head, []) if binder is not None else []
    flat = file.flat
    return any(flat.ends[test] <= way.since <= flat.starts[use] for way in ways)
