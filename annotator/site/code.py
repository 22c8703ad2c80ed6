"""Source text to HTML lines: colour from Pygments, links from the index, merged. Apart because steps, source pages and
minimal code all show lines in this one way, and because it needs nothing of the workspace.

A line becomes text with ``<i class="k">`` for colour and ``<a class="x">`` for links, nothing else: few elements keep a
page of 3,000 lines light. Source text is data: every character of it is escaped, and control characters that reorder
text (bidirectional overrides) are shown by name instead of being obeyed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

Bit = tuple[str, str]
"""A colour class (empty: plain) and a piece of one line."""

_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")
_LEXERS = {"python": "python", "cpp": "cpp", "cuda": "cuda"}


@dataclass(frozen=True)
class Span:
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
    """``text`` as HTML text; reordering control characters become their names in brackets."""
    return _REORDERING.sub(lambda m: f"[U+{ord(m[0]):04X}]", html.escape(text, quote=False))


def attribute(text: str) -> str:
    """``text`` as an attribute's value, to stand between double quotes."""
    return escape(text).replace('"', "&quot;")


def split(text: str) -> list[str]:
    """The lines of ``text`` as Python numbers them: split at newlines only, a final newline ends the last line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def colour(text: str, language: str = "python") -> list[list[Bit]]:
    """Each line of ``text`` as coloured bits. An unknown language gives plain text."""
    lines: list[list[Bit]] = [[]]
    for name, value in _tokens("\n".join(split(text)), language):
        first, *rest = value.split("\n")
        _append(lines[-1], name, first)
        for piece in rest:
            lines.append([])
            _append(lines[-1], name, piece)
    return lines


def line_html(bits: Sequence[Bit], spans: Iterable[Span] = (), skip: int = 0) -> str:
    """One line as HTML: ``bits`` cut where ``spans`` begin and end, from column ``skip`` on (indentation dropped)."""
    out: list[str] = []
    column, text = skip, _cut(bits, skip)
    for span in _apart(spans, skip):
        before, text = _split_bits(text, span.first - column)
        inside, text = _split_bits(text, span.last - span.first)
        out += [_bits_html(before), _span_html(span, _bits_html(inside))]
        column = span.last
    out.append(_bits_html(text))
    return "".join(out)


def indentation(lines: Iterable[str]) -> int:
    """The number of blanks that all lines with text begin with."""
    return min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)


def _append(line: list[Bit], name: str, text: str) -> None:
    if not text:
        return
    if line and line[-1][0] == name:
        line[-1] = (name, line[-1][1] + text)
    else:
        line.append((name, text))


def _tokens(text: str, language: str) -> Iterator[Bit]:
    lexer = _lexer(language)
    if lexer is None:
        yield "", text
        return
    names: dict[_TokenType, str] = {}
    for _, token, value in lexer.get_tokens_unprocessed(text):
        if token not in names:
            names[token] = _colour_class(token)
        yield names[token], value


@lru_cache(maxsize=8)
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name

    known = _LEXERS.get(language)
    return get_lexer_by_name(known, stripnl=False, ensurenl=False) if known else None


def _colour_class(token: _TokenType) -> str:
    """The one-letter class of a Pygments token: the first entry of the table that holds it."""
    return next((name for parent, name in _classes() if token in parent), "")


@lru_cache(maxsize=1)
def _classes() -> tuple[tuple[_TokenType, str], ...]:
    from pygments import token as t

    return (
        (t.String.Doc, "q"),
        (t.String, "s"),
        (t.Comment.Preproc, "p"),
        (t.Comment, "c"),
        (t.Number, "n"),
        (t.Keyword.Constant, "n"),
        (t.Keyword, "k"),
        (t.Operator.Word, "k"),
        (t.Name.Decorator, "p"),
        (t.Name.Function.Magic, "d"),
        (t.Name.Function, "d"),
        (t.Name.Class, "d"),
        (t.Name.Builtin, "b"),
    )


def _bits_html(bits: Iterable[Bit]) -> str:
    return "".join(
        f'<i class="{name}">{escape(text)}</i>' if name and text.strip() else escape(text) for name, text in bits
    )


def _span_html(span: Span, inner: str) -> str:
    title = f' title="{attribute(span.title)}"' if span.title else ""
    anchor = f' id="{attribute(span.anchor)}"' if span.anchor else ""
    if span.href:
        return f'<a class="{span.kind}" href="{attribute(span.href)}"{anchor}{title}>{inner}</a>'
    return f"<b{anchor}{title}>{inner}</b>" if anchor or title else inner


def _cut(bits: Sequence[Bit], skip: int) -> list[Bit]:
    return _split_bits(list(bits), skip)[1] if skip else list(bits)


def _split_bits(bits: list[Bit], width: int) -> tuple[list[Bit], list[Bit]]:
    """``bits`` parted after ``width`` characters."""
    left: list[Bit] = []
    for position, (name, text) in enumerate(bits):
        if width <= 0:
            return left, bits[position:]
        if len(text) > width:
            return [*left, (name, text[:width])], [(name, text[width:]), *bits[position + 1 :]]
        left.append((name, text))
        width -= len(text)
    return left, []


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
