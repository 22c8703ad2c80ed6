"""All about one of PyTorch's operators: schema, implementations for each dispatch key, kernels, derivative, callers.

Put together from what the pins register (``seams``), from the files that torch is generated from (``aten``), and from
the calls that lead from an implementation to the kernels that it launches.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from annotator.errors import near_matches
from annotator.index import aten
from annotator.index.registering import ALL
from annotator.index.seams import MACRO, Row, Target, full, parsed
from annotator.index.store import posted

if TYPE_CHECKING:
    from pathlib import Path

    from annotator.index.lookup import Index
    from annotator.index.model import Definition

NOT_IN_WHEEL = "its source is not in the wheel"
WIDEST = 400
"""How many C++ functions the way from an implementation to its kernels may pass through."""

CALLERS = 12
"""How many callers are looked for."""


@dataclass(frozen=True, slots=True)
class Part:
    """One place that an operator has.

    ``role``: ``schema implementation fake derivative decomposition kernel declaration stub caller``. ``key``: the
    dispatch keys, or the input that a derivative is for. ``text``: the schema, the name, the formula or the line there.
    ``symbol``: the definition that stands there, if it is one. ``reason`` says why something is not ``exact``.
    """

    role: str
    key: str
    text: str
    symbol: str
    pin: str
    path: str
    line: int
    certainty: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, ``ns::name.overload``, with its places."""

    name: str
    parts: tuple[Part, ...]


def operators(index: Index, asked: str, pin: str | None = None) -> list[Operator]:
    """The operators that a name may mean, each with all that is known of it; torch's own last."""
    namespace, name, given = parsed(asked)
    found = []
    for each, variant in _registered(index, namespace, name, given):
        if each != "aten" and (parts := list(_Custom(index, each, name, variant).parts())):
            found.append(Operator(full(each, name, variant), tuple(parts)))
    if namespace in ("", "aten"):
        found += _aten(index, name, given)
    return [one for one in found if pin is None or any(part.pin == pin for part in one.parts)]


def near(index: Index, asked: str) -> list[str]:
    """Operators that are spelt like a name, in any namespace first where the name is the same."""
    _, name, _ = parsed(asked)
    same = sorted({full(each, name) for each, _ in _registered(index, "", name, None)} - {full("aten", name)})
    if name in aten.names(_tree(index) / aten.FUNCTIONS):
        same.append(full("aten", name))
    if same:
        return same
    known = index.connection.execute("SELECT DISTINCT name FROM operators WHERE role != 'library'").fetchall()
    return list(near_matches(name, sorted({text for (text,) in known} | aten.names(_tree(index) / aten.FUNCTIONS))))


def _pin(index: Index) -> str:
    """The pin that holds torch."""
    return index.resolver.program.tops.get("torch", ["torch"])[0]


def _tree(index: Index) -> Path:
    return index.workspace.tree(_pin(index))


def _registered(index: Index, namespace: str, name: str, overload: str | None) -> list[tuple[str, str]]:
    """The namespaces and overloads under which the pins register a name."""
    seams = index.resolver.program.seams
    rows = seams.rows(name)
    plain = {(row.namespace, row.overload) for row in rows if MACRO not in row.namespace and row.overload != ALL}
    hidden = {row.overload for row in rows if MACRO in row.namespace}
    if hidden:  # a namespace that a macro hides is told by who calls the operator
        plain |= {(space, each) for space in set(_called_in(index, name)) for each in hidden if seams.of(space, name)}
    return sorted(one for one in plain if namespace in ("", one[0]) and overload in (None, one[1]))


def _part(index: Index, role: str, key: str, definition: Definition, certainty: str, reason: str) -> Part:
    text = definition.signature or definition.qualname
    where = (definition.pin, definition.path, definition.line)
    return Part(role, key, text, definition.symbol, *where, certainty, reason)


