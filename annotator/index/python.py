"""Definitions and imports of a Python file, from its syntax tree.

One native query finds the statements of interest and the spans of strings and comments; Python code touches only
those, because touching every node costs more than parsing. Nesting is kept by a stack, never by recursion.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from annotator.index.extraction import Import, Row, character_columns, one_line, sentence, signature
from annotator.index.languages import grammar

if TYPE_CHECKING:
    from tree_sitter import Node, Query, Tree

STATEMENTS = """
(function_definition) @d (class_definition) @d (decorated_definition) @d
(import_statement) @d (import_from_statement) @d (type_alias_statement) @d
(expression_statement (assignment) @d)
(string_content) @s (comment) @s
"""
LOCAL_BINDINGS = (b" %s =", b" %s:", b"for %s ", b"as %s", b", %s in ")
DOTTED = re.compile(rb"[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*")


@cache
def query() -> Query:
    """The compiled query."""
    from tree_sitter import Query

    return Query(grammar("python"), STATEMENTS)


def declarations(tree: Tree, source: bytes) -> tuple[list[Row], list[Import], list[tuple[int, int]]]:
    """Definitions and imports in order, and the byte spans of strings' contents and comments."""
    from tree_sitter import QueryCursor

    captured = QueryCursor(query()).captures(tree.root_node)
    spans = sorted([(node.start_byte, node.end_byte) for node in captured.get("s", ())])
    reader = Reader(source)
    nodes = sorted([(node.start_byte, -node.end_byte, order, node) for order, node in enumerate(captured.get("d", ()))])
    for begin, end, _, node in nodes:
        reader.statement(node, begin, -end)
    rows = reader.rows if source.isascii() else character_columns(source, reader.rows)
    return rows, reader.imports, spans


class Scope:
    """A class or function that is being read: where it ends, its qualified name, and what its ``self`` is."""

    __slots__ = ("begin", "end", "kind", "node", "parameters", "qualname", "receiver")

    def __init__(self, begin: int, end: int, kind: str, qualname: str, node: Node | None = None) -> None:
        self.begin, self.end, self.kind, self.qualname, self.node = begin, end, kind, qualname, node
        self.receiver = b""
        self.parameters: dict[str, str] | None = None


