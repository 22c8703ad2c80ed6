"""What each identifier of one Python file leads to.

The tree is flattened once into arrays, because walking nodes twice costs more than anything else here. Values of
expressions are computed (by ``evaluating``) when an attribute needs them, and kept. Strings count where they name
something: in a quoted annotation, and in ``getattr`` with a literal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from annotator.index.evaluating import LOCAL, Evaluator
from annotator.index.flow import OPENING, Scope, reaching
from annotator.index.model import PARAMETER, Raw
from annotator.index.values import Value, place, unknown

NAMES = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
QUOTED = re.compile(r"[\w.]+(?:\s*[\[\],|]\s*[\w.]*)*")
GETTERS = frozenset(("getattr", "hasattr", "setattr", "delattr"))
NO_TYPES = ("Literal", "Annotated")
WRITTEN = "named by a string literal"


class Linker(Evaluator):
    """Links one file. ``links()`` gives a ``Raw`` for each identifier."""

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
            value = self.meant(index, name)
            found.append(raw(value, row + 1, column, name))
        quoted = [one for index in self.flat.strings for one in self.in_string(index, lines)]
        return sorted(found + quoted) if quoted else found

    def meant(self, index: int, name: str) -> Value:
        """What an identifier means where it stands; ``LOCAL`` for a local name."""
        flat, scope = self.flat, self.scopes[index]
        parent = flat.parents[index]
        kind, where = (flat.types[parent], flat.fields[index]) if parent >= 0 else ("", None)
        if kind == "attribute" and where == "attribute":
            return self.program.attribute(self.value(flat.children[parent]["object"]), name)
        if kind == "keyword_argument" and where == "name":
            return self.keyword(parent, name)
        if kind in ("function_definition", "class_definition") and where == "name":
            return self.defined(index, scope, name)
        if kind == "dotted_name":
            above = flat.parents[parent]
            if flat.types[above] == "aliased_import":
                above = flat.parents[above]
            if flat.types[above] in ("import_statement", "import_from_statement", "relative_import"):
                return self.import_part(parent, index, above)
            if flat.kids[parent][0] != index:
                return self.program.attribute(self.dotted_before(parent, index), name)
        if kind == "aliased_import" and where == "alias":
            return self.alias(parent)
        found, binder = self.named(name, scope)
        if binder is not None and name in binder.imported and len(binder.names[name]) > 1:
            return self.by_flow(name, binder, index) or found
        return found

    def by_flow(self, name: str, binder: Scope, index: int) -> Value | None:
        """What a name means that is imported several times, if only one of the imports reaches it."""
        ways = binder.names[name]
        if self.function(self.scopes[index]) is not binder or any(way.at == index for way in ways):
            return None
        reach = sorted(reaching(self.flat, ways, index), key=lambda way: way.at)
        if not reach or any(way.kind != "import" for way in reach):
            return None
        values = [self.program.imported(self.file, *way.origin, name) for way in reach]
        places = {place(value) for value in values}
        return values[0] if len(places) == 1 else values[0].unsure(f"one of {len(places)} imports of the name")

    def keyword(self, parent: int, name: str) -> Value:
        """A keyword argument names a parameter of what is called, or a field of the class."""
        call = self.flat.parents[self.flat.parents[parent]]
        if self.flat.types[call] != "call" or "function" not in self.flat.children[call]:
            return Value("parameter")
        return self.program.keyword(self.value(self.flat.children[call]["function"]), name)

    def defined(self, index: int, scope: Scope, name: str) -> Value:
        """The definition whose own name an identifier is; in a stub, the implementation, if the pin has it."""
        line = self.flat.places[index][0] + 1
        qualname = f"{scope.qualname}.{name}" if scope.qualname else name
        for entry in self.file.entries.get(qualname, ()):
            if entry.line == line:
                return self.implementation(qualname) or Value("entry", self.file, entry)
        return unknown("the index is older than the file")

    def implementation(self, qualname: str) -> Value | None:
        """What the source beside a stub defines under a qualname."""
        if not self.file.path.endswith(".pyi"):
            return None
        beside = [file for file in self.program.files_of(self.file.pin, self.file.module) if file is not self.file]
        found = next((file for file in beside if qualname in file.entries and not file.path.endswith(".pyi")), None)
        return self.program.pick(found, found.entries[qualname]) if found else None

    def dotted_before(self, parent: int, index: int) -> Value:
        """The value of a dotted name (of a pattern, say) up to an identifier."""
        value: Value | None = None
        for kid in self.flat.kids[parent]:
            if kid == index:
                break
            value = self.name(kid) if value is None else self.program.attribute(value, self.text(kid))
        return value or unknown("an unfinished name")

    # Imports

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

    # Strings that name something

    def in_string(self, index: int, lines: list[bytes]) -> Iterator[Raw]:
        """Links for the names in a string: in an annotation, or the attribute that ``getattr`` is given."""
        flat, string = self.flat, self.flat.parents[index]
        above = flat.parents[string]
        if flat.types[above] == "argument_list" and flat.types[flat.parents[above]] == "call":
            value = self.gotten(string, flat.parents[above])
            if value is not None:
                yield self.string_link(value.unsure(WRITTEN), index, 0, self.text(index), lines)
        elif self.is_annotation(string) and QUOTED.fullmatch(text := self.text(index)):
            for match in NAMES.finditer(text):
                yield from self.quoted(match, index, lines)

    def gotten(self, string: int, call: int) -> Value | None:
        """The member that ``getattr`` and its like are asked for by a literal, if it leads anywhere."""
        parts = self.flat.children[call]
        if "function" not in parts or self.text(parts["function"]) not in GETTERS:
            return None
        arguments = self.arguments(parts)
        if arguments[1:2] != [string] or not (name := self.literal(string)):
            return None
        value = self.program.attribute(self.value(arguments[0]), name)
        return value if value.kind in ("entry", "module") else None

    def is_annotation(self, string: int) -> bool:
        """Whether a string stands where a type does, and names one."""
        flat, node = self.flat, string
        while (parent := flat.parents[node]) >= 0 and flat.types[parent] not in OPENING:
            kind, first = flat.types[parent], flat.kids[parent][0]
            if kind in ("generic_type", "subscript") and self.text(first).rpartition(".")[2] in NO_TYPES:
                return False
            if flat.fields[node] in ("type", "return_type"):
                return True
            if kind in ("block", "argument_list", "expression_statement", "parameters"):
                return False
            node = parent
        return flat.fields[node] == "return_type"

    def quoted(self, match: re.Match[str], index: int, lines: list[bytes]) -> Iterator[Raw]:
        """Links for the parts of one dotted name in a quoted annotation."""
        at, value = match.start(), None
        for name in match[0].split("."):
            if value is None:
                value = self.named(name, self.scopes[index])[0]
            else:
                value = self.program.attribute(value, name)
            yield self.string_link(value, index, at, name, lines)
            at += len(name) + 1

    def string_link(self, value: Value, index: int, at: int, name: str, lines: list[bytes]) -> Raw:
        """A link from inside a string, ``at`` characters behind its beginning."""
        point = self.flat.strings[index].start_point
        column = len(lines[point.row][: point.column].decode("utf-8", "replace")) if lines else point.column
        return raw(value, point.row + 1, column + at, name)


def raw(value: Value, line: int, column: int, name: str) -> Raw:
    """The link that a value makes."""
    end, kind = column + len(name), value.kind
    if value is LOCAL:
        return Raw(line, column, end, name, 0, -1, "", "exact", "local")
    certainty, reason = ("exact", "") if value.sure else ("inferred", value.why)
    if kind == "parameter":
        if value.entry is None or value.file is None:
            return Raw(line, column, end, name, 0, -1, "", "exact", "keyword")
        return Raw(line, column, end, name, value.file.number, PARAMETER - value.entry.ordinal, "", certainty, reason)
    if kind in ("entry", "instance") and value.entry is not None and value.file is not None:
        return Raw(line, column, end, name, value.file.number, value.entry.ordinal, "", certainty, reason)
    if kind == "module":
        return Raw(line, column, end, name, 0, -2, f"{value.pin}:{value.name}", certainty, reason)
    if kind in ("external", "external instance"):
        return Raw(line, column, end, name, 0, -1, value.name, certainty, reason)
    return Raw(line, column, end, name, 0, -1, "", "unresolved", value.why)
