"""From an expression back to the lines that compute it: through variables, attributes, dictionaries and calls.

What only hands a value on (a name, ``x.detach().item()``, ``float(x)``, an item of a tuple that a function returns) is
followed; the first line that does more than that computes it, and the way ends. A step is ``exact`` where flow or a
link tells it, ``inferred`` where it goes by a name, an attribute or an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from annotator.index.lookup import ASIDE
from annotator.index.parsed import (
    Binding,
    Parsed,
    arguments,
    defined,
    files_with,
    function_around,
    keyword,
    parse_each,
    walk,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from annotator.index.lookup import Index
    from annotator.index.model import Definition

    Places = Callable[[str, str], Iterable[tuple[Parsed, Node, Node | None]]]

HANDS_ON = frozenset(
    [
        "detach",
        "item",
        "cpu",
        "cuda",
        "float",
        "double",
        "long",
        "int",
        "bool",
        "to",
        "tolist",
        "numpy",
        "clone",
        "contiguous",
        "squeeze",
        "unsqueeze",
        "flatten",
        "items",
        "values",
        "keys",
        "copy",
    ]
)
"""Methods and functions whose result is what they are given, in another form or place."""

WRAPS = re.compile(
    r"(^|\.)(float|int|bool|str|list|dict|tuple|round|abs|deepcopy|copy|Metric|tensor|as_tensor|cast|detach"
    r"|reduce_metrics|gather|gather_for_metrics|gather_object|all_reduce|all_gather|from_dict|items|values)$"
)
"""Functions whose result is their first argument, in another form or place."""

AGGREGATES = re.compile(r"mean|sum|avg|average|max|min|std|agg|median|count_nonzero", re.IGNORECASE)
"""Calls that make one number of what they are given first."""

DEEPEST, MOST = 10, 24
AT_MOST = 4
"""How many callers, or places that set an attribute, are looked at."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One line on the way back from a value to what computes it; ``reason`` says how it is reached."""

    pin: str
    path: str
    line: int
    column: int
    text: str
    within: str
    certainty: str
    reason: str