class Reader:
    """Reads statements in the order of the source and collects what they define."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.rows: list[Row] = []
        self.imports: list[Import] = []
        self.stack = [Scope(0, len(source) + 1, "module", "")]
        self.pending: tuple[int, str] = (-1, "")
        self.attributes: set[str] = set()

    def statement(self, node: Node, begin: int, end: int) -> None:
        """Takes one captured statement."""
        while self.stack[-1].end <= begin and len(self.stack) > 1:
            self.stack.pop()
        kind = node.type
        if kind == "assignment":
            self.assignment(node, begin, end)
        elif kind == "function_definition" or kind == "class_definition":
            self.definition(node, kind, begin, end)
        elif kind == "decorated_definition":
            marks = [self.source[c.start_byte + 1 : c.end_byte] for c in node.children if c.type == "decorator"]
            self.pending = (end, "\n".join(one_line(mark, 200) for mark in marks))
        elif kind == "type_alias_statement":
            self.alias(node, begin, end)
        else:
            self.imported(node, kind)

    def name_in(self, scope: Scope, name: str) -> str:
        """The qualified name of ``name`` in a scope."""
        return f"{scope.qualname}.{name}" if scope.qualname else name

    def definition(self, node: Node, syntax: str, begin: int, end: int) -> None:
        """A function, method or class."""
        name_node, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name_node is None:
            return
        scope, source = self.stack[-1], self.source
        name = source[name_node.start_byte : name_node.end_byte].decode("utf-8", "replace")
        qualname = self.name_in(scope, name)
        head = signature(source[begin : body.start_byte if body else end])
        head = (
            head.split(" #")[0].rstrip()
            if body and " #" in head and "\n" in source[begin : body.start_byte].decode("utf-8", "replace")
            else head
        )
        row, column = name_node.start_point
        decorators, self.pending = (self.pending[1] if self.pending[0] == end else ""), (-1, "")
        last = node.end_point.row + 1
        if syntax == "class_definition":
            kind = "class"
            bases = node.child_by_field_name("superclasses")
            hint = one_line(source[bases.start_byte + 1 : bases.end_byte - 1]) if bases else ""
        else:
            kind = "method" if scope.kind == "class" else "function"
            returned = node.child_by_field_name("return_type")
            hint = one_line(source[returned.start_byte : returned.end_byte]) if returned else ""
        doc = docstring(body, source) if body else ""
        self.rows.append(
            Row(name, qualname, kind, row + 1, column, last, head.rstrip(":").rstrip(), doc, decorators, hint)
        )
        inner = Scope(begin, end, kind, qualname, node)
        if kind == "method":
            inner.receiver = first_parameter(node, source)
        self.stack.append(inner)

    def assignment(self, node: Node, begin: int, end: int) -> None:
        """Names bound at the level of a module or class, and attributes of ``self`` bound in methods."""
        scope = self.stack[-1]
        if scope.kind == "function":
            return
        left = node.child_by_field_name("left")
        if left is None:
            return
        if scope.kind == "method":
            if left.type == "attribute":
                self.attribute(node, left, scope, begin, end)
            elif left.type in ("pattern_list", "tuple_pattern"):
                for part in left.named_children:
                    if part.type == "attribute":
                        self.attribute(node, part, scope, begin, end, plain=False)
            return
        targets = (
            [left]
            if left.type == "identifier"
            else left.named_children
            if left.type in ("pattern_list", "tuple_pattern")
            else []
        )
        for target in targets:
            if target.type == "identifier":
                self.bound(node, target, self.name_in(scope, self.text(target)), scope.kind, begin, end, target is left)

    def text(self, node: Node) -> str:
        """Source text of a node."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def attribute(self, node: Node, left: Node, scope: Scope, begin: int, end: int, plain: bool = True) -> None:
        """``self.x = …`` in a method: an attribute of the class, once."""
        receiver, _, name = self.source[left.start_byte : left.end_byte].partition(b".")
        if not scope.receiver or receiver != scope.receiver or not name.decode("utf-8", "replace").isidentifier():
            return
        target = left.child_by_field_name("attribute")
        if target is not None:
            owner = scope.qualname.rpartition(".")[0]
            self.bound(node, target, f"{owner}.{name.decode()}", "class", begin, end, plain)

    def bound(self, node: Node, target: Node, qualname: str, level: str, begin: int, end: int, plain: bool) -> None:
        """One name bound by an assignment; the first binding of a name is its definition."""
        if qualname in self.attributes:
            return
        self.attributes.add(qualname)
        name = qualname.rpartition(".")[2]
        kind = "attribute" if level == "class" else "constant" if name.isupper() else "variable"
        row, column = target.start_point
        signature = one_line(self.source[begin:end], 160)
        hint = self.hint(node, begin) if plain else ""
        self.rows.append(Row(name, qualname, kind, row + 1, column, node.end_point.row + 1, signature, "", "", hint))

    def hint(self, node: Node, begin: int) -> str:
        """What is plain of an assignment's right side, for ``Row.hint``; empty if nothing is."""
        annotation = node.child_by_field_name("type")
        if annotation is not None:
            return ": " + one_line(self.source[annotation.start_byte : annotation.end_byte], 200)
        right = node.child_by_field_name("right")
        kind = right.type if right is not None else ""
        if right is None or kind == "none":
            return "= None" if right is not None else ""
        called = "()" if kind == "call" else ""
        if called:
            right = right.child_by_field_name("function")
        if right is None or right.type not in ("identifier", "attribute") or right.end_byte - right.start_byte > 120:
            return ""
        text = self.source[right.start_byte : right.end_byte]
        if not DOTTED.fullmatch(text):
            return ""
        return self.local_hint(text.decode() + called, self.stack[-1], begin)

    def local_hint(self, text: str, scope: Scope, begin: int) -> str:
        """The hint of a right side in a method: by its parameter's annotation; none if a local hides a global."""
        if scope.kind != "method":
            return f"= {text}"
        if scope.parameters is None:
            scope.parameters = annotated_parameters(scope.node, self.source) if scope.node is not None else {}
        head, dot, rest = text.removesuffix("()").partition(".")
        if head == scope.receiver.decode("utf-8", "replace"):
            return f"@Self\t{rest}{text[len(text.removesuffix('()')) :]}" if rest else ": Self"
        if head in scope.parameters:
            annotation = scope.parameters[head]
            if not annotation or (text.endswith("()") and not dot):
                return ""
            return f"@{annotation}\t{text[len(head) + 1 :]}" if dot else f": {annotation}"
        hidden = any(self.source.find(form % head.encode(), scope.begin, begin) >= 0 for form in LOCAL_BINDINGS)
        return "" if hidden else f"= {text}"

    def alias(self, node: Node, begin: int, end: int) -> None:
        """``type X = …`` of Python 3.12."""
        left = node.child_by_field_name("left")
        name = first_child(left) if left is not None else None
        if name is None or self.stack[-1].kind not in ("module", "class"):
            return
        text = DOTTED.match(self.source, name.start_byte, name.end_byte)
        if text:
            short = text[0].decode()
            row, column = name.start_point
            signature = one_line(self.source[begin:end], 160)
            qualname = self.name_in(self.stack[-1], short)
            self.rows.append(
                Row(short, qualname, "alias", row + 1, column, node.end_point.row + 1, signature, "", "", "")
            )

    def imported(self, node: Node, syntax: str) -> None:
        """Names bound by an import statement."""
        parent = node.parent
        plain = (
            parent is None
            or parent.type == "module"
            or (
                parent.type == "block"
                and parent.parent is not None
                and parent.parent.type in ("function_definition", "class_definition")
            )
        )
        scope, line, conditional = self.stack[-1].qualname, node.start_point.row + 1, int(not plain)
        for name, module, member, level in bindings(node, syntax, self.source):
            self.imports.append(Import(name, module, member, level, scope, line, conditional))


