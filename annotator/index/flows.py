"""The files that have been looked into, and what they share: members of objects, results, wrappers, overrides.

``objects`` says what an expression of one file may stand for; here is what such an object leads to, in all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from annotator.errors import IndexFileError
from annotator.index.circles import Circles
from annotator.index.hierarchy import Hierarchy
from annotator.index.names import Entry, Source
from annotator.index.objects import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_FILES,
    OWN,
    RAW,
    Flow,
    distinct,
    flatten,
    is_below,
    is_callable,
    is_given,
    is_module,
    overloads,
)
from annotator.index.resolution import NAME
from annotator.index.seams import shared
from annotator.index.values import KEYED, Value, is_class, place

if TYPE_CHECKING:
    from annotator.index.resolver import Resolver

MAX_NAMING = 200
"""So many files have a name that what it is handed tells nothing; none of them is asked."""

ASIDE = re.compile(r"(^|/)(tests?|testing|benchmarks|examples)/")
"""Files that say little of what the library hands over."""

PER_FILE = 100
"""What looking into another file costs, measured in answers."""

VARIABLES = ("variable", "constant", "attribute", "alias")

MANY = 64
"""So many overrides that an object of a base class tells nothing; only calls on ``self`` lead to them all."""

OPEN = re.compile(r": (?:typing\.)?Any\b")
"""The annotation of an attribute that may hold anything."""

FEW = 5
"""How many classes of a family may have a method of a name that alone tells which is meant."""

COMMON = frozenset(name for kind in (str, bytes, list, dict, set, tuple, int, float) for name in dir(kind))
"""Names of methods of the language's own classes, which tell nothing."""

BY_PLATFORM = tuple(f"forward_{name}" for name in ("native", "cuda", "hip", "xpu", "cpu", "tpu", "oot"))

HOOKS = ("__getattr__", "__setattr__", "__getattribute__")
"""Methods that stand behind every access; only the nearest is followed."""

PROPERTY = re.compile(r"(^|\n|\.|_)property\b")


