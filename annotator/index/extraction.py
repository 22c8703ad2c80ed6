"""What is taken from one file eagerly: definitions, imports, and the set of names that occur in it.

Pure: bytes in, plain tuples out, nothing of paths or pins, so that the result is keyed by content alone and travels
cheaply between processes. Apart from the languages' own modules because the names are gathered alike in all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from annotator.index.languages import normal, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from annotator.index.registering import Operator

WORD = re.compile(rb"[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*")
LITERAL = re.compile(rb"[A-Za-z_][\w./:@-]{1,63}")
"""String literals worth a posting: registry keys, configuration keys, operator and metric names."""

PYTHON_KEYWORDS = (
    b"and as assert async await break class continue def del elif else except finally for from global if import in is "
    b"lambda nonlocal not or pass raise return try while with yield None True False"
)
CPP_KEYWORDS = (
    b"auto bool break case catch char class const constexpr continue default delete do double else enum explicit "
    b"extern false float for friend if inline int long mutable namespace new nullptr operator private protected "
    b"public return short signed sizeof static struct switch template this throw true try typedef typename union "
    b"unsigned using virtual void volatile while define endif ifdef ifndef include pragma undef elif noexcept "
    b"override final"
)
KEYWORDS = {
    "python": frozenset(PYTHON_KEYWORDS.split()),
    "cpp": frozenset(CPP_KEYWORDS.split()),
    "cuda": frozenset(CPP_KEYWORDS.split()),
}


class Row(NamedTuple):
    """A definition as it is stored, less its file.

    ``hint`` carries what resolution needs without a second parse: bases of a class, return annotation of a function,
    annotation (``: T``) or plain right side of an assignment: ``= a.Foo()``, or, taken in a method from an annotated
    parameter, ``@T`` tab ``attribute.method()``. Of a C++ function it tells whether it has a body.
    """

    name: str
    qualname: str
    kind: str
    line: int
    column: int
    end_line: int
    signature: str
    doc: str
    decorators: str
    hint: str


class Import(NamedTuple):
    """One name bound by an import.

    ``import a.b as c``: name ``c``, module ``a.b``, no member. ``from ..m import x``: module ``m``,
    member ``x``, level 2.
    ``import a.b`` binds ``a``: name ``a``, module ``a.b``, and no member. A star has name ``*``.
    ``scope`` is the qualname of the definition around it; ``conditional`` tells one under ``if`` or ``try``.
    """

    name: str
    module: str
    member: str
    level: int
    scope: str
    line: int
    conditional: int


@dataclass(frozen=True)
class Extract:
    """All that is kept of one file's content; ``names`` are its distinct words, literals marked by a leading quote."""

    lines: int
    identifiers: int
    broken: bool
    rows: list[Row]
    imports: list[Import]
    names: set[bytes]
    operators: list[Operator]


def extract(data: bytes, language: str) -> Extract:
    """Definitions, imports and names of one file's bytes. Never fails on any input."""
    source = normal(data)
    tree = parse(data, language)
    if language == "python":
        from annotator.index import python

        rows, imports, spans = python.declarations(tree, source)
    else:
        from annotator.index import cpp

        rows, imports, spans = cpp.declarations(tree, source)
    words, literals = names(source, spans)
    found = set(words)
    kept = found - KEYWORDS[language]
    kept.update(b'"' + literal for literal in literals)
    lines = source.count(b"\n") + (not source.endswith(b"\n") if source else 0)
    from annotator.index.registering import operators

    registered = operators(tree, source, language, found)
    return Extract(lines, len(words), tree.root_node.has_error, rows, imports, kept, registered)


def names(source: bytes, spans: Iterable[tuple[int, int]]) -> tuple[list[bytes], set[bytes]]:
    """Words outside the spans of comments and strings (in order), and the literals inside that look like keys."""
    pieces, literals, last = [], set(), 0
    for begin, end in spans:
        if begin < last:
            continue
        pieces.append(source[last:begin])
        if end - begin < 66 and LITERAL.fullmatch(source, begin, end):
            literals.add(source[begin:end])
        last = end
    pieces.append(source[last:])
    return WORD.findall(b" ".join(pieces)), literals


def character_columns(source: bytes, rows: list[Row]) -> list[Row]:
    """Rows whose columns count characters, where they counted bytes."""
    lines = source.split(b"\n")
    return [
        row._replace(column=len(lines[row.line - 1][: row.column].decode("utf-8", "replace"))) if row.column else row
        for row in rows
    ]


def one_line(text: bytes, limit: int = 600) -> str:
    """Text with runs of white space as one blank, cut at ``limit`` characters."""
    line = " ".join(text.decode("utf-8", "replace").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def signature(head: bytes) -> str:
    """The head of a definition on one line, as it would stand if it had been written on one."""
    line = one_line(head)
    return line.replace("( ", "(").replace(", )", ")").replace(" )", ")").replace("[ ", "[").replace(" ]", "]")


def sentence(text: bytes) -> str:
    """First sentence of the first paragraph."""
    paragraph = text.strip().replace(b"\r", b"").split(b"\n\n", 1)[0]
    line = one_line(paragraph[:800], 240)
    cut = re.search(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+[A-Z`\"'(])", line)
    return line[: cut.end()] if cut else line
