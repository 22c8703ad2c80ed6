"""What the expressions of a Python file give: values, from its syntax tree and its scopes.

It works on a whole file, to link it, or on a piece of one (a method, a statement) whose surroundings the store knows,
to tell what a function returns or an attribute holds where no annotation says so.
"""

from __future__ import annotations

import re
from dataclasses import replace

from annotator.index.arithmetic import compared, operated, signed
from annotator.index.flow import NO_FIELDS, Binding, Scope, reaching
from annotator.index.library import known_call, on_container
from annotator.index.narrowing import narrowed
from annotator.index.resolution import BUILTINS, Program, Source
from annotator.index.scoping import COMPREHENSIONS, UNPACKED, Scoped
from annotator.index.values import AWAITED, KEYED, NONE, Value, either, is_class, made, out_of, place, unknown

SEQUENCES = {"list": "list", "set": "set", "tuple": "tuple", "expression_list": "tuple"}
LITERALS = {
    "string": "str", "concatenated_string": "str", "integer": "int", "float": "float", "true": "bool", "false": "bool",
    "not_operator": "bool",
}  # fmt: skip
GUARDED = re.compile(rb"isinstance\(\s*([\w.\[\]]+)\s*,|([\w.\[\]]+)\.is_nested\b")
MAX_DEPTH = 80
MAX_ITEMS = 8
"""How many bindings of a name, or items of a literal, are looked at to tell a class."""

MAX_BINDINGS = 300
"""How many bindings of a name are sorted out by flow; more stand in generated code."""

LOCAL = Value("local")
ABSENT = Value("absent")


