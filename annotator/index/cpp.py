"""Definitions of a C++ or CUDA file, from its syntax tree, as far as syntax tells.

The preprocessor is not run: both branches of a conditional are read, macros are definitions of their own. Function
bodies are not entered. An explicit stack holds what is still to be read, so nesting costs no recursion.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from annotator.index.extraction import Import, Row, character_columns, one_line, sentence
from annotator.index.languages import grammar

if TYPE_CHECKING:
    from tree_sitter import Node, Query, Tree

SPANS = "(string_content) @s (comment) @s (char_literal) @s"
CONTAINERS = {
    "translation_unit", "declaration_list", "field_declaration_list", "linkage_specification", "template_declaration",
    "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef",
}  # fmt: skip
CLASSES = {
    "class_specifier": "class",
    "struct_specifier": "struct",
    "union_specifier": "struct",
    "enum_specifier": "enum",
}
WRAPPERS = {
    "pointer_declarator", "reference_declarator", "init_declarator", "parenthesized_declarator", "array_declarator",
    "attributed_declarator",
}  # fmt: skip
COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.S)
SPACES = re.compile(rb"__(?:global|device|host)__")
BEFORE = re.compile(rb"(?:\b\w+\s+|__\w+__\s*\([^{};]*\)\s*)+$")
"""Attributes before a declaration, where the tree has only blanks."""
NAMED = {"namespace_identifier", "identifier", "type_identifier", "nested_namespace_specifier"}
NAMES = {
    "identifier", "field_identifier", "type_identifier", "qualified_identifier", "destructor_name", "operator_name",
    "operator_cast", "template_function",
}  # fmt: skip


@cache
def query() -> Query:
    """The compiled query for spans of comments and strings."""
    from tree_sitter import Query

    return Query(grammar("cpp"), SPANS)


def declarations(tree: Tree, source: bytes) -> tuple[list[Row], list[Import], list[tuple[int, int]]]:
    """Definitions in order, includes as imports, and the byte spans of strings' contents and comments."""
    from tree_sitter import QueryCursor

    captured = QueryCursor(query()).captures(tree.root_node)
    spans = sorted([(node.start_byte, node.end_byte) for node in captured.get("s", ())])
    reader = Reader(source)
    reader.read(tree.root_node)
    reader.rows.sort(key=lambda row: (row.line, row.column))
    rows = reader.rows if source.isascii() else character_columns(source, reader.rows)
    return rows, reader.imports, spans


