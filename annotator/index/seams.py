"""What registrations of operators mean: the namespace that a library object or a macro stands for, the function.

The registrations themselves (``registering``) are in the store. Apart from ``operators``, which gathers all about one,
because resolution asks here where ``torch.ops.namespace.name`` leads.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from annotator.index.names import Source
    from annotator.index.resolution import Program
    from annotator.index.values import Value

from annotator.index.registering import ALL

MACRO = "TORCH_EXTENSION_NAME"
"""The namespace that vLLM's builds set: ``_C``, ``_rocm_C`` and others, which no source says."""

BY_MACRO = "its namespace is a macro that the build sets"
KEYS = ("CUDA", "PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "the platform's", "", "CPU")
"""Which implementation stands for an operator where there are several: what runs on the GPU first."""

OPS = ("_Ops", "torch._ops")
"""The class of ``torch.ops``."""

WRAPPED = re.compile(r"([\w.]+)\(([\w.]+)\)")


class Row(NamedTuple):
    """One registration, with its file."""

    file: int
    pin: str
    path: str
    language: str
    namespace: str
    name: str
    overload: str
    role: str
    key: str
    line: int
    column: int
    schema: str
    target: str
    scope: str
    library: str
    condition: str
    reason: str = ""
    """Why the namespace is not certain."""

    @property
    def operator(self) -> str:
        """``ns::name.overload``."""
        return full(self.namespace, self.name, self.overload)


@dataclass(frozen=True, slots=True)
class Target:
    """The function that is registered, by its file's number and its ordinal there."""

    file: int
    ordinal: int
    reason: str


def full(namespace: str, name: str, overload: str = "") -> str:
    """``ns::name.overload``."""
    return f"{namespace}::{name}" + (f".{overload}" if overload else "")


def parsed(asked: str) -> tuple[str, str, str | None]:
    """Namespace (empty if not given), name, and overload (``None`` if not given) of what someone asks for.

    ``aten::add.Tensor``, ``torch.ops._C.rms_norm``, ``torch.add`` and ``Tensor.add`` (both aten's), ``add``.
    """
    if "::" in asked:
        namespace, _, rest = asked.rpartition("::")
        namespace = "aten" if namespace in ("at", "torch") else namespace
    elif match := re.fullmatch(r"(?:torch\.)?ops\.(\w+)\.(.+)", asked):
        namespace, rest = match[1], match[2]
    elif match := re.fullmatch(r"(?:torch\.Tensor|torch|Tensor)\.(.+)", asked):
        namespace, rest = "aten", match[1]
    else:
        namespace, rest = "", asked
    name, dot, overload = rest.partition(".")
    return namespace, name, ("" if overload == "default" else overload) if dot else None


class Seams:
    """What is registered, looked up name by name and kept."""

    def __init__(self, connection: sqlite3.Connection, program: Program) -> None:
        self.connection, self.program = connection, program
        self.rows_by_name: dict[str, list[Row]] = {}
        self.found: dict[tuple[str, str, str], Target | None] = {}

    @cached_property
    def libraries(self) -> dict[str, list[Row]]:
        """Library objects by their names."""
        found: dict[str, list[Row]] = {}
        for row in self.select("o.role = 'library'"):
            found.setdefault(row.name, []).append(row)
        return found

    def select(self, condition: str, *values: str) -> Iterator[Row]:
        """Rows of the store."""
        columns = "f.id, f.pin, f.path, f.language, o.namespace, o.name, o.overload, o.role, o.key, o.line, o.column, "
        columns += "o.schema, o.target, o.scope, o.library, o.condition"
        statement = f"SELECT {columns} FROM operators o JOIN files f ON f.id = o.file WHERE {condition} "
        for row in self.connection.execute(statement + "ORDER BY f.pin, f.path, o.ordinal", values):
            yield Row(*row)

    def rows(self, name: str) -> list[Row]:
        """The registrations of a name in any namespace, each with its namespace as far as that is plain."""
        if name not in self.rows_by_name:
            rows = self.select("o.name = ? AND o.role != 'library'", name)
            self.rows_by_name[name] = [placed for row in rows if (placed := self.placed(row))]
        return self.rows_by_name[name]

    def placed(self, row: Row) -> Row | None:
        """A row with the namespace and the key of the library that it is registered with."""
        if row.namespace:
            return row._replace(reason=BY_MACRO) if MACRO in row.namespace else row
        known = self.libraries.get(row.library.rpartition(".")[2], [])
        here = [one for one in known if one.file == row.file] or self.followed(row, known)
        chosen = here or [one for one in known if one.pin == row.pin]
        if len({one.namespace for one in chosen}) != 1:
            return None
        reason = "" if here else f"by the name of the library object: {row.library}"
        return row._replace(namespace=chosen[0].namespace, key=row.key or chosen[0].key, reason=reason)

    def followed(self, row: Row, known: list[Row]) -> list[Row]:
        """The library object that a row's expression leads to by imports."""
        value = self.program.dotted(self.program.source(row.file), row.scope, row.library)
        file = value.file.number if value.file is not None else 0
        return [one for one in known if one.file == file]

    def of(self, namespace: str, name: str, overload: str | None = None) -> list[Row]:
        """The registrations of one operator, those with a macro included that may stand for its namespace."""
        rows = [row for row in self.rows(name) if overload is None or row.overload in (overload, ALL)]
        own = [row for row in rows if row.namespace == namespace]
        fitting = [row for row in rows if MACRO in row.namespace and self.fits(row.namespace, namespace)]
        return own + fitting

    def fits(self, macro: str, namespace: str) -> bool:
        """Whether a namespace may be what a macro stands for; ``CONCAT(TORCH_EXTENSION_NAME, _x)`` ends in ``_x``."""
        end = re.fullmatch(rf"\w+\(\s*{MACRO}\s*,\s*(\w+)\s*\)", macro)
        return namespace.startswith("_") and (namespace.endswith(end[1]) if end else macro == MACRO)

    # What is registered

    def target(self, row: Row) -> Target | None:
        """The function that a row registers."""
        if not row.target:
            return None
        return self.python_target(row) if row.language == "python" else self.cpp_target(row)

    def python_target(self, row: Row) -> Target | None:
        """A Python function, by the names of its file; a decorator put around it there is looked through."""
        source = self.program.source(row.file)
        match = WRAPPED.fullmatch(row.target)
        value = self.program.dotted(source, row.scope, match[2] if match else row.target)
        if value.kind != "entry" or value.file is None or value.entry is None:
            return None
        why = value.why or (f"wrapped: {match[1]}" if match else "")
        return Target(value.file.number, value.entry.ordinal, why)

    def cpp_target(self, row: Row) -> Target | None:
        """A C++ function by its name: a body before a declaration, of several the nearest to the registration."""
        wanted = row.target.split("<")[0].removeprefix("::")
        statement = (
            "SELECT d.file, d.ordinal, d.qualname, d.hint, f.path, f.language, d.kind FROM definitions d "
            "JOIN files f ON f.id = d.file WHERE d.name = ? AND f.pin = ? AND d.kind IN ('function', 'method') "
            "AND f.language != 'python' ORDER BY f.path, d.ordinal"
        )
        rows = self.connection.execute(statement, (wanted.rpartition("::")[2], row.pin)).fetchall()
        fitting = [one for one in rows if one[2] == wanted or one[2].endswith(f"::{wanted}")]
        bodies = [one for one in fitting if one[3] == "body"]
        if not fitting:
            return None
        if not bodies:
            return Target(fitting[0][0], fitting[0][1], "only its declaration is in the sources")
        nearness = [_nearness(row, wanted, *one[2:]) for one in bodies]
        best = [one for one, near in zip(bodies, nearness, strict=True) if near == max(nearness)]
        if len(bodies) == 1:
            why = "by its name, which has one body"
        elif len(best) == 1:
            why = f"by its name, the nearest to the registration of several bodies: {len(bodies)}"
        else:
            why = f"by its name, one of several bodies: {len(best)}"
        return Target(best[0][0], best[0][1], why)

    # Where a call leads

    def implementation(self, namespace: str, name: str, overload: str = "") -> Target | None:
        """The function that stands for an operator: what runs on the GPU, if there is such, else the next."""
        key = (namespace, name, overload)
        if key not in self.found:
            self.found[key] = self.looked_up(*key)
        return self.found[key]

    def looked_up(self, namespace: str, name: str, overload: str) -> Target | None:
        """``implementation``, found. Torch's own operators have no sources here but their generated declarations."""
        if namespace == "aten":
            return self.generated(name, overload)
        rows = [row for row in self.of(namespace, name) if row.role == "implementation" and row.overload == overload]
        rows.sort(key=lambda row: (bool(row.reason), KEYS.index(row.key) if row.key in KEYS else len(KEYS)))
        for row in rows:
            if target := self.target(row):
                others = f", one of {len(rows)} implementations" if len(rows) > 1 else ""
                key = f" for {row.key}" if row.key else ""
                place = f"an operator's implementation: registered as {full(namespace, name, overload)}{key} in "
                why = "; ".join(filter(None, (f"{row.path}:{row.line}{others}", row.reason, target.reason)))
                return Target(target.file, target.ordinal, place + why)
        return None

    def generated(self, name: str, overload: str) -> Target | None:
        """The generated declaration of one of torch's operators, ``at::_ops::add_Tensor``."""
        statement = "SELECT id FROM files WHERE pin = ? AND path = ?"
        paths = [f"torch/include/ATen/ops/{each}_ops.h" for each in dict.fromkeys((name, name.removesuffix("_")))]
        asked = [(pin, path) for pin in self.program.tops.get("torch", ()) for path in paths]
        files = [self.connection.execute(statement, one).fetchone() for one in asked]
        statement = (
            "SELECT file, ordinal, name, qualname FROM definitions WHERE file = ? AND kind = 'struct' ORDER BY ordinal"
        )
        found = [row for file in files if file for row in self.connection.execute(statement, file)]
        rows = [row for row in found if row[3] == f"at::_ops::{row[2]}"]
        exact = [row for row in rows if row[2] == (f"{name}_{overload}" if overload else name)]
        rows = [row for row in rows if row[2].startswith(f"{name}_") and not row[2].startswith(f"{name}__")]
        chosen = exact or ([] if overload else rows)
        if not chosen:
            return None
        what = "" if exact else f", the first of {len(rows)} overloads"
        return Target(
            chosen[0][0], chosen[0][1], f"an operator's generated declaration, its kernels are not in the wheel{what}"
        )


def _nearness(
    row: Row, wanted: str, qualname: str, hint: str, path: str, language: str, kind: str
) -> tuple[bool, bool, bool, int, bool]:
    """How likely a body is what a registration means: a function of its own file before all."""
    plain = kind == "function" or "::" in wanted
    return (
        plain, path == row.path, qualname == wanted, shared(path, row.path), (row.key == "CUDA") == (language == "cuda")
    )  # fmt: skip


def shared(one: str, other: str) -> int:
    """How many folders two paths share."""
    count = 0
    for left, right in zip(one.split("/")[:-1], other.split("/")[:-1], strict=False):
        if left != right:
            break
        count += 1
    return count


def member(program: Program, value: Value, name: str) -> Value | None:
    """What ``torch.ops``, a namespace of it, or an operator has under a name; ``None`` for any other object."""
    from annotator.index.values import Value

    if value.kind == "operators":
        return operator(program, value.name, name, "")
    if value.kind == "entry" and "::" in value.name:
        namespace, _, packet = value.name.partition("::")
        overload = "" if name == "default" else name
        return operator(program, namespace, packet, overload) if name != "overloads" else None
    if value.kind == "external" and value.name.startswith("torch.ops.") and value.name.count(".") == 2:
        return operator(program, value.name.rpartition(".")[2], name, "")
    entry, file = value.entry, value.file
    if value.kind != "instance" or entry is None or file is None or (entry.qualname, file.module) != OPS:
        return None
    return None if f"_Ops.{name}" in file.entries else Value("operators", name=name)


def operator(program: Program, namespace: str, name: str, overload: str) -> Value:
    """The value that ``torch.ops.namespace.name.overload`` is."""
    from annotator.index.values import Value, unknown

    target = program.seams.implementation(namespace, name, overload)
    if target is None:
        return unknown(f"no source shows the operator's implementation: {full(namespace, name, overload)}")
    source: Source = program.source(target.file)
    entry = source.at(target.ordinal)
    assert entry is not None, "a target is a definition of its file"
    return Value("entry", source, entry, name=f"{namespace}::{name}", sure=False, why=target.reason)