class _Custom:
    """An operator that the pins register."""

    def __init__(self, index: Index, namespace: str, name: str, overload: str) -> None:
        self.index, self.namespace, self.name, self.overload = index, namespace, name, overload
        self.seams = index.resolver.program.seams
        self.rows = self.seams.of(namespace, name, overload)

    def parts(self) -> Iterator[Part]:
        """Schema, implementations, kernels, then the rest."""
        made = [row for row in self.rows if row.role == "implementation"]
        yield from (self.schema(row) for row in self.rows if row.role == "schema")
        starts: list[Definition] = []
        for row in made:
            part, definition = self.function(row)
            yield part
            starts += [definition] if definition is not None and definition.language != "python" else []
        yield from kernels(self.index, starts)
        for role in ("fake", "derivative", "decomposition"):
            yield from (self.function(row)[0] for row in self.rows if row.role == role)
        if self.rows:
            yield from callers(self.index, self.namespace, self.name, self.overload)

    def schema(self, row: Row) -> Part:
        """The registration of the schema; where it gives none, torch infers one from the function's signature."""
        reasons = [row.reason, f"under {row.condition}" if row.condition else ""]
        text = row.schema
        if not text:
            target = self.seams.target(row) or next(
                (found for one in self.rows if one.line == row.line and (found := self.seams.target(one))), None
            )
            definition = self.definition(target)
            text = definition.signature if definition is not None else f"{row.name}: inferred from its function"
            reasons.append("torch infers the schema from the function")
        why = "; ".join(filter(None, reasons))
        certainty = "inferred" if row.reason or not row.schema else "exact"
        return Part("schema", "", text, "", row.pin, row.path, row.line, certainty, why)

    def function(self, row: Row) -> tuple[Part, Definition | None]:
        """What is registered: the function where that is found, else the place that registers it."""
        target = self.seams.target(row)
        definition = self.definition(target)
        registered = f"registered in {row.path}:{row.line}"
        condition = f"under {row.condition}" if row.condition else ""
        if definition is None or target is None:
            what = f"{row.target} is not in the sources" if row.target else "what is registered is no plain name"
            why = "; ".join(filter(None, (what, row.reason, condition)))
            return Part(row.role, row.key, row.target, "", row.pin, row.path, row.line, "unresolved", why), None
        why = "; ".join(filter(None, (registered, target.reason, row.reason, condition)))
        certainty = "exact" if not target.reason and not row.reason else "inferred"
        return _part(self.index, row.role, row.key, definition, certainty, why), definition

    def definition(self, target: Target | None) -> Definition | None:
        return self.index.resolver.target(target.file, target.ordinal) if target is not None else None


def kernels(index: Index, starts: list[Definition]) -> Iterator[Part]:
    """The CUDA kernels that C++ functions launch, in their bodies or in what these call inside the pin."""
    from annotator.index.calls import mentioned

    seen = {(one.symbol, one.path, one.line) for one in starts}
    waiting = deque((one, "") for one in starts)
    while waiting and len(seen) < WIDEST:
        current, through = waiting.popleft()
        for call, target, made in mentioned(index, current):
            key = (target.symbol, target.path, target.line)
            if key in seen or target.language == "python" or target.pin != current.pin:
                continue
            if "__global__" in target.decorators:
                what = "launched" if made else "named, so it may be launched,"
                why = f"{what} in {call.path}:{call.line}" + (f", by {through}" if through else "")
                why = f"{why}; {call.reason}" if call.reason else why
                for one in _of_one_name(index, target):
                    seen.add((one.symbol, one.path, one.line))
                    yield _part(index, "kernel", "CUDA", one, "inferred", why)
            elif target.kind == "macro" or (made and target.kind in ("function", "method")):
                seen.add(key)
                waiting.append((target, target.qualname))


def _of_one_name(index: Index, kernel: Definition) -> list[Definition]:
    """A kernel with the others of its name in its file: of templates, only the compiler knows which is taken."""
    found = index.definitions(kernel.pin, kernel.path)
    return [one for one in found if one.qualname == kernel.qualname and "__global__" in one.decorators]


