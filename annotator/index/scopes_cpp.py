"""What a C++ file itself says about its names: what declares a name where, in which scope, with which type.

Apart from linking because nothing here looks into the store. Bodies of macros are no trees to the grammar; their
identifiers are read as words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from annotator.index.extraction import CPP_KEYWORDS
from annotator.index.languages import grammar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node, Query

WANTED = """
[(identifier) (type_identifier) (field_identifier) (namespace_identifier)] @name
(namespace_definition body: (_)) @space
(class_specifier name: (_) body: (_)) @space
(struct_specifier name: (_) body: (_)) @space
[(function_definition) (lambda_expression) (template_declaration)] @region
(_ declarator: (identifier) @local)
(reference_declarator (identifier) @local)
(variadic_declarator (identifier) @local)
(structured_binding_declarator (identifier) @local)
(type_parameter_declaration (type_identifier) @local)
(optional_type_parameter_declaration name: (type_identifier) @local)
(variadic_type_parameter_declaration (type_identifier) @local)
(alias_declaration name: (type_identifier) @local)
(using_declaration) @using
(namespace_alias_definition) @alias
[(preproc_def) (preproc_function_def)] @macro
"""
QUALIFIER = re.compile(rb"((?:[A-Za-z_]\w*\s*(?:<[^<>;{}]*>)?\s*::\s*)+)$")
WORD = re.compile(rb"(?<![\w.])[A-Za-z_]\w*")
KEYWORDS = frozenset(CPP_KEYWORDS.split())
POINTERS = re.compile(r"(?:std::|c10::)?(?:shared_ptr|unique_ptr|intrusive_ptr|weak_ptr|optional)$")
MAKERS = re.compile(
    r"(?:(?:std::|c10::|at::)?(?:make_shared|make_unique|make_intrusive)|(?:reinterpret|static|dynamic|const)_cast)"
    r"<(?:const)?([\w:]+)\*?>"
)
DECLARATORS = (
    "pointer_declarator", "reference_declarator", "init_declarator", "parenthesized_declarator", "array_declarator",
    "function_declarator", "attributed_declarator", "variadic_declarator", "structured_binding_declarator",
)  # fmt: skip


LAST = {
    "qualified_identifier": "name",
    "template_function": "name",
    "template_method": "name",
    "field_expression": "field",
}
"""Expressions that end in the name that is called."""


class Token(NamedTuple):
    """One identifier; of a member the ``object`` before it (if that is a plain name); of a call its arguments."""

    begin: int
    line: int
    column: int
    name: str
    kind: str
    is_member: bool
    object: str
    arrow: bool
    arguments: int | None

    @property
    def end(self) -> int:
        """Column after it."""
        return self.column + len(self.name)


@cache
def query() -> Query:
    """The compiled query."""
    from tree_sitter import Query

    return Query(grammar("cpp"), WANTED)


class File:
    """Tokens and scopes of one file."""

    def __init__(self, source: bytes, root: Node) -> None:
        from tree_sitter import QueryCursor

        self.source = source
        captured = QueryCursor(query()).captures(root)
        self.starts = [0, *(match.end() for match in re.finditer(b"\n", source))]
        self.own: set[int] = set()
        self.regions = sorted({(node.start_byte, -node.end_byte): node for node in captured.get("region", ())}.items())
        self.begins = [begin for (begin, _), _ in self.regions]
        self.parents = list(self.nested())
        self.bound: dict[int, dict[str, str]] = {}
        for node in captured.get("local", ()):
            self.bind(node)
        self.spaces = sorted(self.named_spaces(captured))
        self.used: list[str] = []
        self.aliases: dict[str, str] = {}
        for node in (*captured.get("using", ()), *captured.get("alias", ())):
            self.use(node)
        self.tokens = sorted({*self.of_tree(captured), *self.of_macros(captured)})

    def text(self, node: Node | None) -> str:
        """Source of a node without white space."""
        return "".join(self.source[node.start_byte : node.end_byte].decode("utf-8", "replace").split()) if node else ""

    # Tokens

    def of_tree(self, captured: dict[str, list[Node]]) -> Iterator[Token]:
        """Identifiers of the tree."""
        ascii_only = self.source.isascii()
        for node in captured.get("name", ()):
            if node.is_missing:
                continue
            begin, (row, column) = node.start_byte, node.start_point
            if not ascii_only:
                column = len(self.source[begin - column : begin].decode("utf-8", "replace"))
            name = self.source[begin : node.end_byte].decode("utf-8", "replace")
            if name.encode() in KEYWORDS:
                continue  # in an error, a keyword may be taken for a name
            parent = node.parent
            member = (
                node.type == "field_identifier"
                and parent is not None
                and parent.type in ("field_expression", "template_method")
            )
            owner, arrow = self.object(node) if member else ("", False)
            yield Token(begin, row + 1, column, name, node.type, member, owner, arrow, arguments(node))

    def object(self, node: Node) -> tuple[str, bool]:
        """The name of the object before a member, ``this`` included, and whether an arrow stands between."""
        expression = node.parent
        while expression is not None and expression.type != "field_expression":
            expression = expression.parent
        before = expression.child_by_field_name("argument") if expression is not None else None
        operator = expression.child_by_field_name("operator") if expression is not None else None
        plain = before is not None and before.type in ("identifier", "this")
        return self.text(before) if plain else "", operator is not None and operator.type == "->"

    def of_macros(self, captured: dict[str, list[Node]]) -> Iterator[Token]:
        """Words in the bodies of macros, less the macros' own parameters, which are local."""
        from annotator.index.blanking import TEXT, spaces

        for node in captured.get("macro", ()):
            value, given = node.child_by_field_name("value"), node.child_by_field_name("parameters")
            if value is None:
                continue
            parameters = {self.text(kid) for kid in given.named_children} if given is not None else set()
            masked = TEXT.sub(spaces, self.source[value.start_byte : value.end_byte])
            for match in WORD.finditer(masked):
                if match[0] in KEYWORDS:
                    continue
                begin, name = value.start_byte + match.start(), match[0].decode()
                line = bisect_right(self.starts, begin)
                column = len(self.source[self.starts[line - 1] : begin].decode("utf-8", "replace"))
                if name in parameters:
                    self.own.add(begin)
                member = masked[: match.start()].rstrip().endswith(b"->")
                yield Token(begin, line, column, name, "identifier", member, "", member, None)

    # Scopes

    def nested(self) -> Iterator[int]:
        """For each region the one around it, -1 if there is none."""
        stack: list[int] = []
        for at, ((begin, _), _) in enumerate(self.regions):
            while stack and -self.regions[stack[-1]][0][1] <= begin:
                stack.pop()
            yield stack[-1] if stack else -1
            stack.append(at)

    def regions_around(self, at: int) -> Iterator[int]:
        """Functions, lambdas and templates around an offset, from the inside out."""
        current = bisect_right(self.begins, at) - 1
        while current >= 0:
            if at < -self.regions[current][0][1]:
                yield current
            current = self.parents[current]

    def bind(self, node: Node) -> None:
        """Notes what an identifier declares: in the function around; a prototype's parameter only where it stands."""
        holder = node.parent
        while holder is not None and holder.type in DECLARATORS:
            if holder.type == "function_declarator":
                return  # the name of a function
            holder = holder.parent
        if holder is None:
            return
        region = next(self.regions_around(node.start_byte), None)
        template = holder.parent is not None and holder.parent.type == "template_parameter_list"
        if region is None or (self.regions[region][1].type == "template_declaration" and not template):
            if holder.type.endswith("parameter_declaration"):
                self.own.add(node.start_byte)
            return
        self.bound.setdefault(region, {}).setdefault(self.text(node), "" if template else self.type_of(holder, node))

    def type_of(self, holder: Node, node: Node) -> str:
        """The type that a declaration names; that of ``auto x = Foo(…)`` is what it is made of."""
        declared = self.text(holder.child_by_field_name("type"))
        parent = node.parent
        if declared != "auto":
            return declared + ("*" if parent is not None and parent.type == "pointer_declarator" else "")
        value = parent.child_by_field_name("value") if parent is not None and parent.type == "init_declarator" else None
        made = ""
        if value is not None and value.type == "call_expression":
            made = self.text(value.child_by_field_name("function"))
        elif value is not None and value.type == "compound_literal_expression":
            made = self.text(value.child_by_field_name("type"))
        match = MAKERS.match(made)
        return f"{match[1]}*" if match else made

    def local(self, at: int, name: str) -> str | None:
        """The type (maybe empty) with which a function around declares a name; ``None`` if none does."""
        for region in self.regions_around(at):
            if name in (bound := self.bound.get(region, {})):
                return bound[name]
        return None

    def named_spaces(self, captured: dict[str, list[Node]]) -> Iterator[tuple[int, int, str, bool]]:
        """Namespaces, classes, and functions defined outside of their class; the last flag tells a class."""
        for node in captured.get("space", ()):
            name = self.text(node.child_by_field_name("name"))
            name = re.sub(r"<.*", "", name).replace(",", "::")  # a macro that opens a namespace separates by commas
            yield node.start_byte, node.end_byte, name, node.type != "namespace_definition"
        for (begin, end), node in self.regions:
            if node.type == "function_definition":
                declarator = node.child_by_field_name("declarator")
                while declarator is not None and declarator.type in DECLARATORS:
                    inner = declarator.child_by_field_name("declarator")
                    declarator = inner if inner is not None else declarator.named_child(0)
                if declarator is not None and declarator.type == "qualified_identifier":
                    name = unargued(self.text(declarator)).rpartition("::")[0]
                    if name:
                        yield begin, -end, name, True

    def around(self, at: int) -> str:
        """Qualified name of the namespaces and classes around an offset."""
        return "::".join(name for begin, end, name, _ in self.spaces if begin <= at < end and name)

    def classes_around(self, at: int) -> list[str]:
        """Qualified names of the classes around an offset, the innermost first."""
        names: list[str] = []
        found: list[str] = []
        for begin, end, name, is_class in self.spaces:
            if begin > at:
                break
            if at < end and name:
                names.append(name)
                if is_class:
                    found.append("::".join(names))
        return found[::-1]

    def qualifier(self, at: int) -> str:
        """What stands before a name with ``::``, without template arguments."""
        if not self.source[max(0, at - 8) : at].rstrip().endswith(b"::"):
            return ""
        begin = max(self.source.rfind(mark, max(0, at - 200), at) for mark in (b";", b"{", b"}", b"\n"))
        match = QUALIFIER.search(self.source, max(begin, at - 200, 0), at)
        return unargued(match[1].decode("utf-8", "replace")).removesuffix("::") if match else ""

    def use(self, node: Node) -> None:
        """``using namespace a::b``, ``using a::b::c``, ``namespace x = a::b``."""
        text = " ".join(self.source[node.start_byte : node.end_byte].decode("utf-8", "replace").split())
        if match := re.match(r"using namespace ([\w:]+)", text):
            self.used.append(match[1].removeprefix("::"))
        elif match := re.match(r"using ([\w:]+)::(\w+)\s*;", text):
            self.aliases[match[2]] = f"{match[1]}::{match[2]}".removeprefix("::")
        elif match := re.match(r"namespace (\w+)\s*=\s*([\w:]+)", text):
            self.aliases[match[1]] = match[2].removeprefix("::")

    def full(self, name: str) -> str:
        """A name with its head replaced by what a ``using`` or a namespace's alias makes of it."""
        head, colons, rest = name.partition("::")
        return f"{self.aliases.get(head, head)}{colons}{rest}"


