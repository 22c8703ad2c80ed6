"""Code beside code: a user's function, the minimal version and the reference's slice, aligned by role.

The role of a statement is what it computes, not how it is written: the operations it calls (under one name in torch,
JAX and NumPy), the axes they run over, its constants, and the canonical inputs that reach it through the assignments
before it. Names of variables, order of independent statements, casts, reshapes and helper functions do not take part.
Statements are matched by the overlap of their roles; the minimal version is the spine, since it is the shortest that
is proven to be the reference.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeGuard

from annotator.contracts.model import Contract, Implementation
from annotator.contracts.proofs import located, source_of
from annotator.workspace import Workspace

Roles = Counter[str]

_NAMES: Mapping[str, str] = {
    "abs": "absolute",
    "cat": "concatenate concat",
    "clamp": "clip clamp_min clamp_max",
    "detach": "stop_gradient no_grad",
    "div": "divide true_divide div_",
    "gather": "take_along_axis take_along_dim",
    "index_add": "segment_sum scatter_add bincount index_add_",
    "logsigmoid": "log_sigmoid",
    "logsumexp": "logaddexp",
    "max": "amax maximum",
    "mean": "average nanmean",
    "min": "amin minimum",
    "mul": "multiply mul_",
    "pow": "power square",
    "std": "nanstd",
    "sub": "subtract sub_",
    "sum": "nansum",
    "where": "masked_fill",
}
_SAME = {other: name for name, others in _NAMES.items() for other in others.split()}
"""Operations that go under several names."""

_PARTS = {
    "addcdiv": ("div", "mul", "add"),
    "addcmul": ("mul", "mul", "add"),
    "index_add": ("sum",),
    "lerp": ("sub", "mul", "add"),
    "mean": ("sum", "div"),
    "norm": ("pow", "sum", "sqrt"),
    "rsqrt": ("sqrt", "div"),
    "softmax": ("exp", "sum", "div"),
    "std": ("sub", "pow", "sum", "div", "sqrt"),
    "var": ("sub", "pow", "sum", "div"),
}
"""Operations that some write out: they count as what they are made of."""

_PLUMBING = frozenset(
    """append arange array asarray astype bool broadcast_to clone contiguous copy cpu defaultdict device dict double
    empty enumerate expand expand_as expand_dims flatten float full full_like getattr get index_select int isinstance
    item items keys len list long new_ones new_tensor new_zeros numpy ones ones_like range ravel reshape set size sorted
    squeeze stack tensor to tolist transpose tuple type type_as unique unsqueeze values view zeros zeros_like
    zip""".split()  # noqa: SIM905
)
"""Calls that move or shape values without computing them."""

_OPERATORS: Mapping[type[ast.AST], str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul"},
    **{ast.Mod: "mod", ast.USub: "neg", ast.FloorDiv: "floordiv"},
    **{ast.Gt: "gt", ast.GtE: "ge", ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne"},
    **{ast.BitAnd: "and", ast.BitOr: "or", ast.And: "and", ast.Or: "or", ast.Not: "not", ast.Invert: "not"},
}

_LOGIC = frozenset(("eq", "ne", "and", "or", "not"))
"""What steers rather than computes: it helps to match statements, and is no difference."""

_STEERING = _LOGIC | {"gt", "ge", "lt", "le"}

_REDUCTIONS = frozenset(("sum", "mean", "std", "var", "cumsum", "logsumexp", "log_softmax", "softmax"))
_AXES = {"dim", "axis", "axes", "dims"}
_SPREAD = {"unbiased", "correction", "ddof"}
_MATCH, _GAIN = 0.34, 0.1
"""The least overlap of roles at which two statements are one step, and the least by which one more part adds to it."""


@dataclass(frozen=True)
class Statement:
    """One statement: its lines in ``where`` (a file or a symbol), its text, and its role."""

    where: str
    first: int
    last: int
    text: str
    roles: Roles = field(default_factory=Counter)

    @property
    def operations(self) -> Roles:
        """The role without the inputs that reach it: what must be equal for two statements to be the same."""
        return Counter({role: n for role, n in self.roles.items() if not role.startswith("from ")})

    def to_json(self) -> dict[str, Any]:
        """Place and text."""
        return {"where": self.where, "first": self.first, "last": self.last, "text": self.text}


@dataclass(frozen=True)
class Row:
    """One step, as each side writes it; a side that has nothing of the kind is empty."""

    status: Literal["same", "differs", "yours only", "missing"]
    yours: tuple[Statement, ...] = ()
    minimal: tuple[Statement, ...] = ()
    reference: tuple[Statement, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Every field in JSON's types."""
        sides = {side: [item.to_json() for item in getattr(self, side)] for side in ("yours", "minimal", "reference")}
        return {"status": self.status, "note": self.note, **sides}


