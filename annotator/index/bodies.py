"""What functions return and attributes hold where no annotation says so: by reading the pieces of text that tell.

Apart from resolution because it parses: one function or statement at a time, and only when something depends on it.
What is found this way is inferred, never exact.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from annotator.errors import IndexFileError
from annotator.index.evaluating import Evaluator
from annotator.index.languages import normal
from annotator.index.names import Entry, Source
from annotator.index.resolution import LAZY, Program
from annotator.index.values import NONE, Value, either, made, unknown

LONGEST = 400
"""Lines of the longest piece that is read."""

KEPT = 100
"""Pieces, and texts of files, that are kept; the oldest goes first."""

DEEPEST = 4
"""How many pieces may be read to understand one."""


class PinnedBodies:
    """Reads the bodies of definitions; ``read`` gives the bytes of a file by pin and path."""

    def __init__(self, program: Program, read: Callable[[str, str], bytes]) -> None:
        self.program, self.read = program, read
        self.lines: dict[int, list[bytes]] = {}
        self.pieces: dict[tuple[int, int, int], Evaluator] = {}
        self.known: dict[tuple[int, int], Value] = {}
        self.tables: dict[int, dict[str, str]] = {}
        self.depth = 0

    def returned(self, file: Source, entry: Entry) -> Value:
        """What a function returns, by its ``return`` statements; of a generator, an iterator over what it yields."""
        return self.once(file, entry, lambda: self.by_returns(file, entry))

    def assigned(self, file: Source, entry: Entry) -> Value:
        """What is assigned to an attribute anywhere in its class, or to a variable where it is defined."""
        return self.once(file, entry, lambda: self.by_assignments(file, entry))

    def table(self, file: Source) -> dict[str, str]:
        """The names that a package's ``_import_structure`` lists, each with its module, wherever it is added to."""
        if file.number not in self.tables:
            try:
                nodes = list(ast.walk(ast.parse(b"\n".join(self.text(file)))))
            except (SyntaxError, ValueError, RecursionError):
                nodes = []
            self.tables[file.number] = {name: module for node in nodes for module, name in listed(node)}
        return self.tables[file.number]

    def once(self, file: Source, entry: Entry, find: Callable[[], Value]) -> Value:
        """A value, found once, unless that leads too deep."""
        key = (file.number, entry.ordinal)
        if key in self.known:
            return self.known[key]
        if self.depth >= DEEPEST:
            return unknown(f"its class would take too many steps to find: {entry.name}")
        self.known[key] = unknown(f"it depends on itself: {entry.name}")
        self.depth += 1
        try:
            found = self.known[key] = find()
        finally:
            self.depth -= 1
        return found

    def by_returns(self, file: Source, entry: Entry) -> Value:
        """``returned``, computed."""
        nothing = unknown(f"what it returns is not annotated: {entry.name}")
        piece = self.piece(file, entry.qualname.rpartition(".")[0], entry.line, entry.end_line)
        if piece is None:
            return nothing
        flat = piece.flat
        function = next((index for index, kind in enumerate(flat.types) if kind == "function_definition"), None)
        if function is None:
            return nothing
        own = [index for index, kind in enumerate(flat.types) if kind in ("return_statement", "yield")]
        own = [index for index in own if piece.function(piece.scopes[index]).node == function]
        values = [piece.value(flat.kids[index][0]) if flat.kids[index] else NONE for index in own]
        found = either(values, f"it returns objects of several classes: {entry.name}") if values else NONE
        if any(flat.types[index] == "yield" for index in own):
            return made("typing.Iterator", found)
        return nothing if found.kind == "unknown" else found

    def by_assignments(self, file: Source, entry: Entry) -> Value:
        """``assigned``, computed."""
        if entry.kind != "attribute":
            piece = self.piece(file, entry.qualname.rpartition(".")[0], entry.line, entry.end_line)
            values = list(self.given(piece, entry.name)) if piece is not None else []
        else:
            values = list(self.in_class(file, entry))
        return either(values, f"objects of several classes are assigned to it: {entry.name}").unsure(
            "by what is assigned to it"
        )

    def in_class(self, file: Source, entry: Entry) -> Iterator[Value]:
        """What the body and the methods of a class assign to one of its attributes."""
        owner = entry.qualname.rpartition(".")[0]
        classes = file.entries.get(owner, [])
        if not classes:
            return
        first, last = classes[0].line, classes[0].end_line
        wanted = re.compile(rb"(?:^|[\s,(])(?:\w+\.)?%s\s*(?:[:,)]|=[^=])" % re.escape(entry.name.encode()))
        numbers = [n for n, text in enumerate(self.text(file)[first - 1 : last], first) if wanted.search(text)]
        methods = [one for _, entries in file.methods(owner) for one in entries]
        seen = set()
        for number in numbers:
            method = next((one for one in methods if one.line <= number <= one.end_line), None)
            if method is None:
                if number == entry.line and (piece := self.piece(file, owner, entry.line, entry.end_line)):
                    yield from self.given(piece, entry.name)
            elif method.ordinal not in seen:
                seen.add(method.ordinal)
                if piece := self.piece(file, owner, method.line, method.end_line):
                    yield from self.given(piece, f"{receiver(method)}.{entry.name}")

    def given(self, piece: Evaluator, target: str) -> Iterator[Value]:
        """The values that the assignments of a piece give a target."""
        flat = piece.flat
        name = target.rpartition(".")[2]
        kind = "attribute" if "." in target else "identifier"
        for index, found in enumerate(flat.types):
            if found != kind or piece.text(index) != target or flat.types[flat.parents[index]] == "attribute":
                continue
            parent = flat.parents[index]
            if flat.types[parent] == "assignment" and flat.fields[index] == "left":
                yield piece.assigned(flat.children[parent], piece.scopes[index])
            elif name and piece.target(index) is not None:
                yield piece.taken(index)

    def text(self, file: Source) -> list[bytes]:
        """The lines of a file; none if it cannot be read."""
        if file.number not in self.lines:
            if len(self.lines) >= KEPT:
                self.lines.pop(next(iter(self.lines)))
            try:
                self.lines[file.number] = normal(self.read(file.pin, file.path)).split(b"\n")
            except IndexFileError:
                self.lines[file.number] = []
        return self.lines[file.number]

    def piece(self, file: Source, within: str, first: int, last: int) -> Evaluator | None:
        """Some lines of a file, parsed, as they stand in a class or at the level of the module."""
        if last - first > LONGEST or any(one.kind != "class" for one in scopes(file, within)):
            return None
        key = (file.number, first, last)
        if key not in self.pieces:
            if len(self.pieces) >= KEPT:
                self.pieces.pop(next(iter(self.pieces)))
            lines = self.text(file)[first - 1 : last]
            margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
            data = b"\n".join(line[margin:] if not line[:margin].strip() else line for line in lines)
            return self.pieces.setdefault(key, Evaluator(self.program, file, data, within))
        return self.pieces[key]


def listed(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The modules and names that a statement puts into ``_import_structure``."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id == LAZY and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                yield from ((module, name) for module in strings(key) for name in strings(value))
        yield from ((module, name) for module in subscripted(target) for name in strings(node.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend"):
        for module in subscripted(node.func.value):
            yield from ((module, name) for argument in node.args for name in strings(argument))


def subscripted(node: ast.AST) -> Iterator[str]:
    """The key of an item of ``_import_structure``."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == LAZY:
        yield from strings(node.slice)


def strings(node: ast.AST | None) -> Iterator[str]:
    """The strings that a literal holds: itself, or those of a list or tuple."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.List | ast.Tuple):
        for one in node.elts:
            yield from strings(one)


def scopes(file: Source, within: str) -> Iterator[Entry]:
    """The definitions around a scope, and its own."""
    while within:
        yield from file.entries.get(within, [])[:1]
        within = within.rpartition(".")[0]


def receiver(method: Entry) -> str:
    """What a method calls its object."""
    match = re.search(r"\(\s*(\w+)", method.signature)
    return match[1] if match else "self"