class Reader:
    """Walks declarations with an explicit stack of (node, qualified name around it, kind around it)."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.marked = SPACES.search(source) is not None
        self.rows: list[Row] = []
        self.imports: list[Import] = []
        self.stack: list[tuple[Node, str, str]] = []

    def read(self, root: Node) -> None:
        """Reads everything below ``root``, in the order of the source."""
        self.stack.append((root, "", "namespace"))
        while self.stack:
            node, scope, around = self.stack.pop()
            kind = node.type
            if kind == "ERROR":
                self.salvage(node, scope, around)
            elif kind in CONTAINERS:
                self.push(node, scope, around)
            elif kind == "namespace_definition":
                self.namespace(node, scope)
            elif kind in CLASSES:
                self.classlike(node, node, CLASSES[kind], scope)
            elif kind in ("declaration", "field_declaration", "function_definition"):
                self.declaration(node, scope, around)
            elif kind in ("preproc_def", "preproc_function_def"):
                self.simple(node, node.child_by_field_name("name"), "macro", "")
            elif kind in ("alias_declaration", "type_definition"):
                self.typedef(node, scope)
            elif kind == "preproc_include":
                self.include(node)

    def push(self, node: Node, scope: str, around: str) -> None:
        """Puts the children of a node on the stack."""
        self.stack.extend((child, scope, around) for child in reversed(node.named_children))

    def salvage(self, node: Node, scope: str, around: str) -> None:
        """Reads what stands in an error; namespaces and classes that open inside it are told by their braces."""
        found: list[tuple[Node, str, str]] = []
        scopes, opened, name = [(scope, around)], "", None
        bases: Node | None = None
        for child in node.children:
            kind = child.type
            if kind in ("namespace", "class", "struct"):
                opened, name, bases = kind, None, None
            elif opened and kind in NAMED:
                name = child
            elif opened and kind == "base_class_clause":
                bases = child
            elif kind == "{":
                scopes.append(self.opened(opened, name, bases, scopes))
                opened, name = "", None
            else:
                if kind == "}" and len(scopes) > 1:
                    scopes.pop()
                elif child.is_named:
                    found.append((child, *scopes[-1]))
                opened, name = "", None
        self.stack.extend(reversed(found))

    def opened(
        self, opened: str, name: Node | None, bases: Node | None, scopes: list[tuple[str, str]]
    ) -> tuple[str, str]:
        """The scope behind a brace in an error; a class that it opens is a definition, whose end is not known.

        Its closing brace may lie in another node, so a class is not taken to stand in the class before it.
        """
        around = scopes[-1]
        if not opened or name is None:
            return around
        around = next((scope for scope in reversed(scopes) if scope[1] == "namespace"), scopes[0])
        qualname = join(around[0], self.text(name))
        if opened == "namespace":
            return qualname, "namespace"
        head = opened.encode() + b" " + self.text(name).encode()
        self.add(name, name, opened, qualname, head, self.base_names(bases))
        return qualname, "class"

    def base_names(self, clause: Node | None) -> str:
        """The bases of a class as they are written."""
        return one_line(self.source[clause.start_byte : clause.end_byte].lstrip(b": ")) if clause is not None else ""

    def text(self, node: Node) -> str:
        """Source text of a node without white space."""
        return "".join(self.source[node.start_byte : node.end_byte].decode("utf-8", "replace").split())

    def add(self, node: Node, name: Node, kind: str, qualname: str, head: bytes, hint: str = "") -> None:
        """Notes one definition, unless its name is only half there."""
        if name.has_error:
            return
        row, column = last_part(name).start_point
        marks = self.marks(node, head) if kind in ("function", "method") else ""
        short = re.split(r"::(?![^<]*>)", qualname)[-1]
        head = COMMENT.sub(b" ", head) if b"/" in head else head
        signature = one_line(head, 300).rstrip(";{ ")
        end = node.end_point.row + (node.end_point.column > 0)  # a macro ends where the next line begins
        self.rows.append(
            Row(short, qualname, kind, row + 1, column, max(end, row + 1), signature, self.comment(node), marks, hint)
        )

    def marks(self, node: Node, head: bytes) -> str:
        """Where a CUDA function runs: ``__global__``, ``__device__``, ``__host__``; the tree does not show them."""
        if not self.marked:
            return ""
        before = self.source[max(0, node.start_byte - 200) : node.start_byte]
        start = BEFORE.search(before)
        found = SPACES.findall((start[0] if start else b"") + head.split(b"(", 1)[0])
        return "\n".join(dict.fromkeys(mark.decode() for mark in found))

    def comment(self, node: Node) -> str:
        """First sentence of the comment that ends on the line above."""
        before = node.prev_sibling
        if before is None or before.type != "comment" or before.end_point.row < node.start_point.row - 1:
            return ""
        first = before
        while (
            first.prev_sibling is not None
            and first.prev_sibling.type == "comment"
            and first.prev_sibling.end_point.row == first.start_point.row - 1
        ):
            first = first.prev_sibling
        lines = self.source[first.start_byte : before.end_byte].split(b"\n")[:12]
        return sentence(b"\n".join(line.strip().lstrip(b"/*!").rstrip(b"*/").strip() for line in lines))

    def simple(self, node: Node, name: Node | None, kind: str, scope: str) -> None:
        """A definition whose head is its first line."""
        if name is not None:
            head = self.source[node.start_byte : node.end_byte].split(b"\n", 1)[0].rstrip(b"\\ \r")
            self.add(node, name, kind, join(scope, self.text(name)), head)

    def namespace(self, node: Node, scope: str) -> None:
        """A namespace with a body."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        inner = join(scope, self.text(name).replace(",", "::")) if name is not None else scope
        if body is not None:
            self.push(body, inner, "namespace")

    def classlike(self, node: Node, whole: Node, kind: str, scope: str) -> None:
        """A class, struct, union or enum with a body; a forward declaration defines nothing."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if body is None:
            return
        if name is None:
            if kind != "enum":
                self.push(body, scope, "class")
            return
        qualname = join(scope, self.text(name))
        bases = next((child for child in node.named_children if child.type == "base_class_clause"), None)
        self.add(whole, name, kind, qualname, self.source[node.start_byte : body.start_byte], self.base_names(bases))
        if kind != "enum":
            self.push(body, qualname, "class")
        else:
            for item in body.named_children:
                if item.type == "enumerator":
                    self.simple(item, item.child_by_field_name("name"), "constant", qualname)

    def declaration(self, node: Node, scope: str, around: str) -> None:
        """Functions, methods and members; a class defined inside the declaration is read as well."""
        kind_node = node.child_by_field_name("type")
        if kind_node is not None and kind_node.type in CLASSES:
            self.classlike(kind_node, node, CLASSES[kind_node.type], scope)
        body = node.child_by_field_name("body")
        head = self.source[node.start_byte : body.start_byte if body is not None else node.end_byte]
        for declarator in node.children_by_field_name("declarator"):
            self.declared(node, declarator, head, scope, around, body is not None)

    def declared(self, node: Node, declarator: Node, head: bytes, scope: str, around: str, defined: bool) -> None:
        """One declarator: the name is what remains under pointers, references and parameter lists."""
        current: Node | None = declarator
        function = False
        for _ in range(32):
            if current is None or current.type in NAMES:
                break
            function = function or current.type == "function_declarator"
            inner = current.child_by_field_name("declarator")
            current = (
                inner
                if inner is not None
                else next(
                    (c for c in current.named_children if c.type in WRAPPERS | NAMES | {"function_declarator"}), None
                )
            )
        if current is None or current.type not in NAMES:
            return
        name = self.text(current)
        qualname = join(scope, name)
        if function:
            kind = "method" if around == "class" or ("::" in name and not name.startswith("::")) else "function"
            self.add(node, current, kind, qualname, head, "body" if defined else "")
        elif around == "class":
            self.add(node, current, "attribute", qualname, head)
        elif node.type == "declaration":
            self.add(node, current, "variable", qualname, head)

    def typedef(self, node: Node, scope: str) -> None:
        """``using A = …`` or ``typedef … A``, and a class that the latter defines."""
        kind_node = node.child_by_field_name("type")
        if node.type == "type_definition" and kind_node is not None and kind_node.type in CLASSES:
            self.classlike(kind_node, node, CLASSES[kind_node.type], scope)
        name = node.child_by_field_name("name" if node.type == "alias_declaration" else "declarator")
        if name is not None and name.type == "type_identifier":
            self.simple(node, name, "typedef", scope)

    def include(self, node: Node) -> None:
        """An included file counts as an import."""
        path = node.child_by_field_name("path")
        if path is not None:
            self.imports.append(Import("", self.text(path).strip('<>"'), "", 0, "", node.start_point.row + 1, 0))


def last_part(name: Node) -> Node:
    """The last name of a qualified one: where a reader looks for it, and what a link to it covers."""
    while name.type == "qualified_identifier" and (inner := name.child_by_field_name("name")) is not None:
        name = inner
    return name


def join(scope: str, name: str) -> str:
    """``scope::name``; a name that starts with ``::`` stands outside every scope."""
    return name[2:] if name.startswith("::") else f"{scope}::{name}" if scope else name