def unargued(text: str) -> str:
    """A name without template arguments and white space."""
    text = "".join(text.split())
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def bare(text: str, arrow: bool) -> str:
    """The class that a type names, without qualifiers, references and arguments; behind an arrow what is held."""
    text = re.sub(r"\b(const|volatile|static|constexpr|typename|mutable|inline)\b", " ", text).strip(" &*")
    outer, _, inner = text.partition("<")
    if arrow and POINTERS.match(outer.strip()):
        return bare(inner.removesuffix(">"), False)
    name = unargued(text)
    return name if re.fullmatch(r"[\w:]+", name) else ""


def arguments(node: Node) -> int | None:
    """How many arguments a name is called with; ``None`` where it is not called, or launched as a kernel."""
    current, parent = node, node.parent
    while parent is not None and parent.type in LAST:
        if parent.child_by_field_name(LAST[parent.type]) != current:
            return None  # what stands before a dot or colons is not what is called
        current, parent = parent, parent.parent
    if parent is None or parent.type != "call_expression" or parent.child_by_field_name("function") != current:
        return None
    outer = parent.parent
    if outer is not None and outer.type == "call_expression" and outer.child_by_field_name("function") == parent:
        parent = outer
    given = parent.child_by_field_name("arguments")
    return sum(kid.type != "comment" for kid in given.named_children) if given is not None else None
