"""Source text to HTML lines: colour from the syntax tree, links from the index, merged. Apart because steps, source
pages and minimal code all show lines in this one way, and because it needs nothing of the workspace.

Colours come from trees as the index is made of: a query captures what is coloured, several times as fast as a lexer
in Python, and strings, comments and names end where the parser says that they do.

A line becomes text with ``<i class="k">`` for colour and ``<a class="x">`` for links, nothing else: few elements keep a
page of 3,000 lines light. Source text is data: every character of it is escaped, and control characters (those that
reorder text above all) are shown by name instead of being obeyed.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Query

Bit = tuple[str, str]
"""A colour class (empty: plain) and a piece of one line."""

Mark = tuple[int, int, str]
"""Columns ``[first, last)`` of a line, and their colour class."""

_SPECIAL = re.compile("[&<>\x00-\x08\x0b\x0e-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

_PYTHON = """
(expression_statement . (string) @q .)
(string) @s
(comment) @c
[(integer) (float) (none) (true) (false)] @n
(function_definition name: (identifier) @d)
(class_definition name: (identifier) @d)
(decorator "@" @p [(identifier) (attribute)] @p)
(decorator "@" @p (call function: (_) @p))
["as" "assert" "async" "await" "break" "class" "continue" "def" "del" "elif" "else" "except" "finally" "for" "from"
 "global" "if" "import" "lambda" "nonlocal" "pass" "raise" "return" "try" "while" "with" "yield" "match" "case" "and"
 "in" "is" "not" "or" "is not" "not in"] @k
"""
_CPP = """
[(string_literal) (char_literal) (raw_string_literal) (system_lib_string)] @s
(comment) @c
[(number_literal) (true) (false) (null)] @n
(function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier name: (identifier))] @d)
(class_specifier name: (type_identifier) @d body: (_))
(struct_specifier name: (type_identifier) @d body: (_))
(preproc_directive) @p
["#define" "#include" "#if" "#ifdef" "#ifndef" "#else" "#elif" "#endif"] @p
["break" "case" "catch" "class" "const" "constexpr" "continue" "decltype" "default" "delete" "do" "else" "enum"
 "explicit" "extern" "final" "for" "friend" "goto" "if" "inline" "namespace" "new" "noexcept" "operator" "override"
 "private" "protected" "public" "return" "sizeof" "static" "static_assert" "struct" "switch" "template" "throw" "try"
 "typedef" "typename" "union" "using" "virtual" "volatile" "while"] @k
"""


class Span(NamedTuple):
    """Columns ``[first, last)`` of a line that link to ``href``; without one they only carry ``title`` or ``anchor``.

    ``kind`` is the class that tells certainty: ``exact`` or ``inferred`` (empty for an anchor alone).
    """

    first: int
    last: int
    href: str = ""
    kind: str = ""
    title: str = ""
    anchor: str = ""


def escape(text: str) -> str:
    """``text`` as HTML text; control characters become their names in brackets."""
    return _SPECIAL.sub(lambda m: _ENTITIES.get(m[0]) or f"[U+{ord(m[0]):04X}]", text)


def attribute(text: str) -> str:
    """``text`` as an attribute's value, to stand between double quotes."""
    return escape(text).replace('"', "&quot;")


