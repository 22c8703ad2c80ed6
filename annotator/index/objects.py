"""Which objects an expression may stand for, as a set: what the call graph needs beyond the one plain meaning.

``linking`` says what a name means where that is plain. Here all assignments of a name count, both sides of a
condition, what is put into a container, what a function returns, what its callers hand over for a parameter, and what
a decorator makes of a function. So an answer is a set, most of it inferred, and each member says why. It works on
demand, over as many files as the question needs, with bounds on depth and breadth: what lies beyond them is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from annotator.index.flow import Binding, Scope
from annotator.index.linking import Linker
from annotator.index.names import Entry, Source
from annotator.index.narrowing import narrowed
from annotator.index.scoping import COMPREHENSIONS, TARGETS
from annotator.index.values import KEYED, Value, is_class, made, place

if TYPE_CHECKING:
    from annotator.index.flows import Flows

MAX_DEPTH = 24
MAX_OBJECTS = 5000
MAX_FILES = 12
"""In how many other files the callers of a function are looked for, to learn what they hand over."""

ROUNDS = 3
"""How often a parameter is asked anew for which a function hands over to itself a part of what it got."""

FUNCTIONS = ("function", "method")
OWN = "self"
"""Name of an object that is the method's own."""

ITSELF = "sys.modules[__name__]"
"""How a module names itself."""

RAW = "raw"
"""Name of a function that is called without what its decorators made of it."""

DISPLAYS = frozenset(("list", "tuple", "set", "dictionary", *COMPREHENSIONS))
KEEPS = frozenset(("list", "tuple", "set", "sorted", "reversed", "iter", "frozenset", "dict", "OrderedDict", "deque"))
"""Calls whose result holds what their argument holds."""
SAME = frozenset(("copy", "deepcopy", "partial", "wraps", "MethodType", "staticmethod", "classmethod", "lru_cache"))
TAKES = frozenset(("get", "pop", "setdefault", "popleft", "__getitem__", "popitem"))
ADDS = {"append": 0, "add": 0, "appendleft": 0, "insert": 1, "setdefault": 1, "put": 0, "register": 1}
WHOLE = frozenset(("values", "copy", "items", "keys"))


