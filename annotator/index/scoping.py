"""The scopes of a Python file, or of a piece of one, and what each of them binds by its syntax."""

from __future__ import annotations

from annotator.index.flow import Binding, Flat, Scope
from annotator.index.languages import normal, parse
from annotator.index.python import bindings

COMPREHENSIONS = {
    "list_comprehension": "list", "set_comprehension": "set", "dictionary_comprehension": "dict",
    "generator_expression": "list",
}  # fmt: skip
PARAMETERS = {
    "parameters", "lambda_parameters", "default_parameter", "typed_default_parameter", "typed_parameter",
    "list_splat_pattern", "dictionary_splat_pattern",
}  # fmt: skip
TYPED = ("default_parameter", "typed_default_parameter", "typed_parameter")
TARGETS = frozenset(("pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern"))
UNPACKED = TARGETS | {"tuple", "list", "as_pattern_target"}


class Scoped:
    """A syntax tree with its scopes; a piece of a file stands ``within`` a class of that qualname."""

    def __init__(self, data: bytes, within: str = "") -> None:
        self.source = normal(data)
        self.tree = parse(data, "python")
        self.flat = Flat(self.tree.root_node)
        self.root = self.frame(within)
        self.scopes: list[Scope] = []
        self.inner: dict[int, Scope] = {}
        self.scan()

    def frame(self, within: str) -> Scope:
        """The scope around the tree: the module, or a class that the store knows."""
        scope, before = Scope("module", "", None, 0), ""
        for name in within.split(".") if within else ():
            before = f"{before}.{name}" if before else name
            scope = Scope("class", before, scope, 0)
        return scope

    def text(self, index: int) -> str:
        """Source text of a node."""
        return self.source[self.flat.starts[index] : self.flat.ends[index]].decode("utf-8", "replace")

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
                        scope.bind(name_, Binding("import", index, flat.ends[index], -1, (origin, member, level)))

    def scope_for(self, index: int) -> Scope:
        """The scope of a node: its parent's, or the one that the parent opens for it."""
        flat = self.flat
        parent = flat.parents[index]
        if parent < 0:
            return self.root
        scope, inner, name = self.scopes[parent], self.inner.get(parent), flat.fields[index]
        if inner is not None:
            if inner.kind == "lambda" or name in ("body", "parameters", "type_parameters"):
                return inner
            return scope
        if name in ("value", "type") and flat.types[parent] in TYPED:
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
            scope.bind(self.text(index), Binding("parameter", index, -1, parameter))
        elif (kind == "function_definition" or kind == "class_definition") and name == "name":
            scope.bind(self.text(index), Binding("definition", index, flat.ends[index]))
        elif kind == "assignment" and name == "left":
            scope.bind(self.text(index), Binding("assignment", index, flat.ends[parent], parent))
        elif kind == "named_expression" and name == "name":
            while scope.kind == "lambda" and scope.parent is not None and flat.types[scope.node] != "lambda":
                scope = scope.parent
            node = flat.children[parent].get("value", -1)
            scope.bind(self.text(index), Binding("value", index, flat.ends[parent], node))
        elif kind in ("global_statement", "nonlocal_statement"):
            scope.outer.add(self.text(index))
        elif kind in UNPACKED or (name == "left" and kind in ("for_statement", "for_in_clause")):
            top = self.target(index)
            if top is not None:
                scope.bind(self.text(index), Binding("part", index, self.since(top), top))
        elif kind in ("splat_pattern", "keyword_pattern", "type_parameter") or self.captured(index, parent, kind):
            scope.bind(self.text(index), Binding("other", index, flat.ends[index]))

    def captured(self, index: int, parent: int, kind: str) -> bool:
        """Whether an identifier is bound by a pattern of ``match``, or by ``as`` in one."""
        flat = self.flat
        if kind == "as_pattern":
            return index != flat.kids[parent][0]
        above = flat.parents[parent]
        whole = flat.starts[parent] == flat.starts[index] and flat.ends[parent] == flat.ends[index]
        return kind == "dotted_name" and whole and flat.types[above] == "case_pattern" and len(flat.kids[above]) == 1

    def target(self, index: int) -> int | None:
        """The statement or clause that binds an identifier in a pattern; ``None`` if it is in no target."""
        flat = self.flat
        node, parent = index, flat.parents[index]
        while flat.types[parent] in UNPACKED:
            node, parent = parent, flat.parents[parent]
        bound = flat.fields[node] == "left" or flat.types[node] == "as_pattern_target"
        return parent if bound and flat.types[parent] != "augmented_assignment" else None

    def since(self, statement: int) -> int:
        """From which byte on the targets of a statement are bound."""
        flat = self.flat
        kind = flat.types[statement]
        if kind == "for_in_clause":
            return -1
        return flat.ends[flat.children[statement]["right"]] if kind == "for_statement" else flat.ends[statement]

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
