"""Watches lines while code runs: which statements ran, how often, and what each made when it first ran.

A trace function sees the frames of the watched functions only. What a statement made is known from its syntax: the
names it binds, the tensor that a method ending in ``_`` changes, the value it returns, the branch that it takes.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from annotator.observations.model import Seen
from annotator.observations.values import describe

Key = tuple[str, str]
"""Pin and path."""
PARTS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>"}


@dataclass(frozen=True)
class Shape:
    """A statement as its syntax tells: its lines (a compound one: of its head), what it makes, its body's lines."""

    first: int
    last: int
    names: tuple[str, ...] = ()
    returns: bool = False
    body: tuple[int, int] | None = None


@dataclass
class Ran:
    """What became of one statement: how often it ran, what it made at first, and tensors whose gradient is wanted."""

    shape: Shape
    times: int = 0
    seen: list[Seen] = field(default_factory=list)
    moving: dict[int, Any] = field(default_factory=dict)


@dataclass
class File:
    """A watched file: the lines that are watched, the statements on them by each of their lines, and what ran.

    ``begun`` numbers statements, over all files, in the order in which they first began.
    """

    lines: frozenset[int]
    shapes: Mapping[int, Shape]
    ran: dict[Shape, Ran] = field(default_factory=dict)
    begun: dict[Shape, int] = field(default_factory=dict)

    @classmethod
    def of(cls, source: str, lines: Iterable[int]) -> File:
        """Reads the statements of a file."""
        wanted = frozenset(lines)
        return cls(
            wanted, {n: shape for shape in shapes(ast.parse(source)) for n in range(shape.first, shape.last + 1)}
        )


def shapes(tree: ast.AST) -> Iterator[Shape]:
    """The statements of a module, outer ones first, so that inner ones have the last word about a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body: list[ast.stmt] = getattr(node, "body", [])
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try)):
                continue
            last = head_end(node) if body else node.end_lineno or node.lineno
            taken = (body[0].lineno, body[-1].end_lineno or 0) if isinstance(node, (ast.If, ast.While)) else None
            yield Shape(node.lineno, last, tuple(made(node)), isinstance(node, ast.Return), taken)


def head_end(node: ast.stmt) -> int:
    """The last line of a compound statement's head."""
    items = [item.context_expr for item in getattr(node, "items", ())]
    inside = [*items, *(kid for kid in ast.iter_child_nodes(node) if isinstance(kid, ast.expr))]
    return max([node.lineno, *(kid.end_lineno or 0 for kid in inside)])


def made(node: ast.stmt) -> Iterator[str]:
    """Expressions that a statement gives a new value, as plain dotted names."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)) or (isinstance(node, ast.AnnAssign) and node.value):
        targets = [node.target]
    elif isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        targets = list(changed(node.value))
    for target in targets:
        yield from dict.fromkeys(filter(None, map(dotted, parts(target))))


def parts(target: ast.expr) -> Iterator[ast.expr]:
    """The single targets of a pattern."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from parts(item)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def changed(call: ast.Call) -> Iterator[ast.expr]:
    """What a call changes in place by torch's rule for names: ``x.add_(…)``, ``torch._foreach_add_(x, …)``."""
    while isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        call = call.func.value
    if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_") and not call.func.attr.endswith("__"):
        root = call.func.value
        if isinstance(root, ast.Name) and root.id == "torch":
            yield from call.args[:1]
        else:
            yield root


def dotted(node: ast.expr) -> str:
    """``a.b["c"]`` as text; of an item whose key is computed the name of the whole; empty for anything else."""
    if isinstance(node, ast.Subscript):
        before = dotted(node.value)
        constant = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, (str, int))
        return ast.unparse(node) if before and constant and before == ast.unparse(node.value) else before
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before and before == ast.unparse(node.value) else ""
    return ""


def value_of(name: str, frame: FrameType) -> Any:
    """The value of such an expression in a frame: names, attributes and items only; nothing is called by name."""
    return _evaluate(ast.parse(name, mode="eval").body, frame)


def _evaluate(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Name):
        return frame.f_locals[node.id] if node.id in frame.f_locals else frame.f_globals[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_evaluate(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _evaluate(node.value, frame)[node.slice.value]
    raise AssertionError(f"no plain name: {ast.dump(node)}")


class Recorder:
    """Records what watched lines do. ``files`` are by the real path of the code that runs."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self.files, self.names = files, {Path(file).name for file in files}
        self.codes: dict[CodeType, File | None] = {}
        self.clock = itertools.count()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches this thread."""
        before = sys.gettrace()
        sys.settrace(self.enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The trace function of calls: watches a frame if its code has watched lines."""
        code = frame.f_code
        try:
            file = self.codes[code]
        except KeyError:
            file = self.codes[code] = self.watched(code)
        return Frame(file, self.clock).trace if file is not None else None

    def watched(self, code: CodeType) -> File | None:
        """The file of a code object, if the code has a watched line; a comprehension is part of its statement."""
        if code.co_name in PARTS or os.path.basename(code.co_filename) not in self.names:
            return None
        file = self.files.get(str(Path(code.co_filename).resolve()))
        lines = {line for *_, line in code.co_lines() if line}
        return file if file is not None and lines & file.lines else None


class Frame:
    """One running function: the statement that runs, which is finished when another begins."""

    def __init__(self, file: File, clock: Iterator[int]) -> None:
        self.file, self.clock = file, clock
        self.running: Shape | None = None
        self.at = -1

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The trace function of lines."""
        if event == "line":
            shape = self.file.shapes.get(frame.f_lineno)
            shape = shape if shape and shape.first in self.file.lines else None
            if shape is not self.running or frame.f_lasti <= self.at:  # back in the code: a loop, not a longer line
                self.finish(frame, frame.f_lineno)
                self.running = shape
                if shape and shape not in self.file.begun:
                    self.file.begun[shape] = next(self.clock)
            self.at = frame.f_lasti
        elif event == "return":
            self.finish(frame, 0, argument)
            self.running = None
        elif event == "exception":
            self.running = None
        return self.trace

    def finish(self, frame: FrameType, following: int, result: Any = None) -> None:
        """The running statement has ended: notes what it made, if it ran for the first time."""
        if self.running is None:
            return
        shape = self.running
        ran = self.file.ran.setdefault(shape, Ran(shape))
        ran.times += 1
        if ran.times > 1:
            return
        if shape.returns:
            self.note(ran, "returned", result)
        if shape.body:
            taken = shape.body[0] <= following <= shape.body[1]
            ran.seen.append(Seen("taken", "bool", text="yes" if taken else "no"))
        for name in shape.names:
            with suppress(LookupError, AttributeError):  # a loop over nothing binds nothing
                self.note(ran, name, value_of(name, frame))

    def note(self, ran: Ran, name: str, value: Any) -> None:
        """Notes one value; a tensor that carries a gradient is asked to keep it."""
        if getattr(value, "requires_grad", False) and hasattr(value, "retain_grad"):
            value.retain_grad()
            ran.moving[len(ran.seen)] = value
        ran.seen.append(describe(name, value))
