"""What each identifier of one Python file leads to.

The tree is flattened once into arrays, because walking nodes twice costs more than anything else here; scopes are
found on the way. Values of expressions are computed when an attribute needs them and kept. Resolution across files
is ``resolution``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from annotator.index.languages import normal, parse
from annotator.index.python import bindings
from annotator.index.resolution import BUILTINS, Program, Source, Value, is_class, place, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

COMPREHENSIONS = frozenset(
    ("list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression")
)
LITERALS = {
    "string": "str", "concatenated_string": "str", "integer": "int", "float": "float", "list": "list", "set": "set",
    "dictionary": "dict", "tuple": "tuple", "list_comprehension": "list", "set_comprehension": "set",
    "dictionary_comprehension": "dict",
}  # fmt: skip
PARAMETERS = {
    "parameters", "lambda_parameters", "default_parameter", "typed_default_parameter", "typed_parameter",
    "list_splat_pattern", "dictionary_splat_pattern",
}  # fmt: skip
TARGETS = frozenset(("pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern"))
MAX_DEPTH = 80
NO_FIELDS: dict[str, int] = {}
NO_KIDS: list[int] = []


class Raw(NamedTuple):
    """A link as it is kept: the target as file number and ordinal (0, -1 where there is none)."""

    line: int
    column: int
    end_column: int
    name: str
    file: int
    ordinal: int
    external: str
    certainty: str
    reason: str


@dataclass(eq=False)
class Scope:
    """A scope of the file: what the tree binds in it that the store does not know."""

    kind: str
    qualname: str
    parent: Scope | None
    node: int
    names: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)
    known: dict[str, tuple[Value, bool] | None] = field(default_factory=dict)

    def bind(self, name: str, *how: Any) -> None:
        """Notes one binding of a name."""
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


class Linker:
    """Links one file. ``links()`` gives a ``Raw`` for each identifier."""

    def __init__(self, program: Program, file: Source, data: bytes) -> None:
        self.program, self.file = program, file
        self.source = normal(data)
        self.tree = parse(data, "python")
        self.flat = Flat(self.tree.root_node)
        self.module = Scope("module", "", None, 0)
        self.values: dict[int, Value] = {}
        self.depth = 0
        self.scopes: list[Scope] = []
        self.inner: dict[int, Scope] = {}
        self.imports: dict[int, dict[int, Value]] = {}
        self.scan()

    def text(self, index: int) -> str:
        """Source text of a node."""
        return self.source[self.flat.starts[index] : self.flat.ends[index]].decode("utf-8", "replace")

    # Scopes and bindings

    def scan(self) -> None:
        """Gives each node its scope and notes what is bound where."""
        flat, scopes = self.flat, self.scopes
        for index, kind in enumerate(flat.types):
            scope = self.scope_for(index)
            scopes.append(scope)
            if kind == "identifier":
                self.bind_identifier(index, scope)
            elif kind == "function_definition" or kind == "class_definition":
                name = flat.children[index].get("name")
                qualname = self.text(name) if name is not None else ""
                qualname = f"{scope.qualname}.{qualname}" if scope.qualname else qualname
                self.inner[index] = Scope("class" if kind == "class_definition" else "function", qualname, scope, index)
            elif kind == "lambda" or kind in COMPREHENSIONS:
                self.inner[index] = Scope("lambda", scope.qualname, scope, index)
            elif kind in ("import_statement", "import_from_statement"):
                for name_, origin, member, level in bindings(flat.nodes[index], kind, self.source):
                    if name_ != "*":
                        scope.bind(name_, "import", origin, member, level)

    def scope_for(self, index: int) -> Scope:
        """The scope of a node: its parent's, or the one that the parent opens for it."""
        flat = self.flat
        parent = flat.parents[index]
        if parent < 0:
            return self.module
        scope, inner, name = self.scopes[parent], self.inner.get(parent), flat.fields[index]
        if inner is not None:
            if inner.kind == "lambda" or name in ("body", "parameters", "type_parameters"):
                return inner
            return scope
        if name in ("value", "type") and flat.types[parent] in (
            "default_parameter",
            "typed_default_parameter",
            "typed_parameter",
        ):
            return scope.parent or scope
        return scope

    def bind_identifier(self, index: int, scope: Scope) -> None:
        """Notes the binding that an identifier is, if it is one."""
        flat = self.flat
        parent = flat.parents[index]
        kind, name = flat.types[parent], flat.fields[index]
        if kind == "attribute" or kind == "call":
            return
        if kind in PARAMETERS and name in (None, "name") and (parameter := self.parameter(index)) is not None:
            scope.bind(self.text(index), "parameter", parameter)
        elif (kind == "function_definition" or kind == "class_definition") and name == "name":
            scope.bind(self.text(index), "definition")
        elif kind == "assignment" and name == "left":
            scope.bind(self.text(index), "assignment", parent)
        elif kind == "named_expression" and name == "name":
            while scope.kind == "lambda" and scope.parent is not None and flat.types[scope.node] != "lambda":
                scope = scope.parent
            scope.bind(self.text(index), "value", flat.children[parent].get("value", -1))
        elif kind in ("global_statement", "nonlocal_statement"):
            scope.outer.add(self.text(index))
        elif kind in TARGETS or (name == "left" and kind in ("for_statement", "for_in_clause", "augmented_assignment")):
            if kind != "augmented_assignment" and self.is_target(parent, index):
                scope.bind(self.text(index), "part")
        elif kind == "as_pattern_target":
            self.bind_as(index, flat.parents[parent], scope)
        elif (
            kind == "dotted_name"
            and flat.types[flat.parents[parent]] == "case_pattern"
            and len(flat.kids[flat.parents[parent]]) == 1
        ):
            if flat.ends[parent] == flat.ends[index] and flat.starts[parent] == flat.starts[index]:
                scope.bind(self.text(index), "part")
        elif kind in ("splat_pattern", "keyword_pattern", "type_parameter") or (
            kind == "as_pattern" and index != flat.kids[parent][0]
        ):
            scope.bind(self.text(index), "part")

    def is_target(self, parent: int, index: int) -> bool:
        """Whether a pattern is bound to (a parameter's splat is not asked here)."""
        flat = self.flat
        while flat.types[parent] in TARGETS:
            index, parent = parent, flat.parents[parent]
        return flat.fields[index] == "left" or flat.types[parent] == "as_pattern_target"

    def bind_as(self, index: int, pattern: int, scope: Scope) -> None:
        """``except E as e`` binds an object of ``E``; other ``as`` clauses something unknown."""
        flat = self.flat
        above = flat.parents[pattern]
        if flat.types[above] in ("except_clause", "except_group_clause") and flat.kids[pattern]:
            scope.bind(self.text(index), "object", flat.kids[pattern][0])
        else:
            scope.bind(self.text(index), "part")

    def parameter(self, index: int) -> int | None:
        """The node of the parameter that an identifier names, or ``None`` if it is in no list of parameters."""
        flat = self.flat
        node = index
        while flat.types[flat.parents[node]] in PARAMETERS:
            node = flat.parents[node]
            if flat.types[node] in ("parameters", "lambda_parameters"):
                return self.child_towards(node, index)
        return None

    def child_towards(self, ancestor: int, index: int) -> int:
        """The child of ``ancestor`` below which a node is."""
        flat = self.flat
        while flat.parents[index] != ancestor:
            index = flat.parents[index]
        return index

    # Names

    def lookup(self, name: str, scope: Scope) -> tuple[Value, bool]:
        """What a name means in a scope, and whether it is local there."""
        current: Scope | None = scope
        while current is not None:
            if (current is scope or current.kind != "class") and name not in current.outer:
                if name not in current.known:
                    current.known[name] = None
                    current.known[name] = self.bound_in(name, current)
                if (found := current.known[name]) is not None:
                    return found
            current = current.parent
        if found_star := self.program.starred(self.file, name):
            return found_star, False
        if name in BUILTINS:
            return Value("external", name=f"builtins.{name}"), False
        if name == "__class__":
            return unknown("the class around it"), True
        return unknown("nothing in the sources binds this name"), False

    def bound_in(self, name: str, scope: Scope) -> tuple[Value, bool] | None:
        """What a scope itself binds a name to."""
        if scope.kind in ("module", "class"):
            stored = self.program.bound(self.file, scope.qualname, name)
            if stored is not None:
                return stored, False
        ways = scope.names.get(name)
        if not ways:
            return None
        named = [way for way in ways if way[0] in ("definition", "import")]
        if named and scope.kind == "function" and len(named) == len(ways):
            stored = self.program.bound(self.file, scope.qualname, name)
            if stored is not None:
                return stored, False
            values = [
                self.program.imported(self.file, way[1], way[2], way[3], name) for way in ways if way[0] == "import"
            ]
            if values and len({place(value) for value in values}) == 1:
                return values[0], False
        return self.local(name, ways, scope), True

    def local(self, name: str, ways: list[tuple[Any, ...]], scope: Scope) -> Value:
        """The object that a local name holds, if all its bindings agree on the class."""
        if self.depth > MAX_DEPTH:
            return unknown("too deep")
        self.depth += 1
        try:
            values = [self.bound_value(way, scope) for way in ways[:8]]
        finally:
            self.depth -= 1
        if len(ways) == 1:
            return values[0]
        annotated = [
            value for value, way in zip(values, ways, strict=False) if way[0] == "parameter" and value.kind != "unknown"
        ]
        if len({place(value) for value in values}) == 1 and values[0].kind != "unknown":
            return values[0]
        if annotated and all(value.kind == "unknown" or place(value) == place(annotated[0]) for value in values):
            return annotated[0].unsure("by the annotation of a parameter that is bound again")
        return unknown(f"{name} is bound {len(ways)} times")

    def bound_value(self, way: tuple[Any, ...], scope: Scope) -> Value:
        """The object that one binding gives."""
        flat, kind = self.flat, way[0]
        if kind == "parameter":
            return self.parameter_value(way[1], scope)
        if kind == "assignment":
            parts = flat.children[way[1]]
            if "type" in parts:
                return self.annotated(parts["type"], scope)
            return self.value(parts["right"]) if "right" in parts else unknown("it is only declared")
        if kind == "value":
            return self.value(way[1]) if way[1] >= 0 else unknown("an unfinished expression")
        if kind == "object":
            return self.program.instance(self.value(way[1]))
        if kind == "definition":
            return unknown("a local definition")
        if kind == "import":
            return unknown("a local import beside other bindings")
        return unknown("it is unpacked or iterated")

    def annotated(self, node: int, scope: Scope) -> Value:
        """An object of the type that an annotation in this file names."""
        return self.program.annotation(self.file, scope.qualname, self.text(node), self.around(scope))

    def around(self, scope: Scope | None) -> Value | None:
        """An object of the class around a scope."""
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return self.program.owner(self.file, scope.qualname) if scope is not None else None

    def parameter_value(self, node: int, scope: Scope) -> Value:
        """A parameter's object: ``self`` and ``cls`` by the class around, others by annotation."""
        flat = self.flat
        if flat.types[node] in ("typed_parameter", "typed_default_parameter"):
            inner = flat.kids[node][0] if flat.kids[node] else node
            if flat.types[inner] in ("list_splat_pattern", "dictionary_splat_pattern"):
                return Value(
                    "external instance",
                    name="builtins.tuple" if flat.types[inner] == "list_splat_pattern" else "builtins.dict",
                )
            return self.annotated(flat.children[node]["type"], scope.parent or scope)
        outer, function = scope.parent, scope.node
        first = flat.parents[node] >= 0 and flat.kids[flat.parents[node]][:1] == [node]
        if first and outer is not None and outer.kind == "class" and flat.types[function] == "function_definition":
            owner, marks = self.program.owner(self.file, outer.qualname), self.decorators(function)
            if owner is None or "staticmethod" in marks:
                return unknown("a parameter without annotation")
            if "classmethod" in marks or scope.qualname.endswith(
                (".__new__", ".__init_subclass__", ".__class_getitem__")
            ):
                return replace(owner, kind="entry")
            return owner
        if flat.types[node] == "list_splat_pattern":
            return Value("external instance", name="builtins.tuple")
        if flat.types[node] == "dictionary_splat_pattern":
            return Value("external instance", name="builtins.dict")
        return unknown("a parameter without annotation")

    def decorators(self, function: int) -> str:
        """Text of a definition's decorators."""
        flat = self.flat
        above = flat.parents[function]
        if above < 0 or flat.types[above] != "decorated_definition":
            return ""
        return " ".join(self.text(kid) for kid in flat.kids[above] if flat.types[kid] == "decorator")

    # Values

    def value(self, index: int) -> Value:
        """The object that an expression gives, as far as it is plain."""
        found = self.values.get(index)
        if found is None:
            self.values[index] = unknown("it depends on itself")
            if self.depth > MAX_DEPTH:
                return unknown("too deep")
            self.depth += 1
            try:
                found = self.values[index] = self.evaluate(index)
            finally:
                self.depth -= 1
        return found

    def evaluate(self, index: int) -> Value:
        """``value``, computed."""
        flat = self.flat
        kind, parts = flat.types[index], flat.children[index]
        if kind == "identifier":
            return self.program.meaning(self.lookup(self.text(index), self.scopes[index])[0])
        if kind == "attribute" and "attribute" in parts:
            member = self.program.attribute(self.value(parts["object"]), self.text(parts["attribute"]))
            return self.program.result(member)
        if kind == "call":
            return self.called(index, parts)
        if kind in ("parenthesized_expression", "await") and flat.kids[index]:
            return self.value(flat.kids[index][0])
        if kind == "subscript" and "value" in parts:
            base = self.value(parts["value"])
            return base if is_class(base) else unknown("an item of a container")
        if kind in LITERALS:
            return Value("external instance", name=f"builtins.{LITERALS[kind]}")
        return unknown("the class of the expression is not plain")

    def called(self, index: int, parts: dict[str, int]) -> Value:
        """The result of a call; ``super()`` stands for the bases of the class around."""
        function = parts.get("function")
        if function is None:
            return unknown("an unfinished expression")
        if self.flat.types[function] == "identifier" and self.text(function) == "super":
            owner = self.around(self.scopes[index])
            return replace(owner, kind="super") if owner is not None else unknown("super() outside a class")
        return self.program.call(self.value(function))

    # Links

    def links(self) -> list[Raw]:
        """A link for each identifier, in the order of the source."""
        ascii_only = self.source.isascii()
        lines = [] if ascii_only else self.source.split(b"\n")
        found = []
        for index, (row, column) in self.flat.places.items():
            name = self.text(index)
            if not name:
                continue
            if not ascii_only and column:
                column = len(lines[row][:column].decode("utf-8", "replace"))
            value, local = self.meant(index, name)
            found.append(raw(value, local, row + 1, column, name))
        return found

    def meant(self, index: int, name: str) -> tuple[Value, bool]:
        """What an identifier means where it stands, and whether it is a local name."""
        flat, scope = self.flat, self.scopes[index]
        parent = flat.parents[index]
        kind, where = (flat.types[parent], flat.fields[index]) if parent >= 0 else ("", None)
        if kind == "attribute" and where == "attribute":
            return self.program.attribute(self.value(flat.children[parent]["object"]), name), False
        if kind == "keyword_argument" and where == "name":
            return self.keyword(parent, name), False
        if kind in ("function_definition", "class_definition") and where == "name":
            return self.defined(index, scope, name), False
        if kind == "dotted_name":
            above = flat.parents[parent]
            if flat.types[above] == "aliased_import":
                above = flat.parents[above]
            if flat.types[above] in ("import_statement", "import_from_statement", "relative_import"):
                return self.import_part(parent, index, above), False
            if flat.kids[parent][0] != index:
                return self.program.attribute(self.dotted_before(parent, index), name), False
        if kind == "aliased_import" and where == "alias":
            return self.alias(parent), False
        return self.lookup(name, scope)

    def keyword(self, parent: int, name: str) -> Value:
        """A keyword argument names a parameter of what is called; of a class of the pins, its field if it has one."""
        call = self.flat.parents[self.flat.parents[parent]]
        if self.flat.types[call] != "call" or "function" not in self.flat.children[call]:
            return Value("parameter")
        callee = self.value(self.flat.children[call]["function"])
        if callee.kind == "entry" and callee.entry is not None and callee.file is not None:
            if callee.entry.kind == "class" and "dataclass" in callee.entry.decorators:
                return self.program.attribute(callee, name)
            return Value("parameter")
        return Value("parameter") if callee.kind == "external" else unknown("a keyword of an unresolved call")

    def defined(self, index: int, scope: Scope, name: str) -> Value:
        """The definition whose own name an identifier is."""
        line = self.flat.places[index][0] + 1
        qualname = f"{scope.qualname}.{name}" if scope.qualname else name
        for entry in self.file.entries.get(qualname, ()):
            if entry.line == line:
                return Value("entry", self.file, entry)
        return unknown("the index is older than the file")

    def dotted_before(self, parent: int, index: int) -> Value:
        """The value of a dotted name (of a pattern, say) up to an identifier."""
        value: Value | None = None
        for kid in self.flat.kids[parent]:
            if kid == index:
                break
            name = self.text(kid)
            value = self.lookup(name, self.scopes[kid])[0] if value is None else self.program.attribute(value, name)
        return value or unknown("an unfinished name")

    def import_part(self, dotted: int, index: int, statement: int) -> Value:
        """One part of a dotted name in an import statement."""
        flat = self.flat
        while flat.types[statement] == "relative_import":
            statement = flat.parents[statement]
        upto = self.upto(dotted, index)
        origin = flat.children[statement].get("module_name")
        if flat.types[statement] == "import_statement":
            return self.program.module(upto, self.file.pin)
        if origin is None:
            return unknown("an unfinished import")
        text = "".join(self.text(origin).split())
        level = len(text) - len(text.lstrip("."))
        if flat.starts[origin] <= flat.starts[dotted] < flat.ends[origin]:
            value = self.program.module(self.file.absolute(upto, level), self.file.pin)
            near = self.program.beside(self.file, upto) if value.kind == "external" and not level else None
            return near or value
        return self.program.imported(self.file, text.lstrip("."), upto, level, upto)

    def upto(self, dotted: int, index: int) -> str:
        """Text of a dotted name up to one of its parts."""
        return "".join(self.source[self.flat.starts[dotted] : self.flat.ends[index]].decode("utf-8", "replace").split())

    def alias(self, node: int) -> Value:
        """The name that ``as`` gives to an import leads where the import leads."""
        flat = self.flat
        dotted = flat.children[node]["name"]
        last = flat.kids[dotted][-1] if flat.kids[dotted] else dotted
        return self.import_part(dotted, last, flat.parents[node])


def raw(value: Value, local: bool, line: int, column: int, name: str) -> Raw:
    """The link that a value makes."""
    end = column + len(name)
    if local or value.kind == "parameter":
        return Raw(line, column, end, name, 0, -1, "", "exact", "local" if local else "keyword")
    certainty, reason = ("exact", "") if value.sure else ("inferred", value.why)
    if value.kind in ("entry", "instance") and value.entry is not None and value.file is not None:
        return Raw(line, column, end, name, value.file.number, value.entry.ordinal, "", certainty, reason)
    if value.kind == "module":
        return Raw(line, column, end, name, 0, -2, f"{value.pin}:{value.name}", certainty, reason)
    if value.kind in ("external", "external instance"):
        return Raw(line, column, end, name, 0, -1, value.name, certainty, reason)
    return Raw(line, column, end, name, 0, -1, "", "unresolved", value.why)
