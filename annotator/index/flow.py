"""The syntax tree of a Python file as arrays, and which bindings of a name reach a place in it.

Flow is read off the structure alone: what stands before, in which branch, in which loop. Nothing is executed and no
condition is judged, so more bindings may be said to reach a place than really do, never fewer in plain code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

    from annotator.index.values import Value

BRANCHES = {
    "if_statement", "elif_clause", "else_clause", "for_statement", "while_statement", "except_clause",
    "except_group_clause", "case_clause",
}  # fmt: skip
"""What owns a block that may be passed by; the blocks of ``with``, ``try`` and ``finally`` are gone through."""

CLAUSES = {"elif_clause", "else_clause", "except_clause", "except_group_clause", "case_clause"}
LEAVING = {"return_statement", "raise_statement", "continue_statement", "break_statement"}
LOOPS = {"for_statement", "while_statement"}
OPENING = {"function_definition", "class_definition", "lambda", "module"}
NO_FIELDS: dict[str, int] = {}
NO_KIDS: list[int] = []


class Binding(NamedTuple):
    """One binding of a name: its identifier, from which byte on it holds, and what gives its value.

    ``kind``: ``parameter`` (``node`` is the parameter), ``definition``, ``assignment`` (its statement), ``value`` (the
    expression), ``object`` (of the class that the expression names), ``import`` (``origin``), ``part`` (of what is
    unpacked, iterated or entered), ``other``.
    """

    kind: str
    at: int
    since: int
    node: int = -1
    origin: tuple[str, str, int] = ("", "", 0)


@dataclass(eq=False)
class Scope:
    """A scope of the file: what the tree binds in it that the store does not know."""

    kind: str
    qualname: str
    parent: Scope | None
    node: int
    names: dict[str, list[Binding]] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    known: dict[str, Value | None] = field(default_factory=dict)

    def bind(self, name: str, how: Binding) -> None:
        """Notes one binding of a name."""
        if how.kind == "import":
            self.imported.add(name)
        self.names.setdefault(name, []).append(how)


class Flat:
    """A syntax tree as arrays over its named nodes in the order of the source."""

    def __init__(self, root: Node) -> None:
        self.types: list[str] = []
        self.parents: list[int] = []
        self.fields: list[str | None] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.places: dict[int, tuple[int, int]] = {}
        self.strings: dict[int, Node] = {}
        self.nodes: dict[int, Node] = {}
        cursor = root.walk()
        parents, current = [-1], -1
        while True:
            node = cursor.node
            if node is not None and node.is_named:
                current = len(self.types)
                kind = node.type
                self.types.append(kind)
                self.parents.append(parents[-1])
                self.fields.append(cursor.field_name)
                self.starts.append(node.start_byte)
                self.ends.append(node.end_byte)
                if kind == "identifier":
                    point = node.start_point
                    self.places[current] = (point.row, point.column)
                elif kind == "string_content":
                    self.strings[current] = node
                elif kind == "import_statement" or kind == "import_from_statement":
                    self.nodes[current] = node
                if kind != "identifier" and cursor.goto_first_child():
                    parents.append(current)
                    continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent() or len(parents) == 1:
                    return self.finish()
                parents.pop()

    def finish(self) -> None:
        """Children by field, for the fields that are asked for."""
        self.children: list[dict[str, int]] = [NO_FIELDS] * len(self.types)
        self.kids: list[list[int]] = [NO_KIDS] * len(self.types)
        for index, (parent, name) in enumerate(zip(self.parents, self.fields, strict=True)):
            if parent < 0:
                continue
            if self.kids[parent] is NO_KIDS:
                self.kids[parent], self.children[parent] = [], {}
            self.kids[parent].append(index)
            if name is not None:
                self.children[parent].setdefault(name, index)

    def holds(self, node: int, other: int) -> bool:
        """Whether a node is around another, or is it."""
        return self.starts[node] <= self.starts[other] and self.ends[other] <= self.ends[node] and node <= other


def reaching(flat: Flat, bindings: list[Binding], use: int) -> list[Binding]:
    """The bindings of a local name that may hold at a place of the same function, the nearest first."""
    start = flat.starts[use]
    found: list[Binding] = []
    stop: Binding | None = None
    seen: dict[int, set[int]] = {}
    for one in reversed(bindings):
        if one.since > start:
            continue
        reaches, certain = passed(flat, one, use, seen)
        if reaches:
            found.append(one)
        if certain:
            stop = one
            break
    loops = [loop for loop in around(flat, use, LOOPS) if stop is None or not flat.holds(loop, stop.at)]
    if loops:
        found += [one for one in bindings if one.since > start and any(flat.holds(loop, one.at) for loop in loops)]
    return found


def passed(flat: Flat, one: Binding, use: int, seen: dict[int, set[int]]) -> tuple[bool, bool]:
    """Whether an earlier binding may reach a place, and whether every way to the place goes through it.

    ``seen`` collects the branches of each statement that later bindings were found in: when all are, nothing earlier
    is reached through it.
    """
    reaches = True
    block, statement = branch(flat, one.at)
    while block >= 0 and not flat.holds(block, use):
        if flat.kids[block] and flat.types[flat.kids[block][-1]] in LEAVING:
            reaches = False
        taken = seen.setdefault(statement, set())
        taken.add(block)
        if len(taken) < ways(flat, statement):
            return reaches, False
        block, statement = branch(flat, statement)
    return reaches, True


def branch(flat: Flat, node: int) -> tuple[int, int]:
    """The nearest block around a node that may be passed by, and the statement that it is a branch of; -1 if none."""
    parent = flat.parents[node]
    while parent >= 0 and flat.types[parent] not in OPENING:
        if flat.types[node] == "block" and flat.types[parent] in BRANCHES:
            clause = flat.types[parent]
            return node, flat.parents[parent] if clause in CLAUSES else parent
        node, parent = parent, flat.parents[parent]
    return -1, -1


def ways(flat: Flat, statement: int) -> int:
    """How many branches a statement has, of which one is always taken; more than there are if none may be."""
    kids = [flat.types[kid] for kid in flat.kids[statement]]
    if flat.types[statement] == "if_statement" and "else_clause" in kids:
        return 2 + kids.count("elif_clause")
    return len(kids) + 1


def around(flat: Flat, node: int, kinds: set[str]) -> list[int]:
    """The statements of some kinds around a node inside its function, from the inside."""
    found, parent = [], flat.parents[node]
    while parent >= 0 and flat.types[parent] not in OPENING:
        if flat.types[parent] in kinds:
            found.append(parent)
        parent = flat.parents[parent]
    return found