class Follower:
    """Follows values; one for each question, so that files are parsed once and no place is visited twice.

    ``logged`` gives the places of a pin that put something in under a key, with the key and the value.
    """

    def __init__(self, index: Index, logged: Places) -> None:
        self.index, self.logged = index, logged
        self.files: dict[tuple[str, str], Parsed | None] = {}
        self.seen: set[tuple[str, str, int, int]] = set()
        self.left = MOST

    def parsed(self, pin: str, path: str) -> Parsed | None:
        """A file as a tree, parsed once; ``None`` if it cannot be read."""
        if (pin, path) not in self.files:
            self.files[pin, path] = next(parse_each(self.index, [(pin, path)]), None)
        return self.files[pin, path]

    def start(self, parsed: Parsed, node: Node) -> None:
        """Begins a new way back from a place."""
        self.seen, self.left = {(parsed.pin, parsed.path, *parsed.place(node))}, MOST

    def follow(self, parsed: Parsed, node: Node | None, sure: bool = True, depth: int = 0) -> Iterator[Hop]:
        """The lines behind an expression, the nearest first."""
        if node is None or depth > DEEPEST or self.left <= 0:
            return
        for inner in subjects(parsed, node):
            if inner.type == "identifier":
                yield from self.variable(parsed, inner, sure, depth)
            elif inner.type == "attribute":
                yield from self.attribute(parsed, inner, sure, depth)
            elif inner.type == "subscript" or (inner.type == "call" and _key(parsed, inner) is not None):
                yield from self.item(parsed, inner, sure, depth)
            elif inner.type == "call":
                yield from self.result(parsed, inner, None, sure, depth)

    def hop(self, parsed: Parsed, node: Node, sure: bool, reason: str) -> Iterator[Hop]:
        """A hop to a node, unless it was made already."""
        line, column = parsed.place(node)
        key = (parsed.pin, parsed.path, line, column)
        if key not in self.seen and self.left > 0:
            self.seen.add(key)
            self.left -= 1
            text, within = parsed.line(node), parsed.within(node)
            yield Hop(*key, text, within, "exact" if sure else "inferred", reason)

    def variable(self, parsed: Parsed, name: Node, sure: bool, depth: int) -> Iterator[Hop]:
        """What a local variable is bound to, wherever the flow may come from."""
        for bound in parsed.bindings(name):
            if bound.kind == "parameter":
                yield from self.argument(parsed, name, bound, depth)
                continue
            plain = not bound.kind.startswith("for")
            how = "assigned to" if plain else "iterated as"
            made = list(self.hop(parsed, bound.node, sure, f"{how} {parsed.text(name)}"))
            yield from made
            if not made:
                continue
            if bound.part is None or bound.kind != "assignment" or bound.value is None or bound.value.type != "call":
                yield from self.follow(parsed, _part(bound), sure and plain, depth + 1)
            else:
                yield from self.result(parsed, bound.value, bound.part, sure, depth)

    def argument(self, parsed: Parsed, name: Node, bound: Binding, depth: int) -> Iterator[Hop]:
        """What the callers in the same file hand over for a parameter."""
        function = function_around(name)
        while function is not None and not _has(function, bound.node):
            function = function_around(function)
        named = function.child_by_field_name("name") if function is not None else None
        if function is None or named is None:
            return
        wanted, found = parsed.text(name), 0
        for use in parsed.words(parsed.text(named)):
            call = _call_of(use)
            if call is None or use == named or found >= AT_MOST:
                continue
            value = keyword(parsed, call, wanted) or _positional(parsed, function, bound.node, call)
            link = parsed.link(use)
            if value is not None and link is not None and link.target is not None and _is(link.target, parsed, named):
                found += 1
                yield from self.hop(parsed, value, False, f"handed over as {wanted}")
                yield from self.follow(parsed, value, False, depth + 1)

    def result(self, parsed: Parsed, call: Node, part: int | None, sure: bool, depth: int) -> Iterator[Hop]:
        """What a function of the pins returns, or which part of a tuple that it returns."""
        link = parsed.link(call.child_by_field_name("function"))
        target = link.target if link is not None else None
        if link is None or target is None or target.kind not in ("function", "method") or target.language != "python":
            return
        yield from self.returns(target, part, sure and link.certainty == "exact", depth)

    def returns(self, target: Definition, part: int | None, sure: bool, depth: int) -> Iterator[Hop]:
        """``result``, of a function that is known."""
        there = self.parsed(target.pin, target.path)
        for value in returned(there, target) if there is not None else ():
            inner = value
            if part is not None and value.type in ("expression_list", "tuple") and 0 <= part < value.named_child_count:
                inner = value.named_children[part]
            if there is not None:
                yield from self.hop(there, inner, sure, f"returned by {target.qualname}")
                yield from self.follow(there, inner, sure, depth + 1)

    def attribute(self, parsed: Parsed, node: Node, sure: bool, depth: int) -> Iterator[Hop]:
        """What is assigned to an attribute: in its class, or where an object of the class is made."""
        before, name = node.child_by_field_name("object"), node.child_by_field_name("attribute")
        if before is None or name is None:
            return
        link = parsed.link(name)
        if link is None or link.target is None or link.target.kind not in ("attribute", "method"):
            return
        if link.target.kind == "method":
            yield from self.returns(link.target, None, sure and link.certainty == "exact", depth)
            return
        for there, value, place in self.given(link.target):
            if there.path == parsed.path and place == node:
                continue
            made = list(self.hop(there, place, False, f"given to {link.target.qualname}"))
            yield from made
            if made:
                yield from self.follow(there, value, False, depth + 1)

    def given(self, field: Definition) -> Iterator[tuple[Parsed, Node, Node]]:
        """The values that code gives an attribute, with the places where it does: in files that name its class."""
        owner, found = field.qualname.rpartition(".")[0], 0
        files = set(files_with(self.index, field.name, pin=field.pin))
        files &= set(files_with(self.index, owner.rpartition(".")[2], pin=field.pin))
        for pin, path in sorted(files, key=lambda file: (file[1] != field.path, file[1])):
            there = self.parsed(pin, path) if not ASIDE.search(path) else None
            for name in there.words(field.name) if there is not None else ():
                value = _given_by(name)
                if there is None or value is None or not self.of(there, name, field) or found >= AT_MOST:
                    continue
                found += 1
                yield there, value, name

    def of(self, parsed: Parsed, name: Node, field: Definition) -> bool:
        """Whether what a keyword or an assignment sets is that attribute."""
        above = name.parent
        if above is None or parsed.place(name) == (field.line, field.column):
            return False
        call = above.parent.parent if above.type == "keyword_argument" and above.parent is not None else None
        before = (call or above).child_by_field_name("function" if call is not None else "object")
        if before is None:
            return False
        return defined(self.index.resolver.program.attribute(parsed.value(before), field.name)) == field

    def item(self, parsed: Parsed, node: Node, sure: bool, depth: int) -> Iterator[Hop]:
        """What is put into a dictionary under a key: before in this function, else wherever something is logged so."""
        key = _key(parsed, node)
        if key is None:
            yield from self.follow(parsed, node.child_by_field_name("value"), sure, depth + 1)
            return
        function = function_around(node)
        puts = [(parsed, string, entry_value(string)) for string in parsed.strings([key])]
        found = [
            put
            for put in puts
            if put[2] and function_around(put[1]) == function and put[1].start_byte < node.start_byte
        ]
        for there, place, value in found[-1:] or list(islice(self.logged(parsed.pin, key), AT_MOST)):
            made = list(self.hop(there, place, False, f"put in under {key}"))
            yield from made
            if made:
                yield from self.follow(there, value, False, depth + 1)