def split(text: str) -> list[str]:
    """The lines of ``text`` as Python numbers them: split at newlines only, a final newline ends the last line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def colour(text: str, language: str = "python") -> list[list[Bit]]:
    """Each line of ``text`` as coloured bits. An unknown language gives plain text."""
    lines = split(text)
    marks = _marks(lines, language)
    return [_bits(line, marks.get(number, ())) for number, line in enumerate(lines)] or [[]]


def line_html(bits: Sequence[Bit], spans: Iterable[Span] = (), skip: int = 0) -> str:
    """One line as HTML: ``bits`` cut where ``spans`` begin and end, from column ``skip`` on (indentation dropped)."""
    out: list[str] = []
    waiting = _apart(spans, skip)
    span, inside, column = next(waiting, None), False, 0
    for name, text in bits:
        start, column = column, column + len(text)
        at = max(start, skip)
        while at < column:
            if span and not inside and span.first <= at:
                out.append(_opening(*span[2:]))
                inside = True
            stop = min(column, (span.last if inside else span.first) if span else column)
            piece = text[at - start : stop - start]
            out.append(f'<i class="{name}">{escape(piece)}</i>' if name and not piece.isspace() else escape(piece))
            at = stop
            if span and inside and at == span.last:
                out.append(_closing(span))
                span, inside = next(waiting, None), False
    if span and inside:
        out.append(_closing(span))
    return "".join(out)


def indentation(lines: Iterable[str]) -> int:
    """The number of blanks that all lines with text begin with."""
    return min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)


def _marks(lines: list[str], language: str) -> dict[int, list[Mark]]:
    """What is coloured on each line that has colours, in order; the lines are counted from 0."""
    query = _query(language)
    if query is None:
        return {}
    from tree_sitter import QueryCursor

    from annotator.index.languages import parse

    text = "\n".join(lines)
    plain = text.isascii()
    data = text.encode() if plain else codecs.BOM_UTF8 + text.encode("utf-8", "replace")  # else a coding line counts
    captured = QueryCursor(query).captures(parse(data, language).root_node)
    nodes = [
        (node.start_byte, -node.end_byte, "qsc".find(name) % 4, node, name)
        for name, found in captured.items()
        for node in found
    ]
    nodes.sort(key=itemgetter(0, 1, 2))  # the outermost first, and a string that stands alone as a docstring
    marks: dict[int, list[Mark]] = {}
    end = 0
    for start, stop, _, node, name in nodes:
        if start < end or start == -stop:
            continue  # inside one that is coloured: an expression of an f-string, a word of a comment
        end = -stop
        _mark(marks, lines, node, name, plain)
    return marks


def _mark(marks: dict[int, list[Mark]], lines: list[str], node: Node, name: str, plain: bool) -> None:
    """Adds a node to the marks of its lines."""
    (row, first), (final, last) = node.start_point, node.end_point
    for number in range(row, min(final + 1, len(lines))):
        line = lines[number]
        left, right = first if number == row else 0, last if number == final else len(line.encode("utf-8", "replace"))
        if not (plain or line.isascii()):
            left, right = _characters(line, left), _characters(line, right)
        here = marks.setdefault(number, [])
        if here and here[-1][1:] == (left, name):
            here[-1] = (here[-1][0], right, name)
        else:
            here.append((left, right, name))


def _characters(line: str, width: int) -> int:
    """How many characters the first ``width`` bytes of a line are."""
    return len(line.encode("utf-8", "replace")[:width].decode("utf-8", "replace"))


def _bits(line: str, marks: Iterable[Mark]) -> list[Bit]:
    """A line cut at its marks."""
    bits: list[Bit] = []
    at = 0
    for first, last, name in marks:
        if first > at:
            bits.append(("", line[at:first]))
        if last > first:
            bits.append((name, line[first:last]))
        at = last
    if at < len(line):
        bits.append(("", line[at:]))
    return bits


@cache
def _query(language: str) -> Query | None:
    """What is coloured in a language, as a query over its trees."""
    if language not in ("python", "cpp", "cuda"):
        return None
    from tree_sitter import Query

    from annotator.index.languages import grammar

    return Query(grammar(language), _PYTHON if language == "python" else _CPP)


@lru_cache(maxsize=4096)
def _opening(href: str, kind: str, title: str, anchor: str) -> str:
    titled = f' title="{attribute(title)}"' if title else ""
    named = f' id="{attribute(anchor)}"' if anchor else ""
    if href:
        return f'<a class="{kind}" href="{attribute(href)}"{named}{titled}>'
    return f"<b{named}{titled}>"


def _closing(span: Span) -> str:
    return "</a>" if span.href else "</b>"


def _apart(spans: Iterable[Span], skip: int) -> Iterator[Span]:
    """The spans in order, without those that overlap an earlier one or lie left of ``skip``."""
    end = skip
    for span in sorted(spans, key=lambda s: (s.first, -s.last)):
        if span.first >= end and span.last > span.first:
            yield span
            end = span.last


def by_line(pairs: Iterable[tuple[int, Span]]) -> Mapping[int, list[Span]]:
    """Spans grouped by their line."""
    lines: dict[int, list[Span]] = {}
    for line, span in pairs:
        lines.setdefault(line, []).append(span)
    return lines