class Flow:
    """One file: its tree and scopes by ``linking``, and on top of these what its expressions may stand for."""

    def __init__(self, flows: Flows, file: Source, data: bytes) -> None:
        self.flows, self.file = flows, file
        self.linker = Linker(flows.program, file, data)
        self.flat, self.scopes = self.linker.flat, self.linker.scopes
        self.text = self.linker.text
        self.known: dict[int, list[Value]] = {}
        self.handed: dict[tuple[int, str], list[Value]] = {}
        self.calls: dict[str, list[int]] = {}
        self.stores: dict[str, list[int]] = {}
        self.own: dict[str, list[int]] = {}
        self.globals: dict[str, list[int]] = {}
        self.exits: dict[int, list[int]] = {}
        self.recursive: set[int] = set()
        self.functions: dict[tuple[str, int], int] = {}
        self.survey()

    def survey(self) -> None:
        """One look over the tree for what is asked for by name later."""
        flat = self.flat
        for node, kind in enumerate(flat.types):
            parts = flat.children[node]
            if kind == "call" and "function" in parts:
                name, scope = self.last(parts["function"]), self.scopes[node]
                self.calls.setdefault(name, []).append(node)
                if scope.kind == "function" and scope.qualname.rpartition(".")[2] == name:
                    self.recursive.add(scope.node)
                self.survey_added(node, parts["function"])
            elif kind == "assignment" and "left" in parts and "right" in parts:
                self.survey_assigned(parts["left"], parts["right"])
            elif kind in ("return_statement", "yield") and flat.kids[node]:
                scope = self.scopes[node]
                self.exits.setdefault(scope.node, []).append(node)
            elif kind in ("function_definition", "class_definition") and "name" in parts:
                line = flat.places.get(parts["name"], (0, 0))[0] + 1
                self.functions[self.linker.inner[node].qualname, line] = node

    def survey_assigned(self, left: int, right: int) -> None:
        """Assignments to an attribute of ``self``, to an item, and to a global from within a function."""
        flat = self.flat
        kind = flat.types[left]
        if kind == "attribute" and "attribute" in flat.children[left]:
            self.own.setdefault(self.text(flat.children[left]["attribute"]), []).append(right)
        elif kind == "subscript":
            self.stores.setdefault(self.base_name(left), []).append(right)
        elif kind == "identifier" and self.text(left) in self.scopes[left].outer:
            self.globals.setdefault(self.text(left), []).append(right)

    def survey_added(self, call: int, function: int) -> None:
        """``x.append(value)`` and its like."""
        flat = self.flat
        parts = flat.children[function]
        if flat.types[function] != "attribute" or "attribute" not in parts:
            return
        place_ = ADDS.get(self.text(parts["attribute"]))
        given = self.arguments(call)
        if place_ is not None and len(given) > place_:
            self.stores.setdefault(self.base_name(parts["object"]), []).append(given[place_])

    @cached_property
    def replaced(self) -> list[Value]:
        """What takes the place of the module: ``sys.modules[__name__] = …``."""
        stored = self.stores.get("modules", ())
        targets = [(self.flat.children[self.flat.parents[right]].get("left", -1), right) for right in stored]
        return [v for left, right in targets if left >= 0 and self.text(left) == ITSELF for v in self.objects(right)]

    def base_name(self, node: int) -> str:
        """The last name of what an item is taken from: ``X`` of ``X[a][b]``, ``x`` of ``self.x[a]``."""
        flat = self.flat
        while flat.types[node] == "subscript" and "value" in flat.children[node]:
            node = flat.children[node]["value"]
        return self.last(node)

    def last(self, node: int) -> str:
        """The last name of a dotted expression."""
        parts = self.flat.children[node]
        if self.flat.types[node] == "attribute" and "attribute" in parts:
            return self.text(parts["attribute"])
        return self.text(node) if self.flat.types[node] == "identifier" else ""

    def arguments(self, call: int) -> list[int]:
        """The positional arguments of a call."""
        flat = self.flat
        given = flat.children[call].get("arguments")
        if given is None or flat.types[given] != "argument_list":
            return [] if given is None else [given]
        return [kid for kid in flat.kids[given] if flat.types[kid] not in ("keyword_argument", "comment")]

    def keywords(self, call: int) -> dict[str, int]:
        """The keyword arguments of a call."""
        flat = self.flat
        given = flat.children[call].get("arguments")
        kids = flat.kids[given] if given is not None else ()
        pairs = [flat.children[kid] for kid in kids if flat.types[kid] == "keyword_argument"]
        return {self.text(pair["name"]): pair["value"] for pair in pairs if "name" in pair and "value" in pair}

    def calling(self, name: str) -> list[str]:
        """The names of the functions of this file that call a function of that name, as those do that hand it on."""
        found = []
        for call in self.calls.get(name, ())[:8]:
            scope = self.linker.function(self.scopes[call])
            if scope.kind == "function" and scope.qualname.rpartition(".")[2] != name:
                found.append(scope.qualname.rpartition(".")[2])
        for call in self.calls.get("partial", ()):
            given, above = self.arguments(call), self.flat.parents[call]
            if given and self.last(given[0]) == name and "left" in self.flat.children[above]:
                found.append(self.last(self.flat.children[above]["left"]))
        return found

    # Objects

    def objects(self, node: int) -> list[Value]:
        """What an expression may stand for."""
        rounds = ROUNDS if self.scopes[node].node in self.recursive and self.is_parameter(node) else 0
        return self.flows.circles.answer(self.known, node, lambda: self.evaluated(node), rounds)

    def is_parameter(self, node: int) -> bool:
        """Whether an expression is the name of a parameter of the function around it."""
        ways = self.scopes[node].names.get(self.text(node), ()) if self.flat.types[node] == "identifier" else ()
        return any(way.kind == "parameter" for way in ways)

    def evaluated(self, node: int) -> list[Value]:
        """``objects``, computed: narrowed by what is plain."""
        if self.flows.depth > MAX_DEPTH:
            self.flows.circles.cut()
            return []
        self.flows.depth += 1
        try:
            sure = narrowed(self.linker, node) if self.linker.guarded else None
            plain = sure or self.linker.value(node)
            found = [] if sure and sure.kind == "instance" else distinct(self.evaluate(node))
            if sure:
                found = [one for one in found if one.kind == "literal"] + flatten(sure)
            narrow = plain.sure and plain.kind in ("instance", "entry", "module") and plain.owner is None
            if narrow and not (len(found) == 1 and place(found[0])[1:3] == place(plain)[1:3]):
                found = [one for one in found if one.kind == "lambda"] + [plain]
            return found or flatten(plain)
        finally:
            self.flows.depth -= 1

    def evaluate(self, node: int) -> Iterable[Value]:
        """``objects``, computed."""
        flat = self.flat
        kind, parts = flat.types[node], flat.children[node]
        if kind == "identifier":
            return self.named(self.text(node), self.scopes[node])
        if kind == "attribute" and "attribute" in parts:
            members = self.members(node)
            return [each for value in members for each in self.flows.read(value)]
        if kind == "call" and "function" in parts:
            return self.results(node, parts["function"])
        if kind in ("parenthesized_expression", "await") and flat.kids[node]:
            return self.objects(flat.kids[node][0])
        if kind == "named_expression" and "value" in parts:
            return self.objects(parts["value"])
        if kind == "conditional_expression" and len(flat.kids[node]) == 3:
            return [v.unsure("one side of a condition") for i in (0, 2) for v in self.objects(flat.kids[node][i])]
        if kind == "boolean_operator":
            return [v.unsure("one side of a condition") for kid in flat.kids[node] for v in self.objects(kid)]
        if kind == "subscript" and "value" in parts:
            own = self.text(node) == ITSELF
            return [Value("module", name=self.file.module, pin=self.file.pin)] if own else self.items(node)
        if kind == "lambda":
            return [Value("lambda", self.file, self.around(node), name=str(node))]
        if kind in DISPLAYS:
            return [Value("literal", self.file, name=str(node), sure=False, why="held by a container")]
        if kind in ("binary_operator", "unary_operator"):
            return self.computed(node)
        return flatten(self.linker.value(node))

    def members(self, node: int) -> list[Value]:
        """What an attribute may be, before it is read."""
        parts = self.flat.children[node]
        name = self.text(parts["attribute"])
        bases = self.objects(parts["object"])
        if not bases:
            bases = flatten(self.linker.value(parts["object"]))
        found = [each for base in bases for each in self.flows.member(base, name)]
        return distinct(found or (each for base in bases for each in self.flows.gotten(base)))

    def computed(self, node: int) -> list[Value]:
        """The result of an operator on objects that define it."""
        found = []
        for kid in self.flat.kids[node]:
            for value in self.objects(kid):
                if value.kind == "instance" and value.entry and value.entry.name == "Tensor":
                    found.append(value.unsure("the result of an operator"))
        return found

    def named(self, name: str, scope: Scope) -> Iterable[Value]:
        """What a name may stand for in a scope."""
        current: Scope | None = scope
        while current is not None:
            if (current is scope or current.kind != "class") and name not in current.outer:
                if current.kind in ("module", "class"):
                    stored = self.flows.program.bound(self.file, current.qualname, name)
                    if stored is not None:
                        return self.flows.read(stored)
                if ways := current.names.get(name):
                    return self.bound(name, ways, current)
            current = current.parent
        value = self.linker.named(name, self.linker.root)[0]
        return self.flows.read(value) if value.kind != "unknown" else []

    def bound(self, name: str, ways: list[Binding], scope: Scope) -> list[Value]:
        """What the bindings of a local name give."""
        found: list[Value] = []
        for way in ways[:12]:
            kind = way.kind
            if kind == "definition":
                value = self.flows.program.bound(self.file, scope.qualname, name)
                found += self.flows.read(value) if value is not None else []
            elif kind == "import":
                found += self.flows.read(self.flows.program.imported(self.file, *way.origin, name))
            elif kind == "parameter":
                found += self.parameter(name, way.node, scope)
            elif kind == "assignment":
                found += self.assignment(way.node, scope)
            elif kind == "value" and way.node >= 0:
                found += self.objects(way.node)
            elif kind == "part":
                found += self.unpacked(way.at) or flatten(self.linker.bound_value(way, scope))
        found = distinct(found)
        many = len(found) > 1
        return [value.unsure("one of what the name may hold") if many else value for value in found]

    def assignment(self, node: int, scope: Scope) -> list[Value]:
        """What an assignment gives, by its annotation or its right side."""
        parts = self.flat.children[node]
        found: list[Value] = []
        if "type" in parts:
            found = self.flows.annotated(self.file, scope.qualname, self.text(parts["type"]))
        if "right" in parts and (not found or all(value.kind in ("callable", "external instance") for value in found)):
            found += self.objects(parts["right"])
        return found

    def assigned(self, entry: Entry) -> list[Value]:
        """What all assignments give to a variable of the module or class, or to an attribute of ``self``."""
        scope_name = entry.qualname.rpartition(".")[0]
        found: list[Value] = []
        for scope in self.levels(scope_name):
            for way in scope.names.get(entry.name, ()):
                if way.kind == "assignment":
                    found += self.assignment(way.node, scope)
                elif way.kind == "part":
                    found += self.unpacked(way.at)
        if not scope_name:
            for right in self.globals.get(entry.name, ()):
                found += self.objects(right)
        elif entry.kind == "attribute":
            if not self.own.get(entry.name):
                found += self.field(entry, scope_name)
            for right in self.own.get(entry.name, ())[:16]:
                if self.class_of(right) == scope_name:
                    declared = self.by_annotation(right)
                    hollow = all(is_callable(value) or is_hollow(value) for value in declared)
                    found += [*declared, *self.objects(right)] if hollow else declared
        return [value.unsure(f"by an assignment to {entry.name}") for value in distinct(found)]

    def assigned_to_strangers(self, name: str) -> list[Value]:
        """What is assigned to an attribute of a name, of objects of which nothing is known."""
        found: list[Value] = []
        for right in self.own.get(name, ())[:16]:
            left = self.flat.children[self.flat.parents[right]].get("left", -1)
            base = self.flat.children[left].get("object", -1) if left >= 0 else -1
            if base >= 0 and self.linker.value(base).kind == "unknown" and not self.objects(base):
                found += self.objects(right)
        return [value.unsure(f"by an assignment to {name} from outside") for value in distinct(found)]

    def field(self, entry: Entry, owner: str) -> Iterator[Value]:
        """What is handed over for a field where objects of its class are made, if no ``__init__`` is written."""
        if f"{owner}.__init__" in self.file.entries:
            return
        fields = [e for e in self.file.rows if e.kind == "attribute" and e.qualname.rpartition(".")[0] == owner]
        classes = self.file.entries.get(owner, ())
        for one in classes[:1]:
            for flow in [self, *self.flows.naming(one.name, self.file)]:
                yield from flow.handing(one.name, self.file, one, fields.index(entry), entry.name)

    def by_annotation(self, right: int) -> list[Value]:
        """Objects of the annotation beside the right side of an assignment."""
        parts = self.flat.children[self.flat.parents[right]]
        if "type" not in parts:
            return []
        return self.flows.annotated(self.file, self.class_of(right), self.text(parts["type"]))

    def levels(self, qualname: str) -> list[Scope]:
        """The scopes of a qualified name that is a class, or the module."""
        if not qualname:
            return [self.linker.root]
        return [scope for scope in self.linker.inner.values() if scope.qualname == qualname and scope.kind == "class"]

    def class_of(self, node: int) -> str:
        """The qualified name of the class around a node."""
        scope: Scope | None = self.scopes[node]
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope.qualname if scope else ""

    def around(self, node: int) -> Entry | None:
        """The definition around a node, be it a function, a class, a variable of the module, or the module."""
        line = self.linker.source.count(b"\n", 0, self.flat.starts[node]) + 1
        best = None
        for entries in self.file.entries.values():
            for entry in entries:
                if entry.line <= line <= entry.end_line and (best is None or entry.line >= best.line):
                    best = entry
        return best

    def unpacked(self, node: int) -> list[Value]:
        """What a loop, a ``with`` or unpacking gives to an identifier."""
        flat = self.flat
        places: list[int] = []
        while flat.types[parent := flat.parents[node]] in TARGETS:
            places.insert(0, flat.kids[parent].index(node))
            node = parent
        parent = flat.parents[node]
        kind, parts = flat.types[parent], flat.children[parent]
        if kind in ("for_statement", "for_in_clause") and "right" in parts:
            return self.looped(parts["right"], places)
        if kind == "as_pattern_target":
            return self.entered(flat.kids[flat.parents[parent]][0])
        if kind == "assignment" and "right" in parts and places:
            return self.held(parts["right"], places[0])
        return []

    def looped(self, right: int, places: list[int]) -> list[Value]:
        """What a loop over an expression gives, at a place of its targets."""
        flat = self.flat
        name = self.last(flat.children[right].get("function", right)) if flat.types[right] == "call" else ""
        given = self.arguments(right) if name else []
        if name == "enumerate" and given:
            return self.looped(given[0], places[1:]) if places[:1] == [1] else []
        if name == "zip" and places and places[0] < len(given):
            return self.looped(given[places[0]], places[1:])
        if name == "items" and places:
            function = flat.children[right]["function"]
            return self.held(flat.children[function]["object"]) if places[0] == 1 else []
        found = self.held(right)
        for place_ in places:
            found = [each for value in found for each in self.flows.elements(value, place_)]
        return found

    def entered(self, node: int) -> list[Value]:
        """What ``with node as x`` gives to ``x``."""
        found = []
        for value in self.objects(node):
            if value.kind == "generator":
                found += self.flows.elements(value)
            for method in self.flows.member(value, "__enter__") if value.kind == "instance" else ():
                given = self.flows.results(method)
                found += [value if place(one) == place(value) else one for one in given] or [value]
        return found

    def held(self, node: int, part: int | None = None) -> list[Value]:
        """What the container that an expression stands for holds: what it was made with, and what is put into it."""
        found = [each for value in self.objects(node) for each in self.flows.elements(value, part)]
        name = self.base_name(node)
        if name and (part is None or not found):
            for flow in self.keepers(node):
                for stored in flow.stores.get(name, ())[:40]:
                    for value in flow.objects(stored):
                        why = f"registered in {name}, {value.why}" if is_given(value) else f"put into {name}"
                        found.append(replace(value, sure=False, why=why))
        return distinct(found)

    def keepers(self, node: int) -> list[Flow]:
        """The files that may put something into a container: this one, and where it is defined."""
        flows = [self]
        while self.flat.types[node] == "subscript" and "value" in self.flat.children[node]:
            node = self.flat.children[node]["value"]
        if self.flat.types[node] == "attribute" and "attribute" in self.flat.children[node]:
            values = self.members(node)
        elif self.flat.types[node] == "identifier":
            values = [self.linker.named(self.text(node), self.scopes[node])[0]]
        else:
            values = []
        for value in values:
            if value.file is not None and value.file is not self.file and (flow := self.flows.of(value.file)):
                flows.append(flow)
        return flows

    def items(self, node: int) -> list[Value]:
        """What an item of an expression may be."""
        base = self.flat.children[node]["value"]
        found = [value for value in self.objects(base) if is_class(value)]
        if found:
            return found
        index = self.text(self.flat.kids[node][-1])
        return self.held(base, int(index) if index.isdigit() else None)

    def displayed(self, node: int, part: int | None = None) -> list[Value]:
        """The values of a display or a comprehension; of a ``defaultdict``, what its factory makes."""
        flat = self.flat
        kind, kids = flat.types[node], flat.kids[node]
        if kind == "call":
            return distinct(each for value in self.factory(node) for each in self.flows.results(value))
        if kind in COMPREHENSIONS:
            body = flat.children[node].get("body")
            nodes = [] if body is None else [flat.children[body].get("value", body)]
        elif kind == "dictionary":
            nodes = [
                flat.children[kid]["value"]
                for kid in kids
                if flat.types[kid] == "pair" and "value" in flat.children[kid]
            ]
        else:
            nodes = kids[part : part + 1] if part is not None and kind == "tuple" else kids
        return distinct(value.unsure("held by a container") for kid in nodes[:400] for value in self.objects(kid))

    def factory(self, node: int) -> list[Value]:
        """What a ``defaultdict`` calls for a key that it has not."""
        given = self.arguments(node) if self.flat.types[node] == "call" else []
        return self.objects(given[0]) if given else []

    # Calls

    def results(self, node: int, function: int) -> Iterable[Value]:
        """What a call gives."""
        name, given = self.last(function), self.arguments(node)
        if self.text(function) == "super":
            value = self.linker.value(node)
            return [value] if value.kind != "unknown" else []
        functions, found = self.objects(function), None
        outside = [value for value in functions if value.kind == "external"]
        if outside or not functions:
            found = self.known_call(name, node, function, given)
        asked = functions if found is None else [value for value in functions if value.kind != "external"]
        return [*(found or ()), *(each for value in asked for each in self.flows.results(value))]

    def known_call(self, name: str, node: int, function: int, given: list[int]) -> list[Value] | None:
        """What a call of something outside the pins gives, where that is a matter of its arguments."""
        flat = self.flat
        parts = flat.children[function]
        if name in SAME and given:
            return [value.unsure(f"through {name}") for value in self.objects(given[0])]
        if name in KEEPS and given:
            return self.objects(given[0])
        if name == "cast" and len(given) == 2:
            return self.flows.annotated(self.file, self.scopes[node].qualname, self.text(given[0])) or self.objects(
                given[1]
            )
        if name == "type" and len(given) == 1:
            return [replace(value, kind="entry") for value in self.objects(given[0]) if value.kind == "instance"]
        if name == "next" and given:
            return self.held(given[0])
        if name == "getattr" and len(given) > 1 and flat.types[given[1]] == "string":
            text = self.text(given[1]).strip("\"'")
            members = [each for base in self.objects(given[0]) for each in self.flows.member(base, text)]
            read = [each for value in members for each in self.flows.read(value)]
            read += self.objects(given[2]) if len(given) > 2 else []
            return [each.unsure("through getattr") for each in read]
        if name == "defaultdict" and given:
            return [Value("literal", self.file, name=str(node), sure=False, why="held by a container")]
        if name == "fromkeys" and given:
            return self.objects(given[0])
        if flat.types[function] == "attribute" and "object" in parts:
            if name in TAKES:
                return self.held(parts["object"])
            if name in WHOLE:
                return [paired(value) if name == "items" else value for value in self.objects(parts["object"])]
        return None

    def returns(self, entry: Entry) -> list[Value]:
        """What the ``return`` statements of a function give; a generator, where it has ``yield``."""
        node = self.functions.get((entry.qualname, entry.line))
        if node is None:
            return []
        exits = self.exits.get(node, [])
        if any(self.flat.types[each] == "yield" for each in exits):
            return [Value("generator", self.file, entry)]
        return distinct(value for each in exits[:12] for value in self.objects(self.flat.kids[each][0]))

    def yields(self, entry: Entry) -> list[Value]:
        """What a generator yields."""
        node = self.functions.get((entry.qualname, entry.line))
        exits = self.exits.get(node, []) if node is not None else []
        given = [each for each in exits if self.flat.types[each] == "yield"]
        return distinct(value for each in given[:12] for value in self.objects(self.flat.kids[each][0]))

    def gives(self, item: Entry, file: Source, entry: Entry) -> bool:
        """Whether a function returns a definition, by what its ``return`` statements may give."""
        wanted = (file.number, entry.ordinal)
        return any(place(value)[1:3] == wanted for value in self.returns(item))

    # Parameters

    def parameter(self, name: str, node: int, scope: Scope) -> list[Value]:
        """What a parameter may be: by its annotation, its default, and what is handed over for it."""
        flat = self.flat
        parts = flat.children[node]
        if flat.types[scope.node] == "lambda":
            return self.called_back(scope.node, flat.kids[flat.parents[node]].index(node))
        found: list[Value] = []
        if name == "ctx" and is_step(self.flows, scope, self.file):
            return self.flows.named("torch", "torch.autograd.function.FunctionCtx")
        if "type" in parts:
            outer = scope.parent.qualname if scope.parent else ""
            if self.text(node).startswith("*"):
                return []
            found = self.flows.annotated(self.file, outer, self.text(parts["type"]))
        else:
            value = self.linker.parameter_value(node, scope)
            if value.kind in ("instance", "entry") and value.file and value.entry:
                return [value, *self.flows.deriving(value)] if value.kind == "entry" else [replace(value, name=OWN)]
        if found and not any(is_callable(value) or is_hollow(value) for value in found):
            return found
        called = any(is_callable(value) or holds_callables(value) for value in found)
        if "value" in parts:
            found += self.objects(parts["value"])
        return distinct([*found, *self.given(name, node, scope, called)])

    def called_back(self, function: int, number: int) -> list[Value]:
        """What the function that a ``lambda`` is handed to hands to its parameter of a number."""
        flat, above = self.flat, self.flat.parents[function]
        keyword = self.text(flat.children[above]["name"]) if flat.types[above] == "keyword_argument" else ""
        listed = flat.parents[above] if keyword else above
        call = flat.parents[listed]
        if flat.types[listed] != "argument_list" or "function" not in flat.children[call]:
            return []
        value = self.linker.value(flat.children[call]["function"])
        if value.kind != "entry" or value.entry is None or value.file is None or value.entry.kind not in FUNCTIONS:
            return []
        flow = self.flows.of(value.file)
        position = -1 if keyword else self.arguments(call).index(function) + (value.entry.kind == "method")
        return flow.hands_on(value.entry, keyword, position, number) if flow else []

    def hands_on(self, entry: Entry, keyword: str, position: int, number: int) -> list[Value]:
        """What a function hands, at the place of a number, to the parameter of a name or a position that it calls."""
        node = self.functions.get((entry.qualname, entry.line), -1)
        listed = self.flat.children[node].get("parameters", -1) if node >= 0 else -1
        kids = self.flat.kids[listed] if listed >= 0 else []
        names = [self.text(self.flat.children[kid].get("name", (self.flat.kids[kid] or [kid])[0])) for kid in kids]
        name = keyword or (names[position] if 0 <= position < len(names) else "")
        found: list[Value] = []
        for call in self.calls.get(name, ())[:8]:
            given = self.arguments(call)
            if number < len(given) and self.flat.holds(node, call):
                found += self.objects(given[number])
        return [value.unsure(f"handed over by {entry.name}") for value in distinct(found)]

    def given(self, name: str, node: int, scope: Scope, called: bool) -> list[Value]:
        """What is handed over for a parameter, at the calls and decorations that are found.

        Other files are asked if it is ``called``, by its annotation or in the body.
        """
        return self.flows.circles.answer(
            self.handed, (scope.node, name), lambda: self.handed_over(name, node, scope, called), rounds=ROUNDS
        )

    def handed_over(self, name: str, node: int, scope: Scope, is_called: bool) -> list[Value]:
        """``given``, computed."""
        entry = self.entry_of(scope)
        if entry is None:
            return []
        listed = self.flat.parents[node]
        place_ = self.flat.kids[listed].index(node) if listed >= 0 else -1
        if scope.parent is not None and scope.parent.kind == "class" and "staticmethod" not in entry.decorators:
            place_ -= 1
        found: list[Value] = []
        if place_ == 0 and not self.text(node).startswith("*"):
            found += self.flows.decorated_with(self.file, entry)
        called = (
            entry.qualname.split(".")[-2]
            if entry.name in ("__init__", "__new__") and "." in entry.qualname
            else entry.name
        )
        body = self.linker.source[self.flat.starts[scope.node] : self.flat.ends[scope.node]]
        calls_it = is_called or re.search(rb"\b%s\(|callable\(%s\)" % ((re.escape(name.encode()),) * 2), body)
        if entry.name == "__call__":
            owner = entry.qualname.split(".")[-2] if "." in entry.qualname else ""
            for flow in [self, *self.flows.naming(owner, self.file)]:
                found += flow.to_objects(owner, place_)
        for flow in [self, *(self.flows.naming(called, self.file) if calls_it else ())]:
            found += flow.handing(called, self.file, entry, place_, name)
        for other in ("cls", "__init__") if called != entry.name else ():
            found += self.handing(other, self.file, entry, place_, name)
        outer = scope.parent
        if outer is not None and outer.kind == "function":
            maker = outer.qualname.rpartition(".")[2]
            for other in (maker, *self.calling(maker)):
                found += self.to_objects(other, place_)
        if outer is not None and outer.kind == "class" and (calls_it or name == "cls"):
            found += self.from_below(outer.qualname, entry, place_, name)
        return [value.unsure(f"handed over for {name}") for value in distinct(found)]

    def from_below(self, owner: str, entry: Entry, place_: int, name: str) -> Iterator[Value]:
        """What the methods of deriving classes hand over to a method by ``super()``."""
        around = self.flows.program.owner(self.file, owner)
        children = self.flows.hierarchy.direct(self.file, around.entry) if around and around.entry else []
        for flow in dict.fromkeys(self.flows.of(source) for source, _ in children[:MAX_FILES]):
            if flow is not None:
                yield from flow.handing(entry.name, self.file, entry, place_, name)

    def to_objects(self, owner: str, place_: int) -> Iterator[Value]:
        """What calls of objects hand over that are made on the spot: ``Class(...)(value)``."""
        for call in self.calls.get(owner, ())[:24]:
            above = self.flat.parents[call]
            if self.flat.types[above] == "call" and self.flat.children[above].get("function") == call:
                given = self.arguments(above)
                yield from self.objects(given[place_]) if 0 <= place_ < len(given) else ()

    def handing(self, called: str, file: Source, entry: Entry, place_: int, name: str) -> Iterator[Value]:
        """What the calls of a function in this file, or a ``partial`` of it, hand over at a place or under a name."""
        calls = [(self.flat.children[call]["function"], call, 0) for call in self.calls.get(called, ())[:24]]
        halves = [(given[0], call, 1) for call in self.calls.get("partial", ()) if (given := self.arguments(call))]
        calls += [half for half in halves if self.last(half[0]) == called][:24]
        for function, call, first in calls:
            node = self.keywords(call).get(name)
            if node is None:
                given = self.arguments(call)[first:]
                node = given[place_] if 0 <= place_ < len(given) else None
            if node is None or self.flat.types[node] in ("string", "integer", "float", "none", "true", "false"):
                continue
            value = self.linker.value(function)
            wanted = {entry.qualname, entry.qualname.rpartition(".")[0]}
            same = value.file is file and value.entry is not None and value.entry.qualname in wanted
            if same or (value.kind == "unknown" and self.file is file):
                yield from self.objects(node)

    def entry_of(self, scope: Scope) -> Entry | None:
        """The definition that opens a scope."""
        name = self.flat.children[scope.node].get("name")
        line = self.flat.places.get(name, (-1, 0))[0] + 1 if name is not None else 0
        return next((e for e in self.file.entries.get(scope.qualname, ()) if e.line == line), None)


