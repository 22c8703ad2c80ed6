"""The mutants of a file: every place where an operator applies, once each, less those that cannot change what runs.

Most operators are cosmic-ray's, taken through its programming interface: it edits a tree that keeps every blank, so
that a mutant is the file with one place changed. Left out are replacements that say nothing about numerical code
(`_speaks`, `_meant`). Our own operators add what general ones miss.

No mutant is what compiles to the same code as the original or as an earlier mutant, once docstrings, annotations,
``__all__``, the wording of errors and just-in-time compilation are taken away.
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.operators.provider import OperatorProvider

from tests.mutants.operators import OPERATORS

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"})
_BITS = frozenset({"BitOr", "BitAnd", "BitXor"})


@dataclass(frozen=True)
class Mutant:
    """One changed place.

    Attributes:
        file: path from the root of the repository.
        function: qualified name of the function around it, empty at the top of the module.
        operator: what made it.
        before: the statement (of a compound one the head), as `ast.unparse` writes it.
        after: what it became.
        lines: the lines of that statement that run when its function is called; empty if they run at import.
        source: the whole file, changed.
    """

    file: str
    function: str
    operator: str
    before: str
    after: str
    lines: frozenset[int]
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies it when lines move; two of the same key say the same of two places in one function."""
        return self.file, self.function, self.before, self.after

    def line(self) -> str:
        """The mutant in one line."""
        return f"{self.file} {self.function or '(module)'} [{self.operator}]  {self.before}  ->  {self.after}"


def mutants(path: Path, root: Path, within: Container[str] | None = None) -> list[Mutant]:
    """The mutants of a file in the order of its lines: all, or those within top-level functions and classes."""
    return mutants_of(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix(), within)


def mutants_of(source: str, file: str, within: Container[str] | None = None) -> list[Mutant]:
    """The mutants of a source text. Top-level statements are taken one by one, for parsing a whole file is slow."""
    found: list[Mutant] = []
    before, line = "", 0
    for chunk in get_ast(source).children:
        text = chunk.get_code()
        whole = before, source[len(before) + len(text) :]
        if text.strip() and (within is None or _named(text) in within):
            found += _of_chunk(text, file, line, whole)
        before, line = before + text, line + text.count("\n")
    return found


def _named(text: str) -> str:
    """The name of a top-level function or class; of other statements an empty string."""
    return next((getattr(node, "name", "") for node in ast.parse(text).body), "")


def _of_chunk(text: str, file: str, line: int, around: tuple[str, str]) -> Iterator[Mutant]:
    tree = ast.parse(text)
    seen = {fingerprint(tree)}
    made = [*_by_cosmic_ray(text), *_by_ours(text, tree)]
    for operator, place, mutated in sorted(made, key=lambda item: item[1]):
        try:
            changed = ast.parse(mutated)
            key = fingerprint(changed)
        except SyntaxError:
            continue
        if key not in seen:
            seen.add(key)
            path, function = _path(tree, place)
            old = _at(tree, path)
            inside = function and not isinstance(old, ast.FunctionDef)
            lines = frozenset(n + line for n in _lines(old)) if inside else frozenset()
            head = _head(old), _head(_at(changed, path))
            yield Mutant(file, function, operator, *head, lines, mutated.join(around))


Place = tuple[int, int]
"""Line (from 1) and column (in characters)."""


# cosmic-ray's operators -----------------------------------------------------------------------------------------------


@cache
def _operators() -> dict[str, Any]:
    provider = OperatorProvider()
    return {name: provider[name]() for name in provider if not name.startswith("Variable") and _speaks(name)}


def _speaks(name: str) -> bool:
    """Whether an operator says something about numerical code.

    Arithmetic is exchanged with arithmetic and bits with bits: a float array refuses the rest, so that it would only
    flatter the score. ``is`` for ``==`` is refused by the linter, ``+x`` is ``x``, ``not`` or ``~`` of a float raises.
    """
    kind, _, pair = name.partition("_")
    old, _, new = pair.partition("_")
    if kind == "ReplaceBinaryOperator":
        return {old, new} <= _ARITHMETIC or {old, new} <= _BITS
    if kind == "ReplaceUnaryOperator":
        return old == "Delete"
    return not (kind == "ReplaceComparisonOperator" and new.startswith("Is") and not old.startswith("Is"))


def _by_cosmic_ray(text: str) -> Iterator[tuple[str, Place, str]]:
    """Operator, place and text of every mutant."""
    tree = get_ast(text)
    nodes = list(ast_nodes(tree))
    for name, operator in _operators().items():
        for node in nodes:
            for index, (place, _) in enumerate(operator.mutation_positions(node)):
                if _meant(name, node):
                    yield name, place, _changed(tree, node, operator, index)