def bindings(node: Node, syntax: str, source: bytes) -> list[tuple[str, str, str, int]]:
    """(name, module, member, level) of each name that an import statement binds."""

    def text(of: Node) -> str:
        return "".join(source[of.start_byte : of.end_byte].decode("utf-8", "replace").split())

    found = []
    origin, level, module = node.child_by_field_name("module_name"), 0, ""
    if origin is not None:
        written = text(origin)
        module = written.lstrip(".")
        level = len(written) - len(module)
    for child in node.children_by_field_name("name"):
        dotted, alias = child, None
        if child.type == "aliased_import":
            dotted, alias = child.child_by_field_name("name") or child, child.child_by_field_name("alias")
        member = text(dotted)
        if syntax == "import_from_statement":
            found.append((text(alias) if alias else member, module, member, level))
        else:
            found.append((text(alias) if alias else member.partition(".")[0], member, "", 0))
    if (
        syntax == "import_from_statement"
        and not found
        and any(c.type == "wildcard_import" for c in node.named_children)
    ):
        found.append(("*", module, "*", level))
    return found


def annotated_parameters(function: Node, source: bytes) -> dict[str, str]:
    """Parameters of a function with the text of their annotations, empty where there is none."""
    found: dict[str, str] = {}
    parameters = function.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters is not None else ():
        name, annotation = (
            DOTTED.match(source, parameter.start_byte, parameter.end_byte),
            parameter.child_by_field_name("type"),
        )
        if name:
            splat = annotation is None or source[parameter.start_byte : parameter.start_byte + 1] == b"*"
            found[name[0].decode()] = (
                ""
                if splat or annotation is None
                else one_line(source[annotation.start_byte : annotation.end_byte], 200)
            )
    return found


def first_parameter(node: Node, source: bytes) -> bytes:
    """Name of the first parameter of a method, which its attributes hang on."""
    parameters = node.child_by_field_name("parameters")
    first = first_child(parameters) if parameters is not None else None
    if first is None:
        return b""
    match = DOTTED.match(source, first.start_byte, first.end_byte)
    return match[0] if match else b""


def docstring(body: Node, source: bytes) -> str:
    """First sentence of a definition's docstring, on one line."""
    first = first_child(body)
    while first is not None and first.type == "comment":
        first = first.next_named_sibling
    if first is None or first.type != "expression_statement":
        return ""
    string = first_child(first)
    if string is None or string.type != "string":
        return ""
    return sentence(source[string.start_byte : string.end_byte].lstrip(b"rRuUbB").strip(b"\"'"))


def first_child(node: Node) -> Node | None:
    """The first named child, if there is one."""
    return node.named_child(0) if node.named_child_count else None