def overloads(file: Source, entry: Entry) -> list[Entry]:
    """A function, or all its overloads where it is one of them."""
    if "overload" not in entry.decorators:
        return [entry]
    return [one for one in file.entries.get(entry.qualname, ()) if "overload" in one.decorators]


def is_module(flows: Flows, value: Value) -> bool:
    """Whether an object is a ``torch.nn.Module``, whose call leads to ``forward``."""
    return is_below(flows, value, "torch.nn.modules.module", "Module")


def is_given(value: Value) -> bool:
    """Whether a value is what somebody handed over, so that a function that returns it makes nothing new."""
    return value.name == RAW or value.why.startswith(("handed over", "registered in"))


def is_callable(value: Value) -> bool:
    """Whether all that is known of an object is that it can be called."""
    return value.kind == "callable" or (value.kind == "external instance" and value.last == "Callable")


def paired(value: Value) -> Value:
    """The pairs of a dictionary whose keys and items are known by its annotation."""
    if value.kind != "external instance" or value.last not in KEYED or len(value.items) != 2:
        return value
    return Value("external instance", name="builtins.list", items=(made("builtins.tuple", *value.items),))


def is_hollow(value: Value) -> bool:
    """Whether a container may hold anything, or anything that can be called."""
    items = value.items if value.kind == "external instance" else ()
    return holds_callables(value) or any(item.kind == "unknown" or is_hollow(item) for item in items)