def callers(index: Index, namespace: str, name: str, overload: str = "") -> Iterator[Part]:
    """Where Python names ``torch.ops.namespace.name``, by its text outside of strings and comments; torch's own last.

    A packet without overload counts for each of its overloads.
    """
    from annotator.index.languages import normal, parse

    pattern = re.compile(rf"(?<![\w.])(torch\.ops\.|_?ops\.|){namespace}\.{name}(?:\.(\w+))?\b".encode())
    wanted = {None, (overload or "default").encode()}
    count = 0
    for pin, path in sorted(_files_with(index, name, namespace), key=lambda row: (row[0] == "torch", *row)):
        source = normal(index.resolver.read(pin, path))
        hits = [match for match in pattern.finditer(source) if match[2] in wanted]
        tree = parse(source, "python") if hits else None
        for match in hits:
            node = tree and tree.root_node.descendant_for_byte_range(match.start(), match.end())
            if node is None or node.type in ("string", "string_content", "comment"):
                continue
            line = source.count(b"\n", 0, match.start()) + 1
            text = source.split(b"\n")[line - 1].decode("utf-8", "replace").strip()
            why = "" if match[1].startswith(b"torch") else "by the name of an alias"
            certainty = "inferred" if why else "exact"
            yield Part("caller", "", text, _around(index, pin, path, line), pin, path, line, certainty, why)
            count += 1
            if count == CALLERS:
                return


def _files_with(index: Index, *names: str) -> list[tuple[str, str]]:
    """Pin and path of the Python files in which several names occur."""
    numbers = set.intersection(*(posted(index.connection, name) for name in names))
    statement = "SELECT pin, path FROM files WHERE id=? AND language='python'"
    return [row for number in numbers if (row := index.connection.execute(statement, (number,)).fetchone())]


def _around(index: Index, pin: str, path: str, line: int) -> str:
    """The symbol of the definition around a line."""
    around = [
        one
        for one in index.definitions(pin, path)
        if one.line <= line <= one.end_line and one.kind in ("module", "class", "function", "method")
    ]
    return around[-1].symbol if around else ""


def _called_in(index: Index, name: str) -> Iterator[str]:
    """The namespaces in which Python calls an operator of a name."""
    pattern = re.compile(rf"\btorch\.ops\.(\w+)\.{name}\b")
    for row in _files_with(index, name, "ops"):
        yield from pattern.findall(index.resolver.read(*row).decode("utf-8", "replace"))


# Torch's own


def _aten(index: Index, name: str, overload: str | None) -> Iterator[Operator]:
    """The overloads of one of torch's operators."""
    tree = _tree(index)
    found = list(aten.entries(tree / aten.FUNCTIONS, name, overload))
    base = [one for one in found if "." not in one.name] or found
    for entry in found:
        parts = list(_Aten(index, entry).parts())
        if entry is base[0]:
            parts += _around_aten(index, name)
        parts += callers(index, "aten", *_split(entry.name)) if overload is not None or len(found) == 1 else []
        yield Operator(f"aten::{entry.name}", tuple(parts))
    if not found and overload:
        source = aten.generated_from(tree / aten.FUNCTIONS, f"{name}.{overload}")
        if source is not None:
            yield Operator(f"aten::{name}.{overload}", (_generated(index, source),))


def _generated(index: Index, source: aten.Entry) -> Part:
    """The schema of an overload that torch generates besides another one."""
    text, line = source.fields["autogen"]
    why = f"generated from {source.name}"
    return Part("schema", "", text, "", _pin(index), aten.FUNCTIONS, line, "inferred", why)


def _split(name: str) -> tuple[str, str]:
    name, _, overload = name.partition(".")
    return name, overload


