"""What each construct of a Python file enters: calls, and what looks like none but is one.

``flow`` says what an expression may stand for; here that becomes edges: a property is entered by reading it, ``with``
enters ``__enter__`` and ``__exit__``, an operator a dunder method, a class its constructors, a decorated function its
wrapper first. What only hands a function over is an edge too, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from annotator.index.flows import PROPERTY, VARIABLES, Flows
from annotator.index.names import Entry, Source
from annotator.index.narrowing import NESTED, NESTED_TENSOR
from annotator.index.objects import FUNCTIONS, OWN, Flow, flatten, is_below
from annotator.index.values import KEYED, Value

BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
COMPARED = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
UNARY = {"-": "neg", "+": "pos", "~": "invert"}
BUILTIN = {
    "len": ("__len__",), "str": ("__str__",), "repr": ("__repr__",), "iter": ("__iter__",), "next": ("__next__",),
    "hash": ("__hash__",), "bool": ("__bool__", "__len__"), "float": ("__float__",), "int": ("__int__",),
    "abs": ("__abs__",), "list": ("__iter__",), "tuple": ("__iter__",), "sum": ("__iter__",), "set": ("__iter__",),
    "sorted": ("__iter__",), "enumerate": ("__iter__",), "dict": ("__iter__",), "reversed": ("__reversed__",),
    "hasattr": ("__getattr__",), "getattr": ("__getattr__",), "setattr": ("__setattr__",), "dir": ("__dir__",),
}  # fmt: skip
HASHING = frozenset(("add", "get", "pop", "setdefault", "discard", "remove"))
CALLS_BACK = frozenset(("map", "filter"))
HASHED = HASHING | frozenset(("update", "isdisjoint", "issubset", "issuperset", "union", "intersection", "difference"))
HASHED_BY = KEYED | frozenset(("set", "Set", "frozenset", "FrozenSet"))
MAKERS = ("__new__", "__init__")


class Edge(NamedTuple):
    """From a place of a file (and the lines of the whole expression) to a definition by file number and ordinal."""

    line: int
    column: int
    first: int
    last: int
    file: int
    ordinal: int
    certainty: str
    reason: str


class Sites:
    """The edges of one file."""

    def __init__(self, flows: Flows, flow: Flow) -> None:
        self.flows, self.flow, self.flat, self.file = flows, flow, flow.flat, flow.file
        self.complete = True
        self.starts = [0]
        for position, byte in enumerate(flow.linker.source):
            if byte == 10:
                self.starts.append(position + 1)

    def of(self, entry: Entry) -> list[Edge]:
        """The edges of a definition, those of functions inside it too; of a class or module, those of its own level.

        ``complete`` says then whether all of them were looked for, or so much was done that some were left out.
        """
        found: dict[tuple[int, int, int, int], Edge] = {}
        self.flows.circles.rest()
        for node in self.nodes(entry):
            for place, value in self.entered(node):
                edge = self.edge(place, node, value)
                key = (edge.line, edge.column, edge.file, edge.ordinal)
                if key not in found or found[key].certainty != "exact":
                    found[key] = edge
        self.complete = not self.flows.circles.tired
        self.flows.circles.rest()
        return sorted(found.values())

    def nodes(self, entry: Entry) -> Iterator[int]:
        """The nodes that a definition runs."""
        flat = self.flat
        if entry.kind == "module":
            start, end = 0, len(flat.types)
        else:
            found = self.flow.functions.get((entry.qualname, entry.line))
            if found is None:
                return
            start, end = found, found + 1
            while end < len(flat.types) and flat.starts[end] < flat.ends[found]:
                end += 1
        whole = entry.kind in FUNCTIONS
        for node in range(start, end):
            if whole or self.level(node, entry.kind):
                yield node

    def level(self, node: int, kind: str) -> bool:
        """Whether a node runs with the body of a class or a module rather than in a function."""
        scope = self.flow.scopes[node]
        while scope.kind == "lambda" and scope.parent is not None:
            scope = scope.parent
        return scope.kind in ("module", "class")

    def edge(self, place: int, node: int, value: Value) -> Edge:
        """The edge from a node to what a value is."""
        assert value.file is not None
        assert value.entry is not None
        line, column = self.point(self.flat.starts[place])
        first, last = self.point(self.flat.starts[node])[0], self.point(max(self.flat.ends[node] - 1, 0))[0]
        certainty, reason = ("exact", "") if value.sure else ("inferred", value.why)
        return Edge(line, column, first, last, value.file.number, value.entry.ordinal, certainty, reason)

    def point(self, byte: int) -> tuple[int, int]:
        """Line and column of an offset."""
        from bisect import bisect_right

        row = bisect_right(self.starts, byte)
        return row, len(self.flow.linker.source[self.starts[row - 1] : byte].decode("utf-8", "replace"))

    def entered(self, node: int) -> Iterator[tuple[int, Value]]:
        """What a node enters, each with the node that shows the place."""
        flat = self.flat
        kind, parts = flat.types[node], flat.children[node]
        if kind == "call" and "function" in parts:
            yield from self.call(node, parts["function"])
        elif kind == "attribute" and "attribute" in parts:
            yield from ((parts["attribute"], value) for value in self.attribute(node, parts))
        elif kind == "with_item" and "value" in parts:
            yield from ((node, value) for value in self.context(parts["value"]))
        elif kind in ("for_statement", "for_in_clause") and "right" in parts:
            yield from ((parts["right"], value) for value in self.loop(parts["right"]))
        elif kind == "subscript" and "value" in parts:
            yield from ((parts["value"], value) for value in self.dunder(parts["value"], self.item_method(node)))
            yield from ((parts["value"], value) for value in self.missing(parts["value"]))
            if "subscript" in parts:
                yield from ((parts["value"], value) for value in self.hashed(parts["subscript"]))
            yield from ((parts["value"], value) for value in self.keyed(parts["value"]))
        elif kind in ("binary_operator", "augmented_assignment", "comparison_operator", "unary_operator"):
            yield from ((node, value) for value in self.operator(node, kind, parts))
        elif kind == "decorator" and flat.kids[node]:
            yield from self.decorator(node, flat.kids[node][0])
        elif kind == "interpolation" and "expression" in parts:
            yield from ((node, value) for value in self.dunder(parts["expression"], ("__format__", "__str__")))

    def enter(self, value: Value) -> Iterator[Value]:
        """What calling a value enters: wrappers, constructors, ``__call__``."""
        if value.kind == "lambda" and value.entry is not None:
            yield value
        elif value.kind == "instance":
            for method in self.flows.called(value):
                yield from self.function(method)
        elif value.kind == "entry" and value.entry is not None and value.file is not None:
            if value.entry.kind == "class":
                yield value
                yield from self.makers(value, value.file, value.entry)
            elif value.entry.kind in FUNCTIONS:
                yield from self.function(value)

    def function(self, value: Value) -> Iterator[Value]:
        """A function, and what stands around it by decoration."""
        yield value
        yield from self.flows.wrappers(value)

    def makers(self, value: Value, file: Source, entry: Entry) -> Iterator[Value]:
        """The methods that making an object of a class runs."""
        program = self.flows.program
        order, _ = program.order(file, entry)
        names = list(MAKERS)
        if any("dataclass" in item.decorators for _, item in order):
            names.append("__post_init__")
        for name in names:
            found = program.class_member(file, entry, name)
            if found.kind == "entry" and found.entry is not None:
                yield from self.function(found if value.sure else found.unsure(value.why))
        yield from self.of_metaclass(file, entry, "__call__")

    def call(self, node: int, function: int) -> Iterator[tuple[int, Value]]:
        """A call: what it enters, what a builtin enters of its argument, and what is handed over."""
        flat, flow = self.flat, self.flow
        place = flat.children[function].get("attribute", function) if flat.types[function] == "attribute" else function
        values = flow.members(function) if flat.types[function] == "attribute" else flow.objects(function)
        values = [v for value in values for v in self.callable(value)]
        if not values:
            values = flatten(flow.linker.value(function))
        for value in values or self.by_name(function):
            for each in self.enter(value):
                yield place, each
        yield from ((place, value) for value in self.operator_called(function))
        yield from ((place, value) for value in self.dispatched(node, values))
        name = flow.last(function)
        given = flow.arguments(node)
        if name in BUILTIN and flat.types[function] == "identifier" and given:
            for value in self.dunder(given[0], BUILTIN[name]):
                yield place, value
            for base in flow.objects(given[0]) if name in ("hasattr", "getattr") else ():
                yield from ((place, value) for value in self.of_module(base, "") if base.kind == "module")
        if name == "zip" and flat.types[function] == "identifier":
            yield from ((place, value) for each in given for value in self.dunder(each, ("__iter__",)))
        if name in CALLS_BACK and flat.types[function] == "identifier" and given:
            for value in flow.objects(given[0]):
                yield from ((given[0], each.unsure(f"called by {name}")) for each in self.enter(value))
        if name == "isinstance" and len(given) == 2:
            yield from ((place, value) for value in self.checked(given[1]))
        if name in HASHING and flat.types[function] == "attribute" and given:
            yield from ((place, value) for value in self.hashed(given[0]))
        if name in HASHED and flat.types[function] == "attribute":
            yield from ((place, value) for value in self.keyed(flat.children[function]["object"]))
        if name == "apply" and flat.types[function] == "attribute":
            yield from ((place, value) for value in self.applied(flat.children[function]["object"]))
        for kid in (*given, *flow.keywords(node).values()):
            if flat.types[kid] in ("identifier", "attribute"):
                yield from ((kid, value) for value in self.handed(kid, name))

    def by_name(self, function: int) -> Iterable[Value]:
        """The methods of a name that few classes have, where nothing is known of the object."""
        parts = self.flat.children[function]
        if self.flat.types[function] != "attribute" or "attribute" not in parts:
            return []
        if self.flow.objects(parts["object"]) or self.flow.linker.value(parts["object"]).kind != "unknown":
            return []
        return self.flows.of_name(self.flow.text(parts["attribute"]), self.file)

    def operator_called(self, function: int) -> Iterator[Value]:
        """What runs in Python where ``torch.ops.namespace.name``, or an overload of it, is called."""
        node = function
        for name in ("OpOverloadPacket", "OpOverload"):
            node = self.flat.children[node].get("object", -1) if self.flat.types[node] == "attribute" else -1
            if node < 0:
                return
            if any(value.kind == "operators" for value in self.flow.objects(node)):
                for value in self.flows.named("torch", f"torch._ops.{name}"):
                    for each in self.protocol(value, ("__call__",)):
                        yield each.unsure("by which an operator is called")

    def dispatched(self, call: int, values: list[Value]) -> Iterator[Value]:
        """What PyTorch's C++ enters where a function of it is called.

        ``__torch_function__`` of an argument's class, ``__torch_dispatch__`` where that method calls on, the backward
        of a ``torch.autograd.Function`` where the engine runs.
        """
        flat, flow = self.flat, self.flow
        function = flat.children[call]["function"]
        scope = flow.scopes[call]
        if scope.qualname.endswith(".__torch_function__") and flow.text(function) == "func":
            owner = self.flows.program.owner(self.file, scope.qualname.rpartition(".")[0])
            for value in self.flows.member(owner, "__torch_dispatch__") if owner else ():
                if value.why != "an override":
                    yield value.unsure("by PyTorch's C++, for an object of this class")
        names = {value.entry.name for value in values if value.entry is not None and is_stub(value)}
        if "run_backward" in names:
            for node in self.flows.named("torch", "torch.autograd.function.BackwardCFunction"):
                yield from (v.unsure("by the autograd engine, in C++") for v in self.protocol(node, ("apply",)))
        if names or (not values and flow.text(function).startswith("torch._")):
            for argument in flow.arguments(call):
                yield from (each for base in flow.objects(argument) for each in self.torch_function(base))

    def torch_function(self, base: Value) -> Iterator[Value]:
        """The ``__torch_function__`` of a class of tensors that has its own, which C++ hands its functions to."""
        plain = base.sure or base.name in ("made", OWN) or base.why == "by is_nested"
        if base.kind != "instance" or base.entry is None or base.entry.name == "Tensor" or not plain:
            return
        for value in self.flows.member(base, "__torch_function__"):
            own = value.why != "an override" and value.entry is not None and value.entry.qualname[:7] != "Tensor."
            if value.kind == "entry" and own:
                yield value.unsure("by PyTorch's C++, for an object of this class")

    def missing(self, node: int) -> Iterator[Value]:
        """What an item that is not there yet is made by: the factory of a ``defaultdict``."""
        for value in self.flow.objects(node):
            flow = self.flows.of(value.file) if value.kind == "literal" and value.file is not None else None
            for made in flow.factory(int(value.name)) if flow else ():
                yield from (each.unsure("where the key is missing") for each in self.enter(made))

    def checked(self, node: int) -> Iterator[Value]:
        """``isinstance`` asks the metaclass."""
        for kid in self.flat.kids[node] if self.flat.types[node] == "tuple" else (node,):
            for value in self.flow.objects(kid):
                if value.kind == "entry" and value.file and value.entry and value.entry.kind == "class":
                    yield from self.of_metaclass(value.file, value.entry, "__instancecheck__")

    def hashed(self, node: int) -> Iterator[Value]:
        """What is looked for in a set or a dictionary is hashed, and compared with what has the same hash."""
        yield from (value.unsure("to be found by its hash") for value in self.dunder(node, ("__hash__",)))
        yield from (value.unsure("to be told apart in its place") for value in self.dunder(node, ("__eq__",)))

    def keyed(self, node: int) -> Iterator[Value]:
        """What the keys of a dictionary or a set are hashed by, where its annotation says what they are."""
        for value in self.flow.objects(node):
            if value.kind == "external instance" and value.items and value.last in HASHED_BY:
                for key in flatten(value.items[0]):
                    yield from (each.unsure("to be found by its hash") for each in self.protocol(key, ("__hash__",)))

    def applied(self, node: int) -> Iterator[Value]:
        """``apply`` of a ``torch.autograd.Function`` enters ``forward`` by way of C++."""
        for value in self.flow.objects(node):
            if value.kind in ("entry", "super") and is_below(self.flows, value, "torch.autograd.function", "Function"):
                for each in [value] if value.kind == "entry" else [replace(value, kind="instance", name=OWN)]:
                    for found in self.flows.member(each, "forward"):
                        if found.kind == "entry" and found.entry is not None and found.entry.kind == "method":
                            yield found.unsure("by Function.apply, in C++")

    def of_metaclass(self, file: Source, entry: Entry, name: str) -> Iterator[Value]:
        """A method of the metaclass of a class, if the pins define it."""
        found = self.flows.of_metaclass(file, entry, name)
        if found is not None:
            yield found.unsure("by the metaclass")

    def callable(self, value: Value) -> Iterable[Value]:
        """What a member that is called stands for."""
        entry = value.entry
        if (
            value.kind == "entry"
            and entry is not None
            and (entry.kind in VARIABLES or PROPERTY.search(entry.decorators))
        ):
            return self.flows.read(value)
        return [value]

    def handed(self, node: int, to: str) -> Iterator[Value]:
        """A function or method that is an argument."""
        value = self.flow.linker.value(node)
        entry = value.entry
        plain = value.kind == "entry" and entry is not None and entry.kind in FUNCTIONS
        if plain and entry is not None and not PROPERTY.search(entry.decorators):
            yield value.unsure(f"handed over to {to or 'what is called'}")

    def attribute(self, node: int, parts: dict[str, int]) -> Iterator[Value]:
        """Reading or writing an attribute: properties, ``__getattr__``, ``__setattr__``."""
        flat, flow = self.flat, self.flow
        name, parent = flow.text(parts["attribute"]), flat.parents[node]
        written = flat.fields[node] == "left" and flat.types[parent] in ("assignment", "augmented_assignment")
        bases = flow.objects(parts["object"])
        if name == NESTED:
            for value in self.flows.named("torch", NESTED_TENSOR):
                yield from (each.unsure("where it is one") for each in self.torch_function(value))
        if written:
            for base in bases:
                yield from self.protocol(base, ("__setattr__",))
                for found in self.flows.member(base, name):
                    yield from self.setter(found)
            return
        for base in bases:
            yield from self.reading(base, name)
        if not bases and (value := flow.linker.value(parts["object"])).kind == "module":
            yield from self.of_module(value, name)

    def reading(self, base: Value, name: str) -> Iterator[Value]:
        """What reading a member of an object enters."""
        if base.kind == "module":
            yield from self.of_module(base, name)
            return
        if base.kind == "operators":
            for value in self.flows.named("torch", "torch._ops._OpNamespace"):
                for each in self.protocol(value, ("__getattr__",)):
                    yield each.unsure("where it is first asked for")
            return
        members = self.flows.member(base, name)
        if any(is_stub(found) or is_added(found) for found in members):
            members = [found for found in members if found.why != "an override"]
            yield from self.torch_function(base)
        plain = False
        for found in members:
            if found.entry is not None and found.entry.kind == "method" and PROPERTY.search(found.entry.decorators):
                yield from self.function(found)
                plain = True
            elif found.kind == "external" or (found.entry is not None and found.entry.kind not in ("attribute",)):
                plain = True
        if base.kind == "instance" and not plain and not (name.startswith("__") and name.endswith("__")):
            yield from (
                v.unsure("where the object has no such attribute") for v in self.protocol(base, ("__getattr__",))
            )

    def of_module(self, base: Value, name: str) -> Iterator[Value]:
        """A module's own ``__getattr__``, for names that nothing in it binds."""
        program = self.flows.program
        found = program.member(base, name)
        if found is None or (found.entry is not None and found.entry.hint.startswith(": ")):
            getter = program.member(base, "__getattr__")
            if getter is not None and getter.kind == "entry":
                yield getter.unsure("where the module binds no such name")
        for source in program.files_of(base.pin, base.name) if base.pin else ():
            flow = self.flows.of(source) if source.path.endswith(".py") else None
            for value in flow.replaced if flow else ():
                for each in self.protocol(value, ("__getattr__",)):
                    yield each.unsure("of the object that takes the module's place")

    def setter(self, found: Value) -> Iterator[Value]:
        """The setter of a property."""
        entry, file = found.entry, found.file
        if entry is not None and file is not None and PROPERTY.search(entry.decorators):
            for other in file.entries.get(entry.qualname, ()):
                if ".setter" in other.decorators:
                    yield Value("entry", file, other, sure=found.sure, why=found.why)

    def protocol(self, value: Value, names: Iterable[str]) -> Iterator[Value]:
        """The first of some methods that an object has, if the pins define it."""
        if value.kind not in ("instance", "super"):
            return
        for name in names:
            found = [each for each in self.flows.member(value, name) if each.kind == "entry" and each.entry is not None]
            for each in found:
                yield from self.enter(each) if each.entry and each.entry.kind in FUNCTIONS else self.assigned(each)
            if found:
                return

    def assigned(self, value: Value) -> Iterator[Value]:
        """A method that a class assigns: ``__rsub__ = _rsub``."""
        for each in self.flows.read(value):
            yield from self.enter(each)

    def dunder(self, node: int, names: Iterable[str]) -> Iterator[Value]:
        """What a construct enters of the objects that a node stands for."""
        names = tuple(names)
        for value in self.flow.objects(node):
            yield from self.protocol(value, names)

    def context(self, node: int) -> Iterator[Value]:
        """``with``."""
        if self.flat.types[node] == "as_pattern":
            node = self.flat.kids[node][0]
        for name in ("__enter__", "__exit__", "__aenter__", "__aexit__"):
            yield from self.dunder(node, (name,))

    def loop(self, node: int) -> Iterator[Value]:
        """``for``: the iterator's methods, or the generator that is run."""
        for value in self.flow.objects(node):
            if value.kind == "generator" and value.entry is not None:
                yield Value("entry", value.file, value.entry, sure=False, why="the generator that is run")
            yield from self.protocol(value, ("__iter__", "__getitem__"))
            yield from self.protocol(value, ("__next__",))

    def item_method(self, node: int) -> tuple[str, ...]:
        """Which method an item enters: of reading, writing or deleting."""
        flat = self.flat
        parent = flat.parents[node]
        if flat.fields[node] == "left" and flat.types[parent] in ("assignment", "augmented_assignment"):
            return ("__setitem__",)
        above = flat.parents[parent] if flat.types[parent] == "expression_list" else parent
        return (
            ("__delitem__",)
            if flat.types[parent] == "delete_statement" or flat.types[above] == "delete_statement"
            else ("__getitem__",)
        )

    def operator(self, node: int, kind: str, parts: dict[str, int]) -> Iterator[Value]:
        """An operator: the left one's method, else the right one's."""
        flat, flow = self.flat, self.flow
        if kind == "unary_operator":
            sign = flow.linker.source[flat.starts[node] : flat.starts[node] + 1].decode()
            if "argument" in parts and sign in UNARY:
                yield from self.dunder(parts["argument"], (f"__{UNARY[sign]}__",))
            return
        kids = flat.kids[node]
        for left, right in pairwise(kids):
            between = flow.linker.source[flat.ends[left] : flat.starts[right]].decode("utf-8", "replace")
            sign = between.replace("\\", " ").strip().strip("()").strip()
            if kind == "augmented_assignment" and sign.rstrip("=") in BINARY:
                name = BINARY[sign.rstrip("=")]
                yield from self.dunder(left, (f"__i{name}__", f"__{name}__"))
            elif sign in BINARY:
                yield from self.dunder(left, (f"__{BINARY[sign]}__",))
                yield from self.dunder(right, (f"__r{BINARY[sign]}__",))
            elif sign in COMPARED:
                yield from self.dunder(left, (f"__{COMPARED[sign]}__",))
                yield from self.dunder(right, (f"__{MIRRORED[COMPARED[sign]]}__",))
            elif sign in ("in", "not in"):
                yield from self.dunder(right, ("__contains__", "__iter__"))
                yield from self.hashed(left)

    def decorator(self, node: int, applied: int) -> Iterator[tuple[int, Value]]:
        """Applying a decorator calls it, or calls what it gives where it has arguments."""
        for value in self.flow.objects(applied):
            for each in self.enter(value):
                yield applied, each


def is_added(value: Value) -> bool:
    """Whether a value is a method in C that the class of tensors takes over by an assignment."""
    return value.entry is not None and value.entry.kind == "attribute" and value.entry.qualname[:7] == "Tensor."


def is_stub(value: Value) -> bool:
    """Whether a value is defined in a stub, so that its body is in C."""
    return value.file is not None and value.file.path.endswith(".pyi")