def holds_callables(value: Value) -> bool:
    """Whether all that is known of what a container holds is that it can be called."""
    items = value.items if value.kind == "external instance" else ()
    return any(is_callable(item) or holds_callables(item) for item in items)


def is_step(flows: Flows, scope: Scope, file: Source) -> bool:
    """Whether a function is a step of a ``torch.autograd.Function``, which hands it a context."""
    owner = flows.program.owner(file, scope.qualname.rpartition(".")[0])
    return owner is not None and is_below(flows, owner, "torch.autograd.function", "Function")


def is_below(flows: Flows, value: Value, module: str, name: str) -> bool:
    """Whether a class, or that of an object, is or derives from the class of a module."""
    if value.file is None or value.entry is None or value.entry.kind != "class":
        return False
    order = flows.program.order(value.file, value.entry)[0]
    return any(source.module == module and entry.name == name for source, entry in order)


def flatten(value: Value) -> list[Value]:
    """The objects that a plain value is one of; none where nothing is known."""
    if value.kind == "union":
        return [one.unsure(value.why) for item in value.items for one in flatten(item)]
    return [] if value.kind in ("unknown", "none", "local", "absent", "parameter") else [value]


def contents(value: Value) -> tuple[object, ...]:
    """Where a value leads, and so what it holds."""
    return (*place(value), *(contents(item) for item in value.items))


def distinct(values: Iterable[Value]) -> list[Value]:
    """Values without repetition, the sure ones before the others of the same place and contents."""
    found: dict[tuple[object, ...], Value] = {}
    for value in values:
        key = contents(value) if value.items else place(value)
        if key not in found or (value.sure and not found[key].sure):
            found[key] = value
        if len(found) >= MAX_OBJECTS:
            break
    return list(found.values())