class _Aten:
    """One overload of one of torch's operators."""

    def __init__(self, index: Index, entry: aten.Entry) -> None:
        self.index, self.entry = index, entry
        self.tree = _tree(index)
        self.pin = _pin(index)
        self.name, self.overload = _split(entry.name)

    def parts(self) -> Iterator[Part]:
        """Schema, kernels as the YAML names them, derivative, generated declaration, what Python registers."""
        entry = self.entry
        yield Part("schema", "", entry.schema, "", self.pin, aten.FUNCTIONS, entry.line, "exact")
        yield from self.implementations()
        yield from self.derivatives()
        target = self.index.resolver.program.seams.generated(self.name, self.overload)
        definition = self.index.resolver.target(target.file, target.ordinal) if target else None
        if definition is not None:
            yield _part(self.index, "declaration", "", definition, "exact", "generated from the schema")
        yield from self.in_python()

    def implementations(self) -> Iterator[Part]:
        """The kernels for each dispatch key, here or in the overload that this one delegates to."""
        entry, why = self.entry, ""
        for keys, (kernel, line) in entry.dispatch.items():
            yield self.kernel(keys, kernel, line, why)
        delegate = entry.fields.get("structured_delegate")
        if delegate:
            for other in aten.entries(self.tree / aten.FUNCTIONS, *_split(delegate[0])):
                for keys, (kernel, line) in other.dispatch.items():
                    yield self.kernel(keys, kernel, line, f"by its structured_delegate {delegate[0]}")
        elif not entry.dispatch:
            why = "without a dispatch table, an operator is composite: made of others, one function for every key"
            yield self.kernel("CompositeImplicitAutograd", self.name, entry.line, why)

    def kernel(self, keys: str, kernel: str, line: int, why: str) -> Part:
        """A kernel, with its declaration where there is one; its body is not in the wheel."""
        definition = self.declared(kernel)
        if definition is not None:
            why = "; ".join(filter(None, (why, f"a declaration, {NOT_IN_WHEEL}; named in {aten.FUNCTIONS}:{line}")))
            return _part(self.index, "implementation", keys, definition, "inferred", why)
        why = "; ".join(filter(None, (why, NOT_IN_WHEEL)))
        return Part("implementation", keys, kernel, "", self.pin, aten.FUNCTIONS, line, "unresolved", why)

    def declared(self, kernel: str) -> Definition | None:
        """The declaration of a kernel in the generated header of its operator."""
        short = kernel.rpartition("::")[2]
        for base in dict.fromkeys((self.name, self.name.removesuffix("_"))):
            path = f"torch/include/ATen/ops/{base}_native.h"
            for one in self.index.definitions(self.pin, path):
                if one.name in (short, f"structured_{short}"):
                    return one
        return None

    def derivatives(self) -> Iterator[Part]:
        """The formula for each input, from the file that autograd is generated from."""
        functional = self.name.removesuffix("_")
        for name in dict.fromkeys((self.name, functional)):
            why = "" if name == self.name else f"that of {name}, which it does in place"
            certainty = "inferred" if why else "exact"
            for entry in aten.entries(self.tree / aten.DERIVATIVES, name, self.overload):
                for inputs, (formula, line) in entry.fields.items():
                    where = (self.pin, aten.DERIVATIVES, line)
                    yield Part("derivative", inputs, formula, "", *where, certainty, why)

    def in_python(self) -> Iterator[Part]:
        """What Python registers for it: fakes, decompositions, overrides."""
        custom = _Custom(self.index, "aten", self.name, self.overload)
        for row in custom.rows:
            if row.role != "schema":
                yield custom.function(row)[0]


def _around_aten(index: Index, name: str) -> Iterator[Part]:
    """The stubs that show an operator to Python, as ``torch.name`` and as a method of tensors."""
    for path, qualname in (
        ("torch/_C/_VariableFunctions.pyi", name),
        ("torch/_C/__init__.pyi", f"TensorBase.{name}"),
        ("torch/_C/_nn.pyi", name),
    ):
        for pin in index.resolver.program.tops.get("torch", ()):
            found = [one for one in index.definitions(pin, path) if one.qualname == qualname]
            if found:
                yield _part(index, "stub", "", found[0], "inferred", "by its name; overloads are not told apart")