class Evaluator(Scoped):
    """Values of the expressions of one file, or of a piece of it that stands ``within`` a scope of that qualname."""

    def __init__(self, program: Program, file: Source, data: bytes, within: str = "") -> None:
        super().__init__(data, within)
        self.program, self.file = program, file
        self.values: dict[int, Value] = {}
        self.held: dict[int, Value] = {}
        self.declared: dict[tuple[Scope, str], Binding | None] = {}
        self.guarded = {name.decode() for names in GUARDED.findall(self.source) for name in names if name}
        self.depth = 0

    # Names

    def named(self, name: str, scope: Scope) -> tuple[Value, Scope | None]:
        """What a name means in a scope, and the scope that binds it; ``LOCAL`` where flow must tell."""
        current: Scope | None = scope
        while current is not None:
            if (current is scope or current.kind != "class") and name not in current.outer:
                found = current.known.get(name)
                if found is None:
                    found = current.known[name] = self.bound_in(name, current)
                if found is not ABSENT:
                    return found, current
            current = current.parent
        if found_star := self.program.starred(self.file, name) or self.program.loaded(self.file, name):
            return found_star, None
        if name in BUILTINS:
            return Value("external", name=f"builtins.{name}"), None
        if name == "__class__":
            return LOCAL, None
        return unknown("nothing in the sources binds this name"), None

    def bound_in(self, name: str, scope: Scope) -> Value:
        """What a scope itself binds a name to."""
        if scope.kind in ("module", "class"):
            stored = self.program.bound(self.file, scope.qualname, name)
            if stored is not None:
                return stored
        ways = scope.names.get(name)
        if not ways:
            return ABSENT
        if scope.kind == "function" and all(way.kind in ("definition", "import") for way in ways):
            stored = self.program.bound(self.file, scope.qualname, name)
            if stored is not None:
                return stored
            values = [self.program.imported(self.file, *way.origin, name) for way in ways if way.kind == "import"]
            if values and len({place(value) for value in values}) == 1:
                return values[0]
        return LOCAL

    def local(self, name: str, scope: Scope, use: int) -> Value:
        """The object that a name of a scope of this file holds at a place, by the bindings that may reach it."""
        ways = scope.names.get(name, [])
        reach = ways
        if 1 < len(ways) <= MAX_BINDINGS and self.function(self.scopes[use]) is scope:
            reach = sorted(reaching(self.flat, ways, use), key=lambda way: way.at) or ways
        values = [self.bound_value(way, scope) for way in reach[:MAX_ITEMS]]
        found = values[0] if len(values) == 1 else either(values, f"it is bound to objects of several classes: {name}")
        if len(reach) > MAX_ITEMS:
            found = found.unsure(f"by the first of its bindings: {name}")
        if found.kind in ("unknown", "none") or (len(values) > 1 and not found.sure):
            way = self.declaration(name, scope)
            declared = self.bound_value(way, scope) if way is not None else found
            if declared.kind not in ("unknown", "none"):
                return declared.unsure("by the annotation of what is bound again")
        return found

    def function(self, scope: Scope) -> Scope:
        """The function around comprehensions and lambdas, whose bindings flow into them."""
        while scope.kind == "lambda" and scope.parent is not None:
            scope = scope.parent
        return scope

    def declaration(self, name: str, scope: Scope) -> Binding | None:
        """The first binding of a name that has an annotation."""
        key = (scope, name)
        if key not in self.declared:
            self.declared[key] = next((way for way in scope.names.get(name, ()) if self.declares(way)), None)
        return self.declared[key]

    def declares(self, way: Binding) -> bool:
        """Whether a binding has an annotation."""
        if way.kind == "parameter":
            return self.flat.types[way.node].startswith("typed_")
        return way.kind == "assignment" and "type" in self.flat.children[way.node]

    def bound_value(self, way: Binding, scope: Scope) -> Value:
        """The object that one binding gives."""
        if way.at not in self.held:
            self.held[way.at] = unknown("it depends on itself")
            self.held[way.at] = self.given(way, scope)
        return self.held[way.at]

    def given(self, way: Binding, scope: Scope) -> Value:
        """``bound_value``, computed."""
        flat, kind = self.flat, way.kind
        if kind == "parameter":
            return self.parameter_value(way.node, scope)
        if kind == "assignment":
            return self.assigned(flat.children[way.node], scope)
        if kind == "value":
            return self.value(way.node) if way.node >= 0 else unknown("an unfinished expression")
        if kind == "part":
            return self.taken(way.at)
        if kind == "definition":
            return unknown("a local definition")
        if kind == "import":
            return self.program.meaning(self.program.imported(self.file, *way.origin, self.text(way.at)))
        return unknown("it is bound by a pattern")

    def assigned(self, parts: dict[str, int], scope: Scope) -> Value:
        """What an assignment gives its target: by the annotation, or by a value of a class below the annotated one."""
        if "type" not in parts:
            return self.value(parts["right"]) if "right" in parts else unknown("it is only declared")
        declared = self.annotated(parts["type"], scope)
        if "right" not in parts or declared.kind != "instance":
            return declared
        value = self.value(parts["right"])
        return value if self.program.below(value, declared) else declared

    def taken(self, at: int) -> Value:
        """What an identifier in a pattern gets of what is unpacked, iterated or entered."""
        flat, steps = self.flat, []
        node, parent = at, flat.parents[at]
        while flat.types[parent] in UNPACKED:
            if flat.types[parent] == "list_splat_pattern":
                return made("builtins.list")
            if flat.types[parent] != "as_pattern_target":
                steps.append((flat.kids[parent].index(node), len(flat.kids[parent])))
            node, parent = parent, flat.parents[parent]
        value = self.source_of(parent)
        for index, count in reversed(steps):
            value = self.program.unpacked(value, index, count)
        return value

    def source_of(self, statement: int) -> Value:
        """What a statement or clause hands to its target."""
        flat, kind = self.flat, self.flat.types[statement]
        right = flat.children[statement].get("right")
        if kind == "assignment" and right is not None:
            return self.value(right)
        if kind in ("for_statement", "for_in_clause") and right is not None:
            return self.program.iterated(self.value(right))
        if kind == "as_pattern":
            above, first = flat.types[flat.parents[statement]], flat.kids[statement][0]
            if above == "with_item":
                return self.program.entered(self.value(first))
            if above in ("except_clause", "except_group_clause"):
                return self.raised(first)
        return unknown("it is bound by a pattern")

    def raised(self, node: int) -> Value:
        """An object of the exceptions that a clause names."""
        nodes = self.flat.kids[node] if self.flat.types[node] == "tuple" else [node]
        return either((self.program.instance(self.value(one)) for one in nodes), "one of several exceptions")

    def annotated(self, node: int, scope: Scope) -> Value:
        """An object of the type that an annotation in this file names."""
        return self.program.annotation(self.file, scope.qualname, self.text(node), self.around(scope))

    def around(self, scope: Scope | None) -> Value | None:
        """An object of the class around a scope."""
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return self.program.owner(self.file, scope.qualname) if scope is not None else None

    def parameter_value(self, node: int, scope: Scope) -> Value:
        """A parameter's object: ``self`` and ``cls`` by the class around, others by annotation, else by default."""
        flat = self.flat
        kind, parts = flat.types[node], flat.children[node]
        if kind in ("typed_parameter", "typed_default_parameter"):
            inner = flat.kids[node][0] if flat.kids[node] else node
            value = self.annotated(parts["type"], scope.parent or scope)
            if flat.types[inner] == "list_splat_pattern":
                return made("builtins.tuple", value)
            return made("builtins.dict", made("builtins.str"), value) if "dict" in flat.types[inner] else value
        if kind == "list_splat_pattern":
            return made("builtins.tuple")
        if kind == "dictionary_splat_pattern":
            return made("builtins.dict")
        if (receiver := self.receiver(node, scope)) is not None:
            return receiver
        if flat.types[scope.node] == "lambda":
            return self.handed(scope.node, flat.kids[flat.parents[node]].index(node))
        if kind == "default_parameter" and "value" in parts:
            value = self.value(parts["value"])
            if value.kind == "instance":
                return value.unsure("by the default of a parameter")
        return unknown("a parameter without annotation")

    def handed(self, function: int, number: int) -> Value:
        """What the built-in function that a ``lambda`` is given to hands to its parameter."""
        flat, above = self.flat, self.flat.parents[function]
        by_key = flat.types[above] == "keyword_argument" and self.text(flat.children[above]["name"]) == "key"
        listed = flat.parents[above] if by_key else above
        call = flat.children[flat.parents[listed]] if flat.types[listed] == "argument_list" else NO_FIELDS
        callee = self.text(call["function"]) if "function" in call else ""
        arguments = self.arguments(call) if callee else []
        if by_key and callee in ("sorted", "min", "max") and len(arguments) == 1:
            return self.program.iterated(self.value(arguments[0]))
        if by_key and callee.endswith(".sort"):
            return self.program.iterated(self.value(flat.children[call["function"]]["object"]))
        if callee in ("map", "filter") and arguments[:1] == [function] and len(arguments) > number + 1:
            return self.program.iterated(self.value(arguments[number + 1]))
        return unknown("a parameter of a lambda")

    def receiver(self, node: int, scope: Scope) -> Value | None:
        """What the first parameter of a method gets: the object, or its class."""
        flat, outer, function = self.flat, scope.parent, scope.node
        first = flat.parents[node] >= 0 and flat.kids[flat.parents[node]][:1] == [node]
        if not first or outer is None or outer.kind != "class" or flat.types[function] != "function_definition":
            return None
        owner, marks = self.program.owner(self.file, outer.qualname), self.decorators(function, scope)
        if owner is None or "staticmethod" in marks:
            return None
        name = scope.qualname.rpartition(".")[2]
        of_class = "classmethod" in marks or name in ("__new__", "__init_subclass__", "__class_getitem__")
        return replace(owner, kind="entry") if of_class else owner

    def decorators(self, function: int, scope: Scope) -> str:
        """Text of a definition's decorators, by the tree, or by the store where the tree is a piece."""
        flat = self.flat
        above = flat.parents[function]
        if above >= 0 and flat.types[above] == "decorated_definition":
            return " ".join(self.text(kid) for kid in flat.kids[above] if flat.types[kid] == "decorator")
        return self.file.entries[scope.qualname][0].decorators if scope.qualname in self.file.entries else ""

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
        if kind == "identifier" or kind == "attribute" or kind == "subscript":
            if self.guarded and (narrow := narrowed(self, index)) is not None:
                return narrow
            if kind == "subscript":
                return self.item(self.value(parts["value"]), parts.get("subscript"))
            return self.name(index) if kind == "identifier" else self.member(parts)
        if kind == "call":
            return self.called(index, parts)
        if kind in LITERALS:
            return made(f"builtins.{LITERALS[kind]}")
        if kind in SEQUENCES or kind in COMPREHENSIONS or kind == "dictionary":
            return self.container(index, kind)
        if kind == "none":
            return NONE
        if kind in ("parenthesized_expression", "await") and flat.kids[index]:
            value = self.value(flat.kids[index][0])
            waits = kind == "await" and value.kind == "external instance" and value.last in AWAITED and value.items
            return out_of(value, value.items[min(AWAITED[value.last], len(value.items) - 1)]) if waits else value
        if kind == "conditional_expression" and len(flat.kids[index]) == 3:
            first, _, last = flat.kids[index]
            return either((self.value(first), self.value(last)), "one of two values")
        if kind == "boolean_operator" and "right" in parts:
            return either((self.value(parts["left"]), self.value(parts["right"])), "one of two values")
        if kind in ("named_expression", "assignment"):
            node = parts.get("value", parts.get("right"))
            return self.value(node) if node is not None else unknown("an unfinished expression")
        if kind == "binary_operator" and "right" in parts:
            return operated(self, parts["left"], parts["right"])
        if kind == "comparison_operator" and len(flat.kids[index]) > 1:
            return compared(self, flat.kids[index])
        if kind == "unary_operator" and "argument" in parts:
            return signed(self, parts["argument"], index)
        if kind == "lambda" and "body" in parts:
            return Value("callable", items=(self.value(parts["body"]),))
        return unknown("the class of the expression is not plain")

    def name(self, index: int) -> Value:
        """What the object is that a name holds where it stands."""
        name, scope = self.text(index), self.scopes[index]
        found, binder = self.named(name, scope)
        if found is LOCAL:
            return self.local(name, binder, index) if binder is not None else unknown("the class around it")
        plain = found.kind == "entry" and found.entry is not None and found.entry.kind in ("variable", "constant")
        if plain and binder is not None and binder.names.get(name) and self.function(scope) is binder:
            value = self.local(name, binder, index)
            if value.kind != "unknown":
                return value
        return self.program.meaning(found)

    def member(self, parts: dict[str, int]) -> Value:
        """What an attribute holds."""
        if "attribute" not in parts:
            return unknown("an unfinished expression")
        found = self.program.attribute(self.value(parts["object"]), self.text(parts["attribute"]))
        return self.program.result(found)

    def container(self, index: int, kind: str) -> Value:
        """A container that is written out, with what it holds."""
        flat = self.flat
        kids = [kid for kid in flat.kids[index] if flat.types[kid] != "comment"]
        if kind in COMPREHENSIONS:
            kids = kids[:1]
        elif len(kids) > MAX_ITEMS and kind in ("tuple", "expression_list"):
            kids = []
        pairs = [flat.children[kid] for kid in kids[:MAX_ITEMS] if flat.types[kid] == "pair"]
        if kind.startswith("dict"):
            keys, values = ([self.value(pair[name]) for pair in pairs if name in pair] for name in ("key", "value"))
            items = (either(keys, "keys of several classes"), either(values, "items of several classes"))
            return made("builtins.dict", *(items if pairs else ()))
        values = [self.value(kid) for kid in kids[:MAX_ITEMS] if "splat" not in flat.types[kid]]
        name = COMPREHENSIONS.get(kind) or SEQUENCES[kind]
        if name == "tuple":
            return made("builtins.tuple", *(values if len(values) == len(kids) else ()))
        return made(f"builtins.{name}", *((either(values, "items of several classes"),) if values else ()))

    def item(self, base: Value, subscript: int | None) -> Value:
        """What a subscript gives."""
        kind = self.flat.types[subscript] if subscript is not None else ""
        if is_class(base) or (kind == "slice" and base.kind == "external instance"):
            return base
        if base.kind == "external instance" and base.last in KEYED and len(base.items) > 1:
            return out_of(base, base.items[1])
        if base.kind == "external instance" and base.last == "tuple" and kind == "integer" and len(base.items) > 1:
            number = int(self.text(subscript)) if subscript is not None and self.text(subscript).isdecimal() else 99
            fits = number < len(base.items)
            return out_of(base, base.items[number]) if fits else unknown("an item of a container")
        return self.program.subscribed(base, kind == "slice")

    def called(self, index: int, parts: dict[str, int]) -> Value:
        """The result of a call; ``super()`` stands for the bases of the class around."""
        function = parts.get("function")
        if function is None:
            return unknown("an unfinished expression")
        if self.flat.types[function] == "identifier" and self.text(function) == "super":
            return self.beyond(index, parts)
        callee = self.value(function)
        if callee.kind == "external":
            arguments = self.arguments(parts)
            found = known_call(self, callee.name, arguments, self.scopes[index])
            if found is None and self.flat.types[function] == "attribute":
                found = on_container(self, self.value(self.flat.children[function]["object"]), callee.last)
            if found is not None:
                return found
        return self.program.call(callee)

    def beyond(self, index: int, parts: dict[str, int]) -> Value:
        """``super()``: what comes after the class around; ``super(C, self)``: what comes after ``C``."""
        owner = self.around(self.scopes[index])
        named = self.arguments(parts)
        if named and is_class(value := self.value(named[0])):
            owner = value
        return replace(owner, kind="super") if owner is not None else unknown("super() outside a class")

    def arguments(self, parts: dict[str, int]) -> list[int]:
        """Positional arguments of a call."""
        flat = self.flat
        given = parts.get("arguments")
        if given is None or flat.types[given] != "argument_list":
            return [given] if given is not None else []
        return [kid for kid in flat.kids[given] if flat.types[kid] not in ("keyword_argument", "comment")]

    def literal(self, index: int) -> str:
        """The name that a string literal spells; empty if it spells none."""
        text = self.text(index)
        inner = text[1:-1]
        return inner if self.flat.types[index] == "string" and inner.isidentifier() else ""
