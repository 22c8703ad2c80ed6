"""Which language a file is in, and its syntax tree by tree-sitter.

Apart from the rest because anchors and pages parse the same files in the same way. Whatever the bytes, parsing
answers: unknown encodings are read as Latin-1, syntax errors become error nodes. tree-sitter is imported at first use.
"""

from __future__ import annotations

import codecs
import re
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Parser, Tree

SUFFIXES = {
    ".py": "python",
    ".pyi": "python",
    ".h": "cpp",
    ".hpp": "cpp",
    ".hh": "cpp",
    ".hxx": "cpp",
    ".inl": "cpp",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".cxx": "cpp",
    ".c": "cpp",
    ".cu": "cuda",
    ".cuh": "cuda",
}
"""File suffixes that are indexed. CUDA is read by the C++ grammar; ``blanking`` hides what that does not know."""

CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def language_of(path: str) -> str | None:
    """``python``, ``cpp`` or ``cuda`` by the suffix, or ``None`` for a file that is not indexed."""
    return SUFFIXES.get(PurePosixPath(path).suffix)


def module_of(path: str) -> str:
    """The dotted module of a Python file: ``a/b/__init__.py`` is ``a.b``, ``a/b.pyi`` is ``a.b``; empty elsewhere."""
    if SUFFIXES.get(PurePosixPath(path).suffix) != "python":
        return ""
    parts = path.rsplit(".", 1)[0].split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def decode(data: bytes) -> str:
    """Source text without a byte order mark, by its coding line, else UTF-8, else Latin-1. Never fails."""
    if data.startswith(codecs.BOM_UTF8):
        return data.decode("utf-8", "replace").lstrip("\ufeff")  # the parser would pass over a second one
    for line in data.split(b"\n", 2)[:2]:
        if match := CODING.match(line):
            try:
                return data.decode(match[1].decode())
            except (LookupError, UnicodeDecodeError, ValueError):
                break
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def normal(data: bytes) -> bytes:
    """The same source as UTF-8 without a byte order mark: what ``parse`` sees, and what its offsets count in."""
    return data if data.isascii() else decode(data).encode("utf-8", "replace")


def parse(data: bytes, language: str) -> Tree:
    """The syntax tree of source bytes. Offsets and columns count in ``normal(data)``."""
    source = normal(data)
    if language == "python":
        return parser(language).parse(source)
    from annotator.index.blanking import blank, blank_more, lost

    seen = blank(source)
    tree = parser(language).parse(seen)
    if tree.root_node.has_error and (again := blank_more(seen)) != seen:
        other = parser(language).parse(again)
        return other if lost(other) < lost(tree) else tree
    return tree


@cache
def grammar(language: str) -> Language:
    """The grammar of ``python``; ``cpp`` and ``cuda`` share one."""
    from tree_sitter import Language

    if language == "python":
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    import tree_sitter_cpp

    return Language(tree_sitter_cpp.language())


@cache
def parser(language: str) -> Parser:
    """One parser a language, reused."""
    from tree_sitter import Parser

    return Parser(grammar(language))
