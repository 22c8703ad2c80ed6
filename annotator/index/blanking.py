"""What the C++ grammar would stumble over, overwritten so that offsets stay: attributes, launches, odd conditionals.

Apart from the languages because only C++ and CUDA need it. Every function here keeps the length and the line ends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Tree

NESTED = rb"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
"""Parentheses with up to two levels of others inside."""

ATTRIBUTES = re.compile(
    rb"[A-Z_](?<![A-Za-z0-9_].)(?<!define .)"
    rb"(?:(?<=_)_(?:(?:global|device|host|shared|constant|forceinline|noinline|inline|restrict)__|restrict"
    rb"|launch_bounds__\([^()]*\)|grid_constant__)"
    rb"|(?<=[A-Z])[A-Z0-9_]*_API(?:_ENUM|_CLASS)?"
    rb"|(?<=C)10_(?:EXPORT|HIDDEN|HOST_DEVICE|HOST|DEVICE|NODISCARD|UNUSED|NOINLINE)"
    rb"|(?:(?<=C)10|(?<=T)ORCH|(?<=A)T)_(?:ALWAYS_)?(?:NO)?INLINE(?:_ATTRIBUTE)?"
    rb"|(?<=T)ORCH_(?:EXPORT|DISALLOW_TEMPORARIES))(?=\s)"
)
"""Export and device attributes. The first letter stands apart because the scan is several times as fast so."""

CALLED_ATTRIBUTES = re.compile(rb"\b__(?:launch_bounds|cluster_dims|maxnreg|attribute)__\s*" + NESTED)
LAUNCH = re.compile(rb"(?<!<)<<<((?:[^;{}()]|" + NESTED + rb"){0,500}?)>>>(?=[\s\\]*\()")
"""A kernel's launch. What it is given is bounded, lest every ``<<<`` be followed to the end of the file."""

GUARD = re.compile(
    rb"^#if !defined\(TORCH_STABLE_ONLY\)[^\n]*"
    rb"|^#else[^\n]*\n#error [^\n]*(?:\n[^#\n][^\n]*)*\n#endif[^\n]*TORCH_STABLE_ONLY[^\n]*",
    re.M,
)
"""A conditional around a whole header; one syntax error inside would else cost all of its structure."""

HIDDEN = re.compile(rb"(?<!define )\bHIDDEN_NAMESPACE_(BEGIN|END)\((\w+(?:, \w+)*)\)")

TEXT = re.compile(rb"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)
"""Comments, strings and characters."""

CONDITION = re.compile(rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b(?:[^\\\n]|\\.)*", re.M | re.S)
BARE_MACRO = re.compile(rb"^[A-Z_][A-Z0-9_]+\([^(){};]*\)[ \t]*$(?!\s*[{:;])", re.M)
"""The use of a macro as a whole line without a semicolon: the grammar takes it for the start of a declaration."""


def spaces(match: re.Match[bytes]) -> bytes:
    """As many blanks, with the same line ends."""
    return re.sub(rb"[^\n]", b" ", match[0])


def blank(data: bytes) -> bytes:
    """C++ source without attributes; a kernel's launch ``k<<<grid>>>(x)`` becomes a call of a call."""
    if b"__(" in data or b"__ (" in data:
        data = CALLED_ATTRIBUTES.sub(spaces, data)
    data = ATTRIBUTES.sub(spaces, data)
    if b"<<<" in data:
        data = LAUNCH.sub(rb"(  \1)  ", data)
    if b"HIDDEN_NAMESPACE_" in data:
        data = HIDDEN.sub(_opened, data)
    if b"TORCH_STABLE_ONLY" in data:
        data = GUARD.sub(spaces, data)
    return data


def _opened(match: re.Match[bytes]) -> bytes:
    """``HIDDEN_NAMESPACE_BEGIN(torch, stable)`` as ``namespace torch::stable{``, each name where it stood."""
    if match[1] == b"END":
        return b"}".ljust(len(match[0]))
    return b"namespace ".rjust(match.start(2) - match.start()) + match[2].replace(b", ", b"::") + b"{"


def blank_more(data: bytes) -> bytes:
    """What else to hide where a syntax error remains: macros that stand alone, branches that leave a brace open."""
    masked = TEXT.sub(spaces, data)
    result, braces = bytearray(data), bytearray(masked)
    for match in BARE_MACRO.finditer(masked):
        result[match.start() : match.end()] = spaces(match)
    for begin, end in unbalanced(masked, braces):
        result[begin:end] = re.sub(rb"[^\n]", b" ", bytes(result[begin:end]))
    return bytes(result)


def unbalanced(masked: bytes, braces: bytearray) -> list[tuple[int, int]]:
    """The branches of conditionals to leave out so that braces match; what is cut inside no longer counts outside.

    Of branches that all open (or close) as many braces the first is kept, else those that open none.
    """
    cuts: list[tuple[int, int]] = []
    open_ones: list[list[list[int]]] = []
    for match in CONDITION.finditer(masked):
        if match[1].startswith(b"if"):
            open_ones.append([[match.end()]])
            continue
        if not open_ones:
            continue
        branches = open_ones[-1]
        branches[-1].append(match.start())
        if match[1] != b"endif":
            branches.append([match.end()])
            continue
        open_ones.pop()
        balance = [braces.count(b"{", *span) - braces.count(b"}", *span) for span in branches]
        keep = balance[0] if len(branches) > 1 and len(set(balance)) == 1 else 0
        for at, (begin, end) in enumerate(branches):
            if balance[at] != keep or (keep and at):
                cuts.append((begin, end))
                braces[begin:end] = b" " * (end - begin)
    return cuts


def lost(tree: Tree) -> int:
    """How many bytes of a tree stand in errors."""
    total, stack = 0, [tree.root_node]
    while stack:
        node = stack.pop()
        if node.type == "ERROR":
            total += node.end_byte - node.start_byte
        elif node.has_error:
            stack += node.children
    return total