def subjects(parsed: Parsed, node: Node) -> Iterator[Node]:
    """What an expression hands on: names, attributes, items, calls; nothing if it computes something itself."""
    while node.type in ("parenthesized_expression", "await", "keyword_argument"):
        inner = node.child_by_field_name("value") or (node.named_children[0] if node.named_children else None)
        if inner is None:
            return
        node = inner
    if node.type in ("identifier", "attribute", "subscript"):
        yield node
    elif node.type == "conditional_expression":
        for kid in (node.named_children[0], node.named_children[-1]):
            yield from subjects(parsed, kid)
    elif node.type == "list" and node.named_child_count == 1:
        yield from subjects(parsed, node.named_children[0])
    elif node.type == "call":
        yield from _handed_on(parsed, node)


def _handed_on(parsed: Parsed, call: Node) -> Iterator[Node]:
    """What a call hands on: what it is made on, or what it is given; the call itself if it may compute."""
    function, given = call.child_by_field_name("function"), arguments(call)
    text = parsed.text(function)
    method = text.rpartition(".")[2]
    before = function.child_by_field_name("object") if function is not None and function.type == "attribute" else None
    first = keyword(parsed, call, "value") or next(iter(given), None) or _first_keyword(call)
    if _key(parsed, call) is not None:
        yield call
    elif first is not None and WRAPS.search(text):
        yield from subjects(parsed, first)
    elif first is not None and AGGREGATES.search(method):
        yield from (node for node in subjects(parsed, first) if node.type == "identifier")
    elif before is not None and (method in HANDS_ON or not given):
        own = before.type in ("identifier", "call", "subscript") or (before.type == "attribute" and method in HANDS_ON)
        yield from subjects(parsed, before) if own and not _is_self(before) else [call]
    else:
        yield call


