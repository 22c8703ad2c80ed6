"""What the index answers with: definitions, uses, links, and the report of a build.

Plain frozen data, apart from the store, so that whoever renders an answer need not know how it was found.
Lines are 1-based; columns are 0-based and count characters, not bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Definition:
    """One thing that a pin defines.

    Attributes:
        pin: name of the pin.
        path: file inside the pin's tree, with forward slashes.
        module: dotted module of the file; empty for C++ and CUDA.
        qualname: name inside the module (``Class.method``), empty for the module itself; C++: the qualified name.
        name: last part of ``qualname``, or of ``module``.
        kind: ``module class function method attribute constant variable alias``; C++ also
            ``namespace struct enum typedef macro``. A link from a keyword argument leads to a ``parameter``.
        line, column: where the name stands. end_line: last line of the whole definition.
        signature: one line without the body.
        doc: first sentence of the docstring or of the comment above.
        language: ``python``, ``cpp`` or ``cuda``.
        decorators: their text without ``@``.
    """

    pin: str
    path: str
    module: str
    qualname: str
    name: str
    kind: str
    line: int
    column: int
    end_line: int
    signature: str
    doc: str
    language: str
    decorators: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """``pin:module.qualname``; the module alone for a module."""
        return f"{self.pin}:{'.'.join(part for part in (self.module, self.qualname) if part)}"


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a definition is used; ``within`` is the symbol of the definition around it."""

    pin: str
    path: str
    line: int
    column: int
    text: str
    within: str
    certainty: str
    called: bool = False
    """Whether it is called there."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: ``caller`` is the symbol of the function, method, class or module around it, ``callee`` what is called.

    A class is called to make an object. ``reason`` says why a call is ``inferred`` rather than ``exact``; ``lines`` are
    the first and the last of the whole expression.
    """

    caller: str
    callee: str
    pin: str
    path: str
    line: int
    column: int
    text: str
    certainty: str
    reason: str = ""
    lines: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Registration:
    """One place where a name is registered: what a program finds later when it asks a registry for that name.

    ``how``: ``decorator``, ``call``, ``entry`` (of a dictionary), ``member`` (of an enumeration that is handed to a
    decorator, or whose value says what to import), ``entry point`` (of a distribution), ``group`` (here code asks for
    the entry points of that group). ``registry`` is what it is registered with, as the source writes it; ``target``
    what is registered, where that is plain, with the ``certainty`` of that link. ``role`` says which of several things
    it is (``dispatch_fn``), or which argument the name is.
    """

    name: str
    how: str
    registry: str
    pin: str
    path: str
    line: int
    column: int
    text: str
    target: Definition | None
    certainty: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """What one identifier of a file leads to.

    ``target`` is a definition of a pin, or ``external`` names something outside them (``builtins.len``), or neither:
    a local name (``exact``, reason ``local``) or an ``unresolved`` one, whose ``reason`` says why.
    """

    line: int
    column: int
    end_column: int
    name: str
    target: Definition | None
    external: str | None
    certainty: str
    reason: str = ""


PARAMETER = -3
"""From here downwards ``Raw.ordinal`` means a parameter of the definition whose ordinal is ``PARAMETER - ordinal``."""


class Raw(NamedTuple):
    """A ``Link`` as it is kept: its target as file number and ordinal (0, -1 where there is none).

    Ordinal -2 is the module that ``external`` names, ``PARAMETER`` and below a parameter called ``name``.
    """

    line: int
    column: int
    end_column: int
    name: str
    file: int
    ordinal: int
    external: str
    certainty: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a build did.

    Attributes:
        files: files in the index after it. parsed: files read and parsed. removed: files that are gone.
        lines, definitions: totals in the index.
        skipped: files that could not be read, with the reason.
        seconds: wall time.
    """

    files: int
    parsed: int
    removed: int
    lines: int
    definitions: int
    seconds: float
    skipped: tuple[str, ...] = field(default=())
