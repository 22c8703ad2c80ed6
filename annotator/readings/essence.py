"""What of a step is plumbing: lines that a reader may skip without losing the computation.

Four kinds, told by syntax alone: **logging**, **metrics** (numbers kept for a log), **checks** (assertions, and guards
that only raise) and **device moves**. A statement that computes anything else is essence, and so is one that only
fits a kind in part. Only Python is looked at.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

SHORTEST = 2
"""Fewer lines than these are not folded: the fold would take as much room."""

_LOGGERS = re.compile(r"(?:\w*\.)*_?(?:logger|logging|log|warnings|tqdm|rank_zero_\w+)\.\w+|print|pprint|warn|log_\w+")
_METRICS = re.compile(r"(?:\w+\.)*\w*(?:metrics?|stats|logs|log_dict|timing_raw)")
_KEPT = re.compile(
    rf"{_METRICS.pattern}(?:\.(?:update|append|extend|setdefault))|(?:\w+\.)*(?:append_to_dict|log_metrics?)"
)
_INDEX = re.compile(r"\[[^]]*\]")
_DEVICES = re.compile(r"\bdevice|get_device|[\"'](?:cpu|cuda|npu)")
_MOVES = re.compile(r"(?:\w+\.)*empty_cache")


@dataclass(frozen=True)
class Fold:
    """Lines ``first`` to ``last`` that are plumbing; ``kinds`` counts their statements by kind."""

    first: int
    last: int
    kinds: Counter[str]

    @property
    def title(self) -> str:
        """``5 lines: checks, logging``."""
        return f"{self.last - self.first + 1} lines: {', '.join(sorted(self.kinds))}"


def folds(source: str, first: int, last: int) -> list[Fold]:
    """The runs of plumbing within lines ``first`` to ``last`` of a Python file, in order; comments and blank lines
    between two of them go with them, and so does a comment right above. None if all the code there is plumbing: then
    it is what the step is about. None either if the file is not Python that this version can parse.
    """
    body = _body(source)
    lines = source.split("\n")
    found: list[Fold] = []
    for start, end, kind in _plumbing(body, first, last):
        while start > first and lines[start - 2].lstrip().startswith("#"):
            start -= 1
        if found and all(_silent(line) for line in lines[found[-1].last : start - 1]):
            before = found.pop()
            found.append(Fold(before.first, end, before.kinds + Counter([kind])))
        else:
            found.append(Fold(start, end, Counter([kind])))
    folded = {number for one in found for number in range(one.first, one.last + 1)}
    if all(number in folded or _silent(lines[number - 1]) for number in range(first, last + 1)):
        return []
    return [one for one in found if one.last - one.first + 1 >= SHORTEST]


def statements(source: str, first: int, last: int) -> list[tuple[int, int, str]]:
    """The statements that lie wholly within lines ``first`` to ``last``: their lines, and their kind of plumbing or an
    empty string. Of a compound statement that is no plumbing the statements inside are given, docstrings never.
    """
    plumbing = list(_plumbing(_body(source), first, last))
    covered = {line for start, end, _ in plumbing for line in range(start, end + 1)}
    simple = (
        (node.lineno, node.end_lineno or node.lineno, "")
        for part in _body(source)
        if part.lineno <= last and (part.end_lineno or part.lineno) >= first
        for node in ast.walk(part)
        if isinstance(node, ast.stmt) and not _bodies(node)[0] and not _is_text(node)
    )
    rest = [one for one in simple if first <= one[0] and one[1] <= last and one[0] not in covered]
    return sorted([*plumbing, *rest])


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@lru_cache(maxsize=8)
def _body(source: str) -> Sequence[ast.stmt]:
    """The statements of a file; none if it cannot be parsed. Kept, since the steps of a reading share files."""
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError):
        return ()


def _silent(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _plumbing(body: Sequence[ast.stmt], first: int, last: int) -> Iterator[tuple[int, int, str]]:
    """The outermost statements of plumbing that lie wholly within the lines."""
    for node in body:
        start, end = node.lineno, node.end_lineno or node.lineno
        if end < first or start > last:
            continue
        kind = _kind(node) if first <= start and end <= last else ""
        if kind:
            yield start, end, kind
        else:
            for part in _bodies(node):
                yield from _plumbing(part, first, last)


def _bodies(node: ast.stmt) -> list[list[ast.stmt]]:
    """The statements inside a compound statement, part by part."""
    parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    return [*parts, *(handler.body for handler in getattr(node, "handlers", ()))]


def _kind(node: ast.stmt) -> str:
    """The kind of plumbing that a statement is, or nothing."""
    if isinstance(node, (ast.Assert, ast.Raise)):
        return "checks"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and "super()" not in ast.unparse(node):
        return _call(ast.unparse(node.value.func))
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return _assignment(node)
    if isinstance(node, (ast.If, ast.With, ast.For)):
        kinds = {_kind(inner) for part in _bodies(node) for inner in part}
        return kinds.pop() if len(kinds) == 1 else ""
    return ""


def _call(name: str) -> str:
    """The kind of a call whose result is thrown away."""
    if _LOGGERS.fullmatch(name):
        return "logging"
    if _MOVES.fullmatch(name):
        return "device moves"
    return "metrics" if _KEPT.fullmatch(_INDEX.sub("", name)) else ""


def _assignment(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> str:
    """The kind of an assignment: an item of a table of metrics, or a value that only changes its device."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if all(isinstance(one, ast.Subscript) and _METRICS.fullmatch(ast.unparse(_root(one))) for one in targets):
        return "metrics"
    value = node.value
    if isinstance(node, ast.Assign) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        same = ast.unparse(value.func.value) == ast.unparse(targets[0])
        given = ", ".join(map(ast.unparse, [*value.args, *(item.value for item in value.keywords)]))
        moved = value.func.attr in ("cpu", "cuda") or (value.func.attr == "to" and bool(_DEVICES.search(given)))
        return "device moves" if same and moved and "dtype" not in given else ""
    return ""


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node