def _key(parsed: Parsed, node: Node) -> str | None:
    """The key of ``d["k"]``, ``d.pop("k")`` or ``d.get("k")``."""
    if node.type == "subscript":
        return parsed.literal(node.child_by_field_name("subscript"))
    function, given = node.child_by_field_name("function"), arguments(node)
    name = function.child_by_field_name("attribute") if function is not None and function.type == "attribute" else None
    return parsed.literal(given[0]) if name is not None and name.text in (b"pop", b"get") and given else None


def _first_keyword(call: Node) -> Node | None:
    """The value of the first keyword of a call."""
    given = call.child_by_field_name("arguments")
    keywords = [node for node in given.named_children if node.type == "keyword_argument"] if given is not None else []
    return keywords[0].child_by_field_name("value") if keywords else None


def _is_self(node: Node) -> bool:
    return node.type == "identifier" and node.text in (b"self", b"cls", b"torch", b"np")


def returned(parsed: Parsed, function: Definition) -> list[Node]:
    """The expressions that a function returns."""
    name = parsed.node_at(function.line, function.column)
    definition = name.parent if name is not None else None
    if definition is None or definition.type != "function_definition":
        return []
    found = [node for node in walk(definition, "return_statement") if function_around(node) == definition]
    return [node.named_children[0] for node in found if node.named_children]


def entry_value(key: Node) -> Node | None:
    """The value that is put into a dictionary under a key: ``{k: v}``, ``d[k] = v``, ``d[k].append(v)``."""
    above = key.parent
    if above is None:
        return None
    if above.type == "pair" and above.child_by_field_name("key") == key:
        return above.child_by_field_name("value")
    if above.type != "subscript" or above.child_by_field_name("subscript") != key or above.parent is None:
        return None
    outer = above.parent
    if outer.type in ("assignment", "augmented_assignment") and outer.child_by_field_name("left") == above:
        return outer.child_by_field_name("right")
    call = outer.parent
    if outer.type == "attribute" and call is not None and call.type == "call":
        method = outer.child_by_field_name("attribute")
        given = arguments(call)
        if method is not None and method.text in (b"append", b"extend", b"add", b"update") and given:
            return given[0]
    return None


def _part(bound: Binding) -> Node | None:
    """What one of several targets gets of values that are written out."""
    value = bound.value
    if bound.part is None or value is None or value.type not in ("expression_list", "tuple"):
        return value
    return value.named_children[bound.part] if 0 <= bound.part < value.named_child_count else value


def _given_by(name: Node) -> Node | None:
    """The value that a keyword or an assignment gives the attribute of that name."""
    above = name.parent
    if above is None:
        return None
    if above.type == "keyword_argument" and above.child_by_field_name("name") == name:
        return above.child_by_field_name("value")
    target = above if above.type == "attribute" else name
    outer = target.parent
    if outer is not None and outer.type in ("assignment", "augmented_assignment"):
        return outer.child_by_field_name("right") if outer.child_by_field_name("left") == target else None
    return None


def _call_of(use: Node) -> Node | None:
    """The call of which an identifier, or the attribute that ends with it, is the function."""
    node = use.parent if use.parent is not None and use.parent.type == "attribute" else use
    above = node.parent
    called = above is not None and above.type == "call" and above.child_by_field_name("function") == node
    return above if called else None


def _positional(parsed: Parsed, function: Node, parameter: Node, call: Node) -> Node | None:
    """The argument of a call at the place of a parameter; ``self`` is none."""
    listed = function.child_by_field_name("parameters")
    names = [node for node in listed.named_children if node.type != "comment"] if listed is not None else []
    if names and parsed.text(names[0]) in ("self", "cls"):
        names = names[1:]
    given = arguments(call)
    return given[names.index(parameter)] if parameter in names and names.index(parameter) < len(given) else None


def _has(function: Node, parameter: Node) -> bool:
    listed = function.child_by_field_name("parameters")
    return listed is not None and parameter in listed.named_children


def _is(target: Definition, parsed: Parsed, name: Node) -> bool:
    line, column = parsed.place(name)
    return (target.pin, target.path, target.line, target.column) == (parsed.pin, parsed.path, line, column)
