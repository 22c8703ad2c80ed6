"""What objects are: classes and their members, annotations, what calls and containers give.

It works on the store alone; only where neither an annotation nor a plain assignment says what a thing is are ``bodies``
read, if they are at hand.
"""

from __future__ import annotations

import builtins
import re
import sqlite3
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from annotator.index.names import BUILTINS, Entry, Names, Source
from annotator.index.seams import Seams, member
from annotator.index.values import (
    AWAITED,
    BUILT_IN,
    GENERIC,
    NONE,
    RESULTS,
    WRAPPERS,
    Value,
    either,
    inside,
    is_class,
    made,
    out_of,
    part,
    place,
    top_level,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECT = frozenset(dir(object)) | {"__dict__", "__module__"}
CLASS_ATTRIBUTES = frozenset(dir(type)) | {"__annotations__"}
NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
PROPERTY = re.compile(r"(^|\n|\.|_)property\b")
ASSIGNED = re.compile(r"\w+\s*(?::\s*[\w.]*TypeAlias\s*)?=\s*(.*)")
SEVERAL = "its annotation names several classes"
LAZY = "_import_structure"
FIRST = "one of several classes that it may be"
CALLED = frozenset(("class", "function", "method", "module", "struct"))
CALLED_OBJECT = "the result of a call on an object"
MAKERS = frozenset(("dict", "list", "set", "tuple", "str", "bytes", "frozenset", "defaultdict", "deque"))
MAX_CLASSES = 60

__all__ = ["BUILTINS", "Bodies", "Entry", "Program", "Source"]


class Bodies(Protocol):
    """What reads the bodies of definitions."""

    def returned(self, file: Source, entry: Entry) -> Value:
        """What a function returns."""

    def assigned(self, file: Source, entry: Entry) -> Value:
        """What is assigned to an attribute or a variable."""

    def table(self, file: Source) -> dict[str, str]:
        """The names that a lazy package offers by a table, each with the module inside it that defines it."""


class Program(Names):
    """All files of the store as one program: what names mean, and what the objects are that they hold."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.linear: dict[tuple[int, int], tuple[list[tuple[Source, Entry]], list[str]]] = {}
        self.meanings: dict[tuple[int, int], Value] = {}
        self.bodies: Bodies | None = None

    @cached_property
    def seams(self) -> Seams:
        """What is registered with PyTorch's dispatcher."""
        return Seams(self.connection, self)

    # Annotations

    def dotted(self, file: Source, scope: str, text: str) -> Value:
        """What a dotted expression means in a scope."""
        head, *rest = text.split(".")
        value = self.name_in(file, scope, head)
        for name in rest:
            if value is None:
                break
            value = self.attribute(value, name)
        return value or unknown(f"nothing in the sources binds it: {head}")

    def annotation(self, file: Source, scope: str, text: str, owner: Value | None = None) -> Value:
        """An object of the type that an annotation names."""
        text = text.strip()
        if text[:1] in "\"'" and text[-1:] == text[:1] and text[:1] not in text[1:-1]:
            text = text[1:-1].strip()
        parts = top_level(text, "|")
        if len(parts) > 1:
            return either((self.annotation(file, scope, one, owner) for one in parts), SEVERAL)
        head = NAME.match(text)
        if not head:
            return unknown("its annotation names no class")
        name, inner = head[0].rpartition(".")[2], text[head.end() :].strip()[1:-1]
        if name == "None":
            return NONE
        if name == "Self":
            return owner or unknown("Self outside a class")
        if inner and name in WRAPPERS:
            return self.annotation(file, scope, (top_level(inner, ",") or [""])[0], owner)
        if inner and name == "Union":
            return either((self.annotation(file, scope, one, owner) for one in top_level(inner, ",")), SEVERAL)
        if inner and name == "Callable":
            return Value("callable", items=(self.annotation(file, scope, top_level(inner, ",")[-1], owner),))
        if inner and name in ("type", "Type"):
            made_of = self.annotation(file, scope, inner, owner)
            plain = made_of.kind == "instance"
            of_class = replace(made_of, kind="entry").unsure("the class of its annotation, or one below it")
            return of_class if plain else unknown("a class that is not plain")
        found = self.dotted(file, scope, head[0])
        value = self.instance(found)
        if inner and found.kind == "external" and (name in GENERIC or name in AWAITED):
            items = (self.annotation(file, scope, one, owner) for one in top_level(inner, ",") if one != "...")
            return made(f"builtins.{BUILT_IN[name]}" if name in BUILT_IN else found.name, *items)
        return value

    def instance(self, value: Value) -> Value:
        """An object of a class."""
        if value.kind == "entry" and value.entry is not None and value.file is not None:
            if value.entry.kind == "class":
                return replace(value, kind="instance")
            return self.aliased(value.file, value.entry)
        if value.kind == "external":
            if value.name == "builtins.None":
                return NONE
            if value.name.startswith(("typing.", "typing_extensions.")):
                last = value.last
                if last in BUILT_IN:
                    return made(f"builtins.{BUILT_IN[last]}")
                return made(value.name) if last in GENERIC else unknown(f"its annotation is not a class: {value.name}")
            return replace(value, kind="external instance")
        return value if value.kind == "unknown" else unknown("its annotation is not a class")

    def aliased(self, file: Source, entry: Entry) -> Value:
        """An object of what a name for a type stands for."""
        text = ASSIGNED.fullmatch(entry.signature.removeprefix("type "))
        if entry.kind not in ("variable", "constant", "alias", "attribute") or not text or "…" in entry.signature:
            return unknown(f"its annotation is not a class: {entry.name}")
        mark = ("alias", file.number, entry.ordinal)
        if mark in self.active or not re.match(r"[\w.\"']+\s*($|[\[|])", text[1]):
            return unknown(f"its annotation is not a class: {entry.name}")
        self.active.add(mark)
        try:
            found = self.annotation(file, entry.qualname.rpartition(".")[0], text[1])
        finally:
            self.active.discard(mark)
        return found if found.kind == "unknown" else found.unsure("by an alias of the type")

    # What definitions hold

    def meaning(self, value: Value) -> Value:
        """The object that a definition holds: itself if class or function, else what its hint says."""
        entry, file = value.entry, value.file
        if value.kind != "entry" or entry is None or file is None or entry.kind in CALLED:
            return value
        key = (file.number, entry.ordinal)
        if key in self.meanings:
            return self.meanings[key]
        mark = ("meaning", *key)
        if mark in self.active or len(self.active) > 200:
            return unknown("it is defined by itself")
        self.active.add(mark)
        try:
            found = self.meanings[key] = self.hinted(file, entry)
        finally:
            self.active.discard(mark)
        return found

    def hinted(self, file: Source, entry: Entry) -> Value:
        """What the hint of a variable or attribute says; else what is assigned to it, by the text."""
        scope, found = self.scope_of(file, entry), unknown(f"the class of what it holds is not plain: {entry.name}")
        if entry.hint.startswith(": "):
            found = self.annotation(file, scope, entry.hint[2:], self.owner(file, entry.qualname.rpartition(".")[0]))
        elif entry.hint.startswith("@"):
            found = self.held(file, entry, scope)
        elif entry.hint.startswith("= ") and entry.hint != "= None":
            text = entry.hint[2:]
            if text.split(".")[0].removesuffix("()") == entry.name:
                scope = ""
            value = self.dotted(file, scope, text.removesuffix("()"))
            found = (self.call(value) if text.endswith("()") else self.meaning(value)).unsure("by its assignment")
        if found.kind not in ("unknown", "none") or self.bodies is None or entry.hint.startswith(": Any"):
            return found
        better = self.bodies.assigned(file, entry)
        return better if better.kind != "unknown" else found

    def scope_of(self, file: Source, entry: Entry) -> str:
        """The qualname of the scope in which an attribute's or variable's assignment stands."""
        owner = entry.qualname.rpartition(".")[0]
        if entry.kind != "attribute" or entry.column == 0:
            return owner
        for name, entries in file.methods(owner):
            if any(one.line <= entry.line <= one.end_line for one in entries):
                return name
        return owner

    def held(self, file: Source, entry: Entry, scope: str) -> Value:
        """What an attribute holds that was taken from an annotated parameter or from ``self``."""
        annotation, _, rest = entry.hint[1:].partition("\t")
        value = self.annotation(file, scope, annotation, self.owner(file, entry.qualname.rpartition(".")[0]))
        for name in rest.removesuffix("()").split("."):
            value = self.attribute(value, name)
        value = self.call(value) if rest.endswith("()") else self.result(value)
        return value.unsure("by its assignment")

    def owner(self, file: Source, qualname: str) -> Value | None:
        """An object of the class of that qualname."""
        entries = file.entries.get(qualname)
        return Value("instance", file, entries[0]) if entries and entries[0].kind == "class" else None

    def below(self, value: Value, base: Value) -> bool:
        """Whether an object's class is another object's class or inherits from it."""
        if value.kind != "instance" or value.file is None or value.entry is None:
            return False
        return any(entry is base.entry for _, entry in self.order(value.file, value.entry)[0])

    # What operations give

    def call(self, value: Value) -> Value:
        """What calling a value gives."""
        value = self.meaning(value)
        entry, file = value.entry, value.file
        if value.kind == "union":
            return either(map(self.call, value.items), FIRST)
        if value.kind == "callable":
            return out_of(value, value.items[0])
        if value.kind == "entry" and entry is not None and file is not None:
            if entry.kind == "class":
                return Value("instance", file, entry, sure=value.sure, why=value.why)
            return self.returned(file, entry, value.owner) if entry.kind != "module" else unknown("a module is called")
        if value.kind == "instance" and entry is not None and file is not None:
            return self.called_object(value)
        if value.kind == "external":
            last = value.last
            if value.name in RESULTS:
                return RESULTS[value.name] if value.sure else RESULTS[value.name].unsure(value.why)
            if last[:1].isupper() or last in MAKERS:
                return replace(value, kind="external instance").unsure("made by a call outside the pins")
            return unknown(f"the result of a call outside the pins: {value.name}")
        return value if value.kind == "unknown" else unknown(CALLED_OBJECT)

    def called_object(self, value: Value) -> Value:
        """What calling an object gives: what its ``__call__`` does."""
        assert value.file is not None
        assert value.entry is not None
        mark = ("call", value.file.number, value.entry.ordinal)
        method = self.class_member(value.file, value.entry, "__call__")
        if method.kind != "entry" or mark in self.active:
            return unknown(CALLED_OBJECT)
        self.active.add(mark)
        try:
            return self.call(replace(method, owner=value))
        finally:
            self.active.discard(mark)

    def returned(self, file: Source, entry: Entry, owner: Value | None) -> Value:
        """What a function of the pins returns: by its annotation, else by what its body returns."""
        scope = entry.qualname.rpartition(".")[0]
        if entry.hint:
            receiver = owner if owner is not None and owner.kind == "instance" else self.owner(file, scope)
            if owner is not None and is_class(owner):
                receiver = replace(owner, kind="instance")
            found = self.annotation(file, scope, entry.hint, receiver).unsure("by the annotation of what is called")
        elif self.bodies is not None:
            found = self.bodies.returned(file, entry)
            found = found if found.kind in ("unknown", "none") else found.unsure("by what the called function returns")
        else:
            found = unknown(f"what it returns is not annotated: {entry.name}")
        if "contextmanager" in entry.decorators:
            return made("contextlib.AbstractContextManager", self.iterated(found))
        return found

    def iterated(self, value: Value) -> Value:
        """What iterating over a value gives."""
        if value.kind == "union":
            return either(map(self.iterated, value.items), FIRST)
        if value.kind != "instance":
            return inside(value) if value.kind != "unknown" else value
        for name in ("__iter__", "__aiter__", "__getitem__"):
            method = self.attribute(value, name)
            if method.kind != "entry":
                continue
            found = self.call(method)
            if name == "__getitem__":
                return found
            if found.kind == "instance":
                following = self.attribute(found, "__next__" if name == "__iter__" else "__anext__")
                return self.call(following) if following.kind == "entry" else unknown("an iterator that is not plain")
            return inside(found)
        return unknown("an item of a container")

    def entered(self, value: Value) -> Value:
        """What ``with`` binds."""
        if value.kind == "union":
            return either(map(self.entered, value.items), FIRST)
        if value.kind == "external instance" and value.items and "ContextManager" in value.name:
            return out_of(value, value.items[0])
        if value.kind == "external instance" and value.name.startswith("io."):
            return value
        for name in ("__enter__", "__aenter__") if value.kind == "instance" else ():
            method = self.attribute(value, name)
            if method.kind == "entry":
                return self.call(method)
        return value if value.kind == "unknown" else unknown("what a context manager outside the pins gives")

    def subscribed(self, value: Value, sliced: bool = False) -> Value:
        """What a subscript of a value gives; of overloads, the one that takes a slice or the one that does not."""
        if value.kind == "union":
            return either((self.subscribed(one, sliced) for one in value.items), FIRST)
        if value.kind == "instance":
            method = self.attribute(value, "__getitem__")
            if method.kind != "entry" or method.file is None or method.entry is None:
                return unknown("an item of a container")
            entries = method.file.entries[method.entry.qualname]
            overloads = [entry for entry in entries if "overload" in entry.decorators]
            fitting = [entry for entry in overloads if ("slice" in entry.signature) is sliced]
            return self.call(replace(method, entry=fitting[0]) if fitting else method)
        return inside(value) if value.kind != "unknown" else value

    def unpacked(self, value: Value, index: int, count: int) -> Value:
        """What the target at ``index`` of ``count`` gets when a value is unpacked."""
        if value.kind == "union":
            return either((self.unpacked(one, index, count) for one in value.items), FIRST)
        if value.kind == "instance":
            return self.iterated(value)
        return part(value, index, count) if value.kind != "unknown" else value

    # Members

    def member(self, module: Value, name: str, asking: Source | None = None) -> Value | None:
        """What ``name`` is in a module; of a lazy package that no import tells, by its table."""
        found = super().member(module, name, asking)
        if found is not None or self.bodies is None:
            return found
        for file in self.files_of(module.pin, module.name):
            if LAZY in file.entries and (inner := self.bodies.table(file).get(name)):
                found = self.member(replace(module, name=f"{module.name}.{inner}"), name)
                return found and found.unsure("by the table of a lazy package")
        return None

    def attribute(self, value: Value, name: str) -> Value:
        """What ``value.name`` is; an unknown one says why."""
        if (operator := member(self, value, name)) is not None:
            return operator
        if value.kind == "module":
            return self.member(value, name) or unknown(
                f"the sources show no such name in the module: {value.name}.{name}"
            )
        if value.kind in ("external", "external instance"):
            if value.name.startswith("builtins.") and not has(value.last, name):
                return unknown(f"the class of the language has no such member: {value.last}.{name}")
            sure = value.sure and value.kind == "external"
            why = value.why if sure else value.why or "a member of what an external call or a literal makes"
            return Value("external", name=f"{value.name}.{name}", sure=sure, why=why)
        if value.kind == "union":
            return self.of_either(value, name)
        if value.kind == "entry" and value.entry is not None and value.entry.kind not in ("class", "module"):
            value = self.result(value)
            return (
                self.attribute(value, name)
                if value.kind != "entry" or is_class(value)
                else unknown("an attribute of a function")
            )
        if value.entry is None or value.file is None:
            return value if value.kind == "unknown" else unknown("the class of the object is not plain")
        found = self.class_member(value.file, value.entry, name, value.kind == "super", value.kind == "entry")
        if found.kind == "entry" and found.entry is not None and found.entry.kind == "method":
            kind = "instance" if value.kind == "super" else value.kind
            found = replace(found, owner=Value(kind, value.file, value.entry))
        return found if value.sure or found.kind == "unknown" else found.unsure(value.why)

    def of_either(self, value: Value, name: str) -> Value:
        """A member of one of several classes: of the first that has it in the pins, else of the first outside."""
        found = [self.attribute(one, name) for one in value.items]
        inside_pins = [one for one in found if one.kind == "entry"]
        outside = [one for one in found if one.kind == "external"]
        chosen = inside_pins or outside
        if not chosen:
            return unknown(value.why)
        same = len({place(one) for one in chosen}) == 1
        why = "a member of the one of several classes that has it" if same else FIRST
        return chosen[0].unsure(why)

    def result(self, value: Value) -> Value:
        """The object that reading a definition gives: what a property returns, what a variable holds."""
        entry = value.entry
        if entry is not None and entry.kind == "method" and PROPERTY.search(entry.decorators):
            return self.call(value)
        return self.meaning(value)

    def keyword(self, callee: Value, name: str) -> Value:
        """What a keyword argument of a call names: a parameter of what is called, or a field of the class."""
        callee = self.meaning(callee)
        entry, file = callee.entry, callee.file
        if callee.kind == "unknown":
            return unknown("a keyword of an unresolved call")
        if callee.kind == "union":
            taken = [self.keyword(one, name) for one in callee.items]
            return next((one.unsure(FIRST) for one in taken if one.entry is not None), taken[0])
        if callee.kind == "entry" and entry is not None and file is not None and entry.kind == "class":
            return self.constructed(callee, name)
        if callee.kind == "instance" and entry is not None and file is not None:
            callee = self.class_member(file, entry, "__call__")
            if callee.entry is None or callee.entry.kind != "method":
                return Value("parameter")
            return self.keyword(callee, name)
        if entry is None or file is None or not may_take(entry.signature, name):
            return Value("parameter")
        return Value("parameter", file, entry, name, sure=callee.sure, why=callee.why)

    def constructed(self, callee: Value, name: str) -> Value:
        """What a keyword names where an object is made: a parameter of what makes it, or a field."""
        assert callee.file is not None
        assert callee.entry is not None
        order, _ = self.order(callee.file, callee.entry)
        for file, entry in order:
            for method in ("__init__", "__new__"):
                if entries := file.entries.get(f"{entry.qualname}.{method}"):
                    return self.keyword(self.pick(file, entries), name)
            if entries := file.entries.get(f"{entry.qualname}.{name}"):
                found = self.pick(file, entries)
                return found if found.entry is not None and found.entry.kind == "attribute" else Value("parameter")
        return Value("parameter")

    def class_member(
        self, file: Source, entry: Entry, name: str, beyond: bool = False, on_class: bool = False
    ) -> Value:
        """A member of a class, by its order of resolution; ``beyond`` starts after the class itself."""
        order, strangers = self.order(file, entry)
        for place_, owner in order[1:] if beyond else order:
            if entries := place_.entries.get(f"{owner.qualname}.{name}"):
                return self.pick(place_, entries)
        if strangers:
            return unknown(f"the class defines no such member, a base outside the pins may: {entry.name}.{name}")
        if name in OBJECT or (on_class and name in CLASS_ATTRIBUTES):
            return Value("external", name=f"builtins.object.{name}" if name in OBJECT else f"builtins.type.{name}")
        return unknown(f"neither the class nor its bases define such a member: {entry.name}.{name}")

    def order(self, file: Source, entry: Entry) -> tuple[list[tuple[Source, Entry]], list[str]]:
        """A class with its bases in order of resolution, and the bases that the pins do not hold."""
        key = (file.number, entry.ordinal)
        if key in self.linear:
            return self.linear[key]
        if ("order", *key) in self.active:
            return [(file, entry)], ["a class that inherits itself"]
        self.active.add(("order", *key))
        try:
            sequences, strangers, parents = [], [], []
            for base in self.bases(file, entry):
                if (
                    base.kind == "entry"
                    and base.entry is not None
                    and base.file is not None
                    and base.entry.kind == "class"
                ):
                    parents.append((base.file, base.entry))
                    above, more = self.order(base.file, base.entry)
                    sequences.append(list(above))
                    strangers += more
                elif base.name not in ("builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"):
                    strangers.append(base.name or base.why or "that is not plain")
            merged = merge([*sequences, parents]) if parents else []
        finally:
            self.active.discard(("order", *key))
        self.linear[key] = ([(file, entry), *merged][:MAX_CLASSES], strangers)
        return self.linear[key]

    def bases(self, file: Source, entry: Entry) -> Iterator[Value]:
        """What the bases of a class stand for; keywords and type arguments are left out."""
        scope = entry.qualname.rpartition(".")[0]
        for text in top_level(entry.hint, ","):
            if re.match(r"\w+\s*=(?!=)", text) or not text:
                continue
            head = NAME.match(text)
            if head is None:
                yield unknown("that is not plain")
            elif text[head.end() :].lstrip()[:1] not in ("", "["):
                yield unknown("that is computed")
            else:
                found = self.dotted(file, scope, head[0])
                yield self.meaning(found) if found.kind == "entry" else found


def has(built_in: str, name: str) -> bool:
    """Whether a class or function of the language has a member; one that is not known may."""
    return hasattr(getattr(builtins, built_in, None), name) or not hasattr(builtins, built_in)


def may_take(signature: str, name: str) -> bool:
    """Whether a function may have a parameter of a name; the store may have the beginning of the signature only."""
    return signature.count("(") > signature.count(")") or re.search(rf"[(,*]\s*{name}\s*[:=,)]", signature) is not None


def merge(sequences: list[list[tuple[Source, Entry]]]) -> list[tuple[Source, Entry]]:
    """Python's C3 merge; a class whose order is inconsistent keeps the order of mention."""
    result: list[tuple[Source, Entry]] = []
    sequences = [list(sequence) for sequence in sequences if sequence]
    while sequences:
        tails = {id(entry) for sequence in sequences for _, entry in sequence[1:]}
        head = next((sequence[0] for sequence in sequences if id(sequence[0][1]) not in tails), sequences[0][0])
        result.append(head)
        sequences = [rest for sequence in sequences if (rest := [item for item in sequence if item[1] is not head[1]])]
    return result