# Roles ----------------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Reads statements in the order of execution; functions of the same source are read where they are called."""

    where: str
    source: str
    functions: Mapping[str, ast.FunctionDef]
    known: Mapping[str, str]
    tables: Mapping[str, Mapping[Any, str]]
    rank: int
    settings: dict[str, Any]
    found: list[Statement] = field(default_factory=list)
    entered: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    """The functions that are being read."""
    inline: bool = False
    """Whether what a helper does counts as done by the statement that calls it."""

    def read(self, function: ast.FunctionDef, reaching: Mapping[str, frozenset[str]]) -> None:
        """The statements of a function, given which inputs reach its parameters."""
        self.entered.add(function.name)
        self.open.add(function.name)
        given = function.args
        names = [item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        self.block(function.body, {name: reaching.get(name, frozenset()) for name in names})
        self.open.discard(function.name)

    def block(self, body: Iterable[ast.stmt], reach: dict[str, frozenset[str]]) -> bool:
        """A sequence of statements, up to the return that is reached; ``reach`` is what reaches each name so far."""
        return any(self.statement(node, reach) for node in body)

    def statement(self, node: ast.stmt, reach: dict[str, frozenset[str]]) -> bool:
        """One statement; whether it surely returns. Of a branch that the knobs decide only the side taken is read."""
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)):
            self.simple(node, reach)
            return isinstance(node, ast.Return)
        if isinstance(node, ast.If):
            taken = _decided(node.test, self.settings)
            if taken is not None:
                return self.block(node.body if taken else node.orelse, reach)
            if set(_operations(node.test, self.functions, self.rank)) - _STEERING:
                self.keep(node, node.test, reach, last=node.body[0].lineno - 1)
            sides = [self.block(side, reach) for side in (node.body, node.orelse)]
            return all(sides)
        if isinstance(node, ast.For):
            self.keep(node, node.iter, reach, last=node.body[0].lineno - 1)
            self.bind(node.target, self.reaching(node.iter, reach), reach)
        if isinstance(node, (ast.For, ast.While, ast.With)):
            self.block(node.body, reach)
        return isinstance(node, ast.Raise)

    def simple(self, node: Any, reach: dict[str, frozenset[str]]) -> None:
        """An assignment, a return or a call; a text that stands alone is a docstring."""
        value = node.value
        if value is None or (isinstance(node, ast.Expr) and isinstance(value, ast.Constant)):
            return
        since = len(self.found)
        self.enter(value, reach)
        extra = [_OPERATORS[type(node.op)]] if isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS else []
        self.keep(node, value, reach, extra=extra)
        if self.inline:
            self.fold(node, since)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if target is not None:
                grown = self.reaching(value, reach)
                before = self.reaching(target, reach) if isinstance(node, ast.AugAssign) else frozenset()
                self.bind(target, grown | before, reach)

    def fold(self, node: ast.stmt, since: int) -> None:
        """What was found from there on becomes one statement: this one, with what its helpers do."""
        parts, self.found = self.found[since:], self.found[:since]
        self.entered -= self.entered - self.open
        if parts:
            end = node.end_lineno or node.lineno
            text = "\n".join(self.source.splitlines()[node.lineno - 1 : end])
            self.found.append(Statement(self.where, node.lineno, end, textwrap.dedent(text), _merged(parts).roles))

    def enter(self, value: ast.expr, reach: Mapping[str, frozenset[str]]) -> None:
        """Reads the functions of this source that an expression calls, each once."""
        for node in ast.walk(value):
            name = self.called(node) if isinstance(node, ast.Call) else ""
            if not isinstance(node, ast.Call) or name not in self.functions or name in self.entered:
                continue
            given = self.functions[name].args
            names = [item.arg for item in (*given.posonlyargs, *given.args)]
            names = names[1:] if names[:1] in (["self"], ["cls"]) else names
            arguments = dict(zip(names, node.args, strict=False))
            arguments |= {item.arg: item.value for item in node.keywords if item.arg}
            before = dict(self.settings)
            self.settings |= {n: self.settings[v.id] for n, v in arguments.items() if _is_setting(v, before)}
            self.settings |= {n: v.value for n, v in arguments.items() if isinstance(v, ast.Constant)}
            self.read(self.functions[name], {n: self.reaching(v, reach) for n, v in arguments.items()})
            self.settings = before

    def called(self, node: ast.Call) -> str:
        """The name that is called; from a table of functions the one that the knobs choose."""
        function = node.func
        if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name):
            key = function.slice
            chosen = self.settings.get(key.id) if isinstance(key, ast.Name) else None
            return self.tables.get(function.value.id, {}).get(chosen, "")
        return _called(node)

    def keep(
        self,
        node: Any,
        value: ast.expr,
        reach: Mapping[str, frozenset[str]],
        *,
        extra: Sequence[str] = (),
        last: int = 0,
    ) -> None:
        """Notes a statement, unless it computes nothing."""
        roles: Roles = Counter([*_operations(value, self.functions, self.rank), *extra])
        if not set(roles) - _LOGIC:
            return
        roles.update({f"from {name}": 1 for name in self.reaching(value, reach)})
        end = last or node.end_lineno
        text = "\n".join(self.source.splitlines()[node.lineno - 1 : max(end, node.lineno)])
        self.found.append(Statement(self.where, node.lineno, max(end, node.lineno), textwrap.dedent(text), roles))

    def reaching(self, value: ast.AST, reach: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """The canonical names that reach an expression."""
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        keys = {
            node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        attributes = {node.attr for node in ast.walk(value) if isinstance(node, ast.Attribute)}
        direct = {self.known[name] for name in (names | keys | attributes) & set(self.known)}
        return frozenset(direct).union(*(reach.get(name, frozenset()) for name in names))

    def bind(self, target: ast.AST, values: frozenset[str], reach: dict[str, frozenset[str]]) -> None:
        """Notes what reaches the names that are assigned; a slot of an array adds to what reached the array."""
        if isinstance(target, ast.Name):
            reach[target.id] = values
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self.bind(item, values, reach)
        elif isinstance(target, (ast.Subscript, ast.Attribute)) and isinstance(target.value, ast.Name):
            reach[target.value.id] = reach.get(target.value.id, frozenset()) | values


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_setting(value: ast.expr, settings: Mapping[str, Any]) -> TypeGuard[ast.Name]:
    return isinstance(value, ast.Name) and value.id in settings


def _decided(test: ast.expr, settings: Mapping[str, Any]) -> bool | None:
    """What a condition comes to at the settings of the knobs, if they decide it."""
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    plain = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Set)
    marks = (ast.cmpop, ast.boolop, ast.unaryop, ast.expr_context)
    if not names or not names <= set(settings) or not all(isinstance(n, (*plain, *marks)) for n in ast.walk(test)):
        return None
    try:
        return bool(eval(compile(ast.Expression(test), "knobs", "eval"), {"__builtins__": {}}, dict(settings)))
    except Exception:
        return None


def _operations(value: ast.expr, functions: Mapping[str, Any], rank: int) -> Iterator[str]:
    """The operations of an expression, with axes and constants; what shapes or calls its own helpers does not count."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = _called(node)
            if name and name not in _PLUMBING and name not in functions and not name[0].isupper():
                plain = name.removeprefix("_foreach_").rstrip("_") or name  # in place, or a list of tensors at once
                yield from _call(node, _SAME.get(plain, plain), rank)
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp)) and type(node.op) in _OPERATORS:
            if not (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)):
                yield _OPERATORS[type(node.op)]
        elif isinstance(node, ast.Compare):
            yield from (_OPERATORS[type(op)] for op in node.ops if type(op) in _OPERATORS)
        elif isinstance(node, ast.IfExp):
            yield "where"
        elif isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value not in (0.0, 1.0):
            yield f"{node.value:g}"


def _call(node: ast.Call, name: str, rank: int) -> Iterator[str]:
    if name == "where" and len(node.args) == 1:
        return
    yield from _PARTS.get(name, (name,))
    if name in ("std", "var") and _is_population(node):
        yield "population"
    axes = [item.value for item in node.keywords if item.arg in _AXES]
    axes += node.args[:1] if name in _REDUCTIONS and isinstance(node.func, ast.Attribute) else []
    axes += node.args[1:2] if name in _REDUCTIONS else []
    for axis in axes:
        with suppress(ValueError):
            number = ast.literal_eval(axis)
            if type(number) is int:
                yield f"along {number - rank if number > 0 else number}"


def _is_population(node: ast.Call) -> bool:
    """Whether a standard deviation divides by n: said so, or NumPy's and JAX's default."""
    for item in node.keywords:
        if item.arg in _SPREAD and isinstance(item.value, ast.Constant):
            return not item.value.value
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in ("np", "numpy", "jnp")


def read(
    source: str,
    function: str,
    where: str,
    known: Mapping[str, str],
    *,
    settings: Mapping[str, Any] | None = None,
    rank: int = 2,
    shift: int = 0,
    inline: bool = False,
) -> list[Statement]:
    """The statements of a function of ``source`` that compute something, those of its helpers where they are called.

    ``inline``: a helper's statements are part of the one that calls it, so that only the function's own are given.

    ``function`` may be ``Class.method`` (a bare class means its forward or call). ``known`` maps the source's names to
    canonical ones; ``settings`` are values of its names by which branches are decided; ``rank`` is the number of axes
    of the inputs, so that the last of two is -1 also where it is written 1; ``shift`` is added to line numbers.
    """
    tree = ast.parse(source)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    name = function.rpartition(".")[2]
    entry = functions.get(name) or functions.get("forward") or functions.get("__call__")
    if entry is None:
        return []
    reader = _Reader(where, source, functions, known, _tables(tree), rank, dict(settings or {}), inline=inline)
    given = (*entry.args.posonlyargs, *entry.args.args, *entry.args.kwonlyargs)
    reader.read(entry, {item.arg: frozenset({known[item.arg]}) for item in given if item.arg in known})
    return [replace(item, first=item.first + shift, last=item.last + shift) for item in reader.found]


def _tables(tree: ast.Module) -> dict[str, dict[Any, str]]:
    """Module-level dictionaries from constants to functions of the module."""
    found: dict[str, dict[Any, str]] = {}
    for node in tree.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(value, ast.Dict) and isinstance(targets[0], ast.Name):
            pairs = zip(value.keys, value.values, strict=True)
            found[targets[0].id] = {
                k.value: v.id for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Name)
            }
    return found


# Alignment ------------------------------------------------------------------------------------------------------------


def similarity(a: Statement, b: Statement) -> float:
    """The overlap of two roles, from 0 to 1; operations weigh twice as much as the inputs that reach them."""

    def weight(roles: Roles) -> float:
        return sum(n * (1 if role.startswith("from ") or role in _LOGIC else 2) for role, n in roles.items())

    if not a.operations & b.operations:
        return 0.0
    return weight(a.roles & b.roles) / weight(a.roles | b.roles)


def matched(left: Sequence[Statement], right: Sequence[Statement]) -> dict[int, list[int]]:
    """For each statement on the left those on the right that do its work; each on the right belongs to one.

    The best pairs first, as one assignment over all; then what is left over joins the statement it is a part of.
    """
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    if not left or not right:
        return {}
    scores = np.array([[similarity(a, b) for b in right] for a in left])
    # Between equals the one in the same place wins.
    places = np.abs(np.linspace(0, 1, len(left))[:, None] - np.linspace(0, 1, len(right))[None])
    rows, columns = linear_sum_assignment(-(scores - 0.05 * places))
    pairs = {int(i): int(j) for i, j in zip(rows, columns, strict=True) if scores[i, j] >= _MATCH}
    return _joined(left, right, pairs)


def counterparts(left: Sequence[Statement], right: Sequence[Statement]) -> dict[int, list[int]]:
    """`matched` both ways and without SciPy, for pages: the most alike first, then the next, so long as both are free.

    One on the right may belong to several on the left, where they make it together. An input that only one side
    names says nothing.
    """
    both = _inputs(left) & _inputs(right)
    left, right = ([_within(item, both) for item in items] for items in (left, right))
    scores = {(i, j): similarity(a, b) for i, a in enumerate(left) for j, b in enumerate(right)}
    apart = {(i, j): abs(i / max(len(left) - 1, 1) - j / max(len(right) - 1, 1)) for i, j in scores}
    pairs: dict[int, int] = {}
    for i, j in sorted(scores, key=lambda key: -(scores[key] - 0.05 * apart[key])):
        if scores[i, j] >= _MATCH and i not in pairs and j not in pairs.values():
            pairs[i] = j
    found = _joined(left, right, pairs)
    back = _joined(right, left, {j: i for i, j in pairs.items()})
    for j, items in back.items():
        for i in items:
            found.setdefault(i, [j])
    return found


def _inputs(items: Iterable[Statement]) -> set[str]:
    return {role for item in items for role in item.roles if role.startswith("from ")}


def _within(item: Statement, inputs: set[str]) -> Statement:
    kept = {role: n for role, n in item.roles.items() if not role.startswith("from ") or role in inputs}
    return replace(item, roles=Counter(kept))


def _joined(left: Sequence[Statement], right: Sequence[Statement], pairs: Mapping[int, int]) -> dict[int, list[int]]:
    """The pairs, and what is left over on the right with the statement that it is a part of."""
    found = {i: [j] for i, j in pairs.items()}
    taken = {j for items in found.values() for j in items}
    for j in (j for j in range(len(right)) if j not in taken):
        gains = {i: _gain(left[i], [right[k] for k in items], right[j]) for i, items in found.items()}
        best = max(gains, key=lambda i: gains[i], default=None)
        if best is not None and gains[best] > _GAIN:
            found[best] = sorted([*found[best], j])
    return found


def _merged(items: Iterable[Statement]) -> Statement:
    total: Roles = Counter()
    for item in items:
        total += Counter({role: n for role, n in item.roles.items() if not role.startswith("from ")})
        total |= Counter({role: n for role, n in item.roles.items() if role.startswith("from ")})
    return Statement("", 0, 0, "", total)


def _gain(whole: Statement, parts: Sequence[Statement], more: Statement) -> float:
    """How much nearer the parts come to the whole with one more."""
    return similarity(whole, _merged([*parts, more])) - similarity(whole, _merged(parts))


def align(yours: Sequence[Statement], minimal: Sequence[Statement], reference: Sequence[Statement] = ()) -> list[Row]:
    """The rows: the steps of the spine in its order, and what only the user does where he does it.

    The spine is the minimal version, or the reference where the user's function is written more like it.
    """
    by_reference = likeness(yours, reference) > likeness(yours, minimal)
    spine, other = (reference, minimal) if by_reference else (minimal, reference)
    mine, theirs = _groups(spine, yours), _groups(spine, other)
    rows: list[Row] = []
    for i, step in enumerate(spine):
        own, shown = tuple(yours[j] for j in mine.get(i, ())), tuple(other[j] for j in theirs.get(i, ()))
        at = next((n for n, row in enumerate(rows) if own and row.yours == own), None)
        if at is None:
            rows.append(_row(own, (step,), shown, by_reference))
        else:
            sides = (rows[at].reference, rows[at].minimal) if by_reference else (rows[at].minimal, rows[at].reference)
            rows[at] = _row(own, (*sides[0], step), (*sides[1], *shown), by_reference)
    placed = {item for row in rows for item in map(id, row.yours)}
    for j, item in enumerate(yours):
        if id(item) not in placed:
            before = max((n for n, row in enumerate(rows) for own in row.yours if own in yours[:j]), default=-1)
            rows.insert(before + 1, Row("yours only", (item,), note=_listed(item.operations)))
    return rows


def _row(
    own: tuple[Statement, ...], step: tuple[Statement, ...], shown: tuple[Statement, ...], by_reference: bool
) -> Row:
    note = _note(step, own)
    minimal, reference = (shown, step) if by_reference else (step, shown)
    return Row("missing" if not own else "differs" if note else "same", own, minimal, reference, note)


def likeness(left: Sequence[Statement], right: Sequence[Statement]) -> float:
    """How much of the left is on the right, from 0 to 1, less what the right has beyond it."""
    found = matched(left, right)
    total = sum(similarity(left[i], _merged([right[j] for j in items])) for i, items in found.items())
    return total / max(len(left), len(right), 1)


def _groups(spine: Sequence[Statement], other: Sequence[Statement]) -> dict[int, list[int]]:
    """Matches both ways: several statements of the other side may make one step, or one statement several steps."""
    found = matched(spine, other)
    for j, items in matched(other, spine).items():
        for i in items:
            found.setdefault(i, [j])
    return found


def _note(step: Sequence[Statement], own: Sequence[Statement]) -> str:
    """What the two do differently, in operations; empty when nothing."""
    right = _merged(step).operations
    if not own:
        return _listed(right)
    mine = _merged(own).operations
    lacks, has = (Counter({k: n for k, n in c.items() if k not in _LOGIC}) for c in (right - mine, mine - right))
    parts = [f"without {_listed(lacks)}"] if lacks else []
    return ", ".join([*parts, *([f"with {_listed(has)}"] if has else [])])


def _listed(roles: Roles) -> str:
    return ", ".join(sorted(roles.elements()))


# Sources --------------------------------------------------------------------------------------------------------------


def entry_of(implementation: Implementation) -> tuple[str, str] | None:
    """File (``minimal/…py``) and function that a minimal implementation's adapter calls."""
    call: Any = implementation.call
    while hasattr(call, "func"):
        call = call.func
    tree = ast.parse(textwrap.dedent(inspect.getsource(call)))
    files = [symbol for symbol in implementation.symbols if ":" not in symbol]
    modules = {file.rpartition("/")[2].removesuffix(".py"): file for file in files}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            return modules[node.value.id], node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] in modules:
            return modules[(node.module or "").rpartition(".")[2]], node.names[0].name
    return None