def _meant(name: str, node: Any) -> bool:
    """Whether it is a mutation: the star before keywords is no product, and the order of texts says nothing."""
    of_text = node.type == "comparison" and node.children[-1].type == "string"
    return getattr(node.parent, "type", "") != "parameters" and not (
        of_text and name.endswith(("Lt", "LtE", "Gt", "GtE"))
    )


def _changed(tree: Any, node: Any, operator: Any, index: int) -> str:
    """The text with one node mutated. The tree is put back: to parse it anew would take most of the time."""
    siblings, children = node.parent and node.parent.children, list(getattr(node, "children", ()))
    values = [(leaf, leaf.value) for leaf in [node, *children] if hasattr(leaf, "value")]
    before = siblings and list(siblings)
    mutated = operator.mutate(node, index)
    if mutated is not node:
        siblings[:] = [each for each in (mutated if each is node else each for each in siblings) if each is not None]
    text: str = tree.get_code()
    if before:
        siblings[:] = before
    if children:
        node.children = children
    for leaf, value in values:
        leaf.value = value
    return text


# Our own operators ----------------------------------------------------------------------------------------------------


def _by_ours(source: str, tree: ast.Module) -> Iterator[tuple[str, Place, str]]:
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for each in lines:
        starts.append(starts[-1] + len(each))
    whole = source.encode()
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        for name, operator in OPERATORS.items():
            for changed in operator(node):
                text = f"({ast.unparse(changed)})".encode()
                column = len(lines[node.lineno - 1][: node.col_offset].decode())
                yield name, (node.lineno, column), (whole[:first] + text + whole[last:]).decode()


# What a mutant is -----------------------------------------------------------------------------------------------------


def _path(tree: ast.Module, place: Place) -> tuple[list[tuple[str, int]], str]:
    """The way to the innermost statement at a place, and the qualified name of the function around it."""
    path: list[tuple[str, int]] = []
    names: list[str] = []
    inside, node = "", tree
    while True:
        step = _step(node, place)
        if step is None:
            return path, inside
        path.append(step)
        node = getattr(node, step[0])[step[1]]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
            inside = ".".join(names) if isinstance(node, ast.FunctionDef) else inside


def _step(node: ast.AST, place: Place) -> tuple[str, int] | None:
    for field, value in ast.iter_fields(node):
        for i, child in enumerate(value if isinstance(value, list) else ()):
            if isinstance(child, ast.stmt) and _first(child) <= place < (child.end_lineno, child.end_col_offset):
                return field, i
    return None


def _first(statement: ast.stmt) -> Place:
    decorators = getattr(statement, "decorator_list", [])
    return min([(statement.lineno, statement.col_offset), *((d.lineno, d.col_offset - 1) for d in decorators)])


def _at(tree: ast.AST, path: list[tuple[str, int]]) -> ast.AST:
    for field, i in path:
        tree = getattr(tree, field)[i]
    return tree


def _lines(statement: ast.AST) -> frozenset[int]:
    """The lines of a statement; of a compound one, those of its head."""
    assert isinstance(statement, ast.stmt)
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return frozenset(range(statement.lineno, max(last, statement.lineno) + 1))


def _head(statement: ast.AST) -> str:
    """A statement on one line, without annotations; of a compound one its head."""
    bare = Essence().visit(copy.deepcopy(statement))
    if bare is None:
        return "(nothing)"
    if isinstance(bare, ast.Module):
        return "(module)"
    for field in ("body", "orelse", "finalbody"):
        if isinstance(getattr(bare, field, None), list):
            setattr(bare, field, [ast.Expr(ast.Constant(...))] if field == "body" else [])
    return " ".join(ast.unparse(ast.fix_missing_locations(bare)).removesuffix("...").rstrip().split())


# Which mutants are none -----------------------------------------------------------------------------------------------


def fingerprint(tree: ast.Module) -> Any:
    """What a tree compiles to, as nested tuples: equal for trees that run alike."""
    bare = ast.fix_missing_locations(Essence().visit(copy.deepcopy(tree)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _frozen(compile(bare, "", "exec", dont_inherit=True))


def _frozen(code: CodeType) -> Any:
    constants = tuple(_frozen(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


class Essence(ast.NodeTransformer):
    """Takes away what does not decide a value: docstrings, annotations, ``__all__``, wording, compilation."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [item for item in node.decorator_list if "jit" not in ast.unparse(item)]
        return self._documented(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._documented(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._documented(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node.targets[0]) == "__all__" else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def _documented(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:] or [ast.Pass()]
        return node