class Flows:
    """The files of an index that have been looked into, and what they share."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver, self.program = resolver, resolver.program
        self.hierarchy = Hierarchy(self.program)
        self.files: dict[int, Flow | None] = {}
        self.circles = Circles()
        self.depth = 0
        self.put: dict[tuple[str, str], list[Value]] = {}
        self.methods: dict[str, list[Value]] = {}
        self.named_in: dict[tuple[str, int], list[int]] = {}
        self.wrapped: dict[tuple[int, int, str], list[Value]] = {}
        self.overriding: dict[tuple[int, int, str], list[Value]] = {}

    def of(self, file: Source) -> Flow | None:
        """One Python file; ``None`` where it cannot be read, or too much was looked into."""
        if file.number not in self.files:
            if self.circles.tired:
                self.circles.give_up()
                return None
            self.files[file.number] = None
            try:
                data = self.resolver.read(file.pin, file.path)
            except IndexFileError:
                return None
            self.files[file.number] = Flow(self, file, data)
            self.circles.effort += PER_FILE
        return self.files[file.number]

    def naming(self, name: str, near: Source) -> list[Flow]:
        """Other files of the same pin in which something of a name is called: the nearest, if these are many."""
        key = (name, near.number)
        if key not in self.named_in:
            rows = [(number, *row) for number in sorted(self.resolver.posted(name)) if (row := self.python(number))]
            rows = [row for row in rows if row[1] == near.pin and row[0] != near.number and not ASIDE.search(row[2])]
            rows = [row for row in rows if self.calls(row[1], row[2], name)] if len(rows) <= MAX_NAMING else []
            rows.sort(key=lambda row: (-shared(row[2], near.path), row[2]))
            self.named_in[key] = [number for number, _, _ in rows[:MAX_FILES]]
        return [flow for number in self.named_in[key] if (flow := self.of(self.program.source(number)))]

    def of_name(self, name: str, near: Source) -> list[Value]:
        """The methods of a name, if one family of classes has it, in the pin of a file and in those it imports."""
        if name in COMMON or name.startswith("__"):
            return []
        if name not in self.methods:
            query = "SELECT d.file, d.ordinal FROM definitions d JOIN files f ON f.id = d.file "
            query += "WHERE d.name = ? AND d.kind = 'method' AND f.language = 'python' AND f.path NOT LIKE '%.pyi'"
            rows = self.program.connection.execute(query, (name,)).fetchall()
            found = [item for row in rows if (item := self.hierarchy.entry(*row))] if len(rows) < MANY else []
            self.methods[name] = [Value("entry", *item) for item in found if not ASIDE.search(item[0].path)]
        query = "SELECT DISTINCT module FROM imports WHERE file = ?"
        modules = [module for (module,) in self.program.connection.execute(query, (near.number,))]
        pins = {pin for module in modules for pin in self.program.tops.get(module.partition(".")[0], ())} | {near.pin}
        here = [one for one in self.methods[name] if one.file is not None and one.file.pin in pins]
        one_family = 0 < len(here) <= FEW and all(place(each) in self.family(here[0], name) for each in here)
        return [one.unsure("by the name, which no other class has") for one in here] if one_family else []

    def family(self, method: Value, name: str) -> set[tuple[object, ...]]:
        """The places of the methods of a name above and below one of them."""
        assert method.file is not None
        assert method.entry is not None
        owner = self.program.owner(method.file, method.entry.qualname.rpartition(".")[0])
        if owner is None or owner.file is None or owner.entry is None:
            return {place(method)}
        order = self.program.order(owner.file, owner.entry)[0]
        found = [self.program.class_member(*one, name) for one in order]
        root = next((one for one in reversed(list(zip(order, found, strict=True))) if one[1].kind == "entry"), None)
        below = self.overrides(*root[0], name) if root else []
        return {place(one) for one in (method, *found, *below)}

    def python(self, number: int) -> tuple[str, str] | None:
        """Pin and path of a Python file."""
        query = "SELECT pin, path FROM files WHERE id=? AND language='python'"
        row: tuple[str, str] | None = self.program.connection.execute(query, (number,)).fetchone()
        return row

    def calls(self, pin: str, path: str, name: str) -> bool:
        """Whether the text of a file has a name before a parenthesis."""
        try:
            return f"{name}(".encode() in self.resolver.read(pin, path)
        except IndexFileError:
            return False

    # Members and results of values

    def member(self, base: Value, name: str) -> list[Value]:
        """What ``base.name`` may be: found by the order of resolution, or overridden in a class that derives."""
        if base.kind in ("literal", "callable", "lambda", "generator", "unknown", "none", "parameter"):
            return []
        if name == "__class__" and base.kind == "instance":
            own = replace(base, kind="entry", name="")
            return [own] if base.name == "made" else [own, *self.deriving(own)]
        if name == "_forward_cls" and is_below(self, base, "torch.autograd.function", "BackwardCFunction"):
            functions = [replace(one, kind="entry") for one in self.named("torch", "torch.autograd.function.Function")]
            return [each for one in functions for each in (one, *self.deriving(one))]
        found = self.program.attribute(base, name)
        if base.kind == "entry" and is_class(base) and found.kind != "entry" and base.file and base.entry:
            found = self.of_metaclass(base.file, base.entry, name) or found
        values = [found] if found.kind != "unknown" else []
        if base.kind == "instance" and base.name != "made" and base.file and base.entry and name not in HOOKS:
            over = self.overrides(base.file, base.entry, name)
            values += over if len(over) <= MANY or base.name == OWN else []
        return distinct(values)

    def of_metaclass(self, file: Source, entry: Entry, name: str) -> Value | None:
        """A member of the metaclass of a class, if the pins define it."""
        for source, item in self.program.order(file, entry)[0]:
            if "metaclass=" in item.hint:
                text = item.hint.partition("metaclass=")[2].partition(",")[0].partition("(")[0].strip()
                meta = self.program.dotted(source, "", text)
                if meta.kind == "entry" and meta.file and meta.entry and meta.entry.kind == "class":
                    found = self.program.class_member(meta.file, meta.entry, name)
                    return found if found.kind == "entry" else None
                return None
        return None

    def gotten(self, base: Value) -> Iterator[Value]:
        """What ``__getattr__`` gives for a member that an object has not."""
        if base.kind == "instance":
            for getter in self.member(base, "__getattr__"):
                yield from (one.unsure("by __getattr__") for one in self.results(getter))

    def deriving(self, value: Value) -> Iterator[Value]:
        """Classes that derive from a class."""
        if value.file is not None and value.entry is not None:
            for source, child in self.hierarchy.subclasses(value.file, value.entry):
                yield Value("entry", source, child, sure=False, why="a class that derives")

    def overrides(self, file: Source, entry: Entry, name: str) -> list[Value]:
        """The same member in classes that derive from a class."""
        key = (file.number, entry.ordinal, name)
        if key not in self.overriding:
            self.overriding[key] = [
                Value("entry", source, item, sure=False, why="an override")
                for source, child in self.hierarchy.subclasses(file, entry)
                for item in source.entries.get(f"{child.qualname}.{name}", ())[:1]
            ]
        return self.overriding[key]

    def read(self, value: Value) -> list[Value]:
        """The objects that reading a name or member gives: what a property returns, what a variable holds."""
        entry = value.entry
        if value.kind != "entry" or entry is None or value.file is None:
            return [value]
        if entry.kind == "method" and PROPERTY.search(entry.decorators):
            return self.results(value)
        if entry.kind not in VARIABLES:
            return [value]
        known = [one for one in flatten(self.program.meaning(value)) if place(one) != place(value)]
        solid = [one for one in known if one.kind in ("entry", "instance", "module")]
        if not solid and (flow := self.of(value.file)):
            solid = flow.assigned(entry)
        solid += [each for one in solid if is_class(one) and not one.sure for each in self.deriving(one)]
        if entry.kind == "attribute" and OPEN.match(entry.hint):
            solid += self.put_there(entry.name, value.file)
        return [one if value.sure else one.unsure(value.why) for one in solid or known]

    def put_there(self, name: str, near: Source) -> list[Value]:
        """What other code of the pin assigns to an attribute of that name, of objects that it knows nothing of."""
        key = (name, near.pin)
        if key not in self.put:
            self.put[key] = []
            written = re.compile(rb"(?<![\w.])(?!self\.|cls\.)\w+\.%s\s*=(?!=)" % re.escape(name.encode()))
            rows = [row for number in sorted(self.resolver.posted(name)) if (row := self.python(number))]
            paths = [path for pin, path in rows if pin == near.pin and not ASIDE.search(path)]
            paths = [path for path in paths if written.search(self.resolver.read(near.pin, path))]
            for path in paths if len(paths) <= FEW else ():
                flow = self.of(self.program.source(self.resolver.file(near.pin, path)[0]))
                self.put[key] += flow.assigned_to_strangers(name) if flow else []
        return self.put[key]

    def results(self, value: Value) -> list[Value]:
        """What calling a value gives."""
        if self.depth > MAX_DEPTH:
            self.circles.cut()
            return []
        self.depth += 1
        try:
            return distinct(self.returned(value))
        finally:
            self.depth -= 1

    def returned(self, value: Value) -> Iterable[Value]:
        """``results``, without the bound on depth."""
        entry, file = value.entry, value.file
        if value.kind == "lambda" and file and (flow := self.of(file)):
            body = flow.flat.children[int(value.name)].get("body")
            return flow.objects(body) if body is not None else []
        if value.kind == "external":
            found = self.program.call(value)
            return [found] if found.kind != "unknown" else []
        if value.kind == "instance":
            return [each for method in self.called(value) for each in self.results(method)]
        if value.kind != "entry" or entry is None or file is None:
            return []
        if entry.kind == "class":
            return [replace(value, kind="instance", name="made")]
        if entry.kind not in FUNCTIONS:
            return []
        told = [self.program.returned(file, one, value.owner) for one in overloads(file, entry)]
        known = [one for each in told for one in flatten(each) if not is_callable(one)]
        known += [each for one in known if is_class(one) and entry.hint for each in self.deriving(one)]
        if (not known or not entry.hint) and (flow := self.of(file)):
            known = flow.returns(entry) or known
        return [each.unsure(f"by what {entry.name} returns") for each in known]

    def called(self, value: Value) -> list[Value]:
        """The methods that calling an object enters."""
        methods = []
        for found in self.member(value, "__call__"):
            methods += self.read(found) if found.entry and found.entry.kind in VARIABLES else [found]
        if is_module(self, value):
            methods += [found.unsure("by Module.__call__") for found in self.member(value, "forward")]
            methods += self.dispatched(value, methods)
        return distinct(method for method in methods if method.kind in ("entry", "lambda"))

    def dispatched(self, value: Value, methods: list[Value]) -> Iterator[Value]:
        """What vLLM's ``CustomOp.forward`` chooses from for its platform: the methods ``forward_…`` of the class."""
        if not any(one.entry is not None and one.entry.qualname == "CustomOp.forward" for one in methods):
            return
        for name in BY_PLATFORM:
            for found in self.member(replace(value, name="made"), name):
                if found.entry is not None and not found.entry.qualname.startswith("CustomOp."):
                    yield found.unsure("by CustomOp.dispatch_forward, for the platform")

    def named(self, pin: str, dotted: str) -> list[Value]:
        """An object of the class of that name."""
        module, _, name = dotted.rpartition(".")
        found = self.program.member(Value("module", name=module, pin=pin), name)
        return flatten(self.program.instance(found)) if found is not None else []

    def annotated(self, file: Source, scope: str, text: str) -> list[Value]:
        """Objects of the type that an annotation names: each part of a union, a class, or a container."""
        found = flatten(self.program.annotation(file, scope, text, self.program.owner(file, scope)))
        return [*found, *(each for one in found if is_class(one) for each in self.deriving(one))]

    def elements(self, value: Value, part: int | None = None) -> list[Value]:
        """What a container holds; ``part`` asks for one place of a tuple."""
        file = value.file
        if value.kind == "literal" and file and (flow := self.of(file)):
            return flow.displayed(int(value.name), part)
        if value.kind == "generator" and file and value.entry and (flow := self.of(file)):
            return flow.yields(value.entry)
        if value.kind == "external instance" and value.items:
            if value.last in KEYED:
                return flatten(value.items[-1])
            if value.last in ("tuple", "Tuple") and part is not None and part < len(value.items):
                return flatten(value.items[part])
            return [each for item in value.items for each in flatten(item)]
        if value.kind == "instance":
            for name in ("__getitem__", "__iter__"):
                found = [v for m in self.member(value, name) for v in self.results(m)]
                if found:
                    return found if name == "__getitem__" else [e for v in found for e in self.elements(v)]
        return []

    # What stands above a function

    def decorations(self, file: Source, entry: Entry) -> list[tuple[str, list[Value]]]:
        """The decorators of a function that the pins define, the outermost first, with what each makes of it."""
        found = []
        for mark in entry.decorators.split("\n") if entry.decorators else ():
            head = NAME.match(mark)
            if head is None or head[0] in ("property", "staticmethod", "classmethod", "dataclass"):
                continue
            scope = entry.qualname.rpartition(".")[0]
            makers = self.read(self.program.dotted(file, scope, head[0]))
            makers = [one for one in makers if one.kind in ("entry", "instance") and one.entry is not None]
            if mark[head.end() :].lstrip().startswith("("):
                makers = [each for maker in makers for each in self.results(maker)]
            made = [each for maker in makers for each in self.results(maker)]
            found.append((head[0], [e for e in made if e.kind in ("entry", "instance", "lambda")]))
        return found

    def wrappers(self, value: Value) -> list[Value]:
        """What calling a decorated function enters before it."""
        file, entry = value.file, value.entry
        if file is None or entry is None or entry.kind not in FUNCTIONS or not entry.decorators or value.name == RAW:
            return []
        key = (file.number, entry.ordinal, entry.decorators)
        return self.circles.answer(self.wrapped, key, lambda: self.wrapping(file, entry))

    def wrapping(self, file: Source, entry: Entry) -> list[Value]:
        """``wrappers``, computed."""
        made = [(name, one) for name, many in self.decorations(file, entry) for one in many if not is_given(one)]
        return distinct(
            replace(one, sure=False, why=f"the wrapper that {name} makes")
            for name, each in made
            for one in (self.called(each) if each.kind == "instance" else [each])
            if one.entry is not None and place(one)[1:3] != (file.number, entry.ordinal)
        )

    def decorated_with(self, file: Source, entry: Entry) -> Iterator[Value]:
        """Functions that are handed to a function (or method ``__call__``, or inner function) by decoration."""
        wanted = place(Value("entry", file, entry))
        names = [entry.name]
        owner = None
        if entry.name == "__call__" and (owner := self.program.owner(file, entry.qualname.rpartition(".")[0])):
            assert owner.entry is not None
            names = [owner.entry.name]
            names += [child.name for _, child in self.hierarchy.subclasses(file, owner.entry)]
        elif "." in entry.qualname:
            names = [*entry.qualname.split(".")[-2:-1], *names]
            if names[0] == "__call__" or names[0] == "__init__":
                names = [entry.qualname.split(".")[-3], *names[1:]] if entry.qualname.count(".") > 1 else names
        elif (around := self.program.owner(file, entry.qualname)) and around.entry is not None:
            names = [around.entry.name]
        flow = self.of(file)
        names += flow.calling(names[0]) if flow else []
        for name in dict.fromkeys(names):
            for source, item, mark in self.hierarchy.decorated(name):
                if any(place(each) == wanted for each in self.appliers(source, item, mark)):
                    yield Value("entry", source, item, RAW, sure=False, why=f"decorated with {name}")
                    if item.decorators.count("\n"):
                        below = item.decorators.split("\n")
                        inner = "\n".join(below[below.index(mark) + 1 :])
                        yield from self.wrappers(Value("entry", source, item._replace(decorators=inner)))

    def appliers(self, file: Source, entry: Entry, mark: str) -> list[Value]:
        """The functions that one decorator hands its definition to."""
        head = NAME.match(mark)
        if head is None:
            return []
        makers = self.read(self.program.dotted(file, entry.qualname.rpartition(".")[0], head[0]))
        if mark[head.end() :].lstrip().startswith("("):
            makers = [each for maker in makers for each in self.results(maker)]
        return [m for maker in makers for m in (self.called(maker) if maker.kind == "instance" else [maker])]