def view(
    workspace: Workspace,
    contract: Contract,
    reference: Implementation,
    file: str,
    function: str,
    *,
    mapping: Mapping[str, str] | None = None,
    point: Mapping[str, Any] | None = None,
) -> list[Row]:
    """The user's function beside the minimal version and a reference, at the reference's dialect and ``point``.

    Empty where there is no minimal version in torch whose code can be read.

    Raises:
        ContractError: the reference's pin is not there.
    """
    minimal = next((i for i in contract.implementations if i.role == "minimal" and i.backend == "torch"), None)
    entry = entry_of(minimal) if minimal else None
    if entry is None:
        return []
    names = [*(item.name for item in contract.inputs), *(item.name for item in contract.knobs)]
    canonical = {name: name for name in names}
    settings = {knob.name: knob.default for knob in contract.knobs} | dict(reference.dialect) | dict(point or {})
    theirs = canonical | dict(mapping or {})
    asked: dict[str, Any] = {"rank": max(len(item.shape) for item in contract.inputs)}
    spine = read(source_of(workspace, entry[0]).decode(), entry[1], entry[0], canonical, settings=settings, **asked)
    own = {name: settings[ours] for name, ours in theirs.items() if ours in settings}
    yours = read(Path(file).read_text(encoding="utf-8"), function, file, theirs, settings=own, **asked)
    return align(yours, spine, _pinned(workspace, reference, canonical, settings=settings, **asked))


def _pinned(
    workspace: Workspace, reference: Implementation, canonical: Mapping[str, str], **asked: Any
) -> list[Statement]:
    """The statements of a reference's symbols, in their order; its own names count as canonical where they agree."""
    found: list[Statement] = []
    for symbol in reference.symbols:
        if ":" in symbol:
            _, first, data = located(workspace, symbol)
            text = textwrap.dedent(data.decode())
            found += read(text, symbol.rpartition(".")[2], symbol, canonical, shift=first - 1, **asked)
    return found


_MARK = {"same": "=", "differs": "≠", "missing": "-", "yours only": "+"}


def lines(rows: Sequence[Row]) -> list[str]:
    """The view as text: a row a step, who writes it where, and what differs."""
    told = []
    for row in rows:
        told.append(f"{_MARK[row.status]} {row.status}{f': {row.note}' if row.note else ''}")
        for side in ("yours", "minimal", "reference"):
            for item in getattr(row, side):
                first, *rest = item.text.splitlines()
                told.append(f"    {side:<9} {item.first:>5}  {first}")
                told += [f"    {'':<9} {'':>5}  {line}" for line in rest]
    return told
