"""The one tree of errors. Apart from the rest so that every package can raise them without importing another.

    AnnotatorError               exit code 2
    ├── WorkspaceError           no lock, no checkout, an unreadable folder
    ├── PinError                 lock, fetch, digest, unpacking, loading of a reference
    │   ├── LockError            the lock file itself is wrong
    │   ├── FetchError           network, registry, git, a truncated download
    │   ├── DigestError          the bytes are not those of the lock
    │   └── UnsafeArchiveError   an archive member that must not be unpacked
    ├── IndexFileError           index missing, of another schema, unreadable
    │   └── SymbolNotFound       no such symbol; carries near matches
    ├── ReadingError             a step that cannot be anchored, a block that cannot be read
    ├── ContractError            a contract that is wrong in itself or unknown
    │   └── UserCodeError        the function handed to `diff` could not be run
    └── SiteError                the site cannot be built

A message is one line: the place, what was expected, what was found, what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AnnotatorError(Exception):
    """Base of all errors that a user can cause and mend.

    ``place: expected …, found …; remedy``. Parts that do not apply are left out. The command line prints
    ``str(error)`` on one line and ends with ``exit_code``.
    """

    exit_code = 2

    def __init__(self, place: str, *, expected: str = "", found: str = "", remedy: str = "") -> None:
        self.place, self.expected, self.found, self.remedy = place, expected, found, remedy
        facts = ", ".join(
            part for part in (f"expected {expected}" if expected else "", f"found {found}" if found else "") if part
        )
        message = ": ".join(part for part in (place, facts) if part)
        super().__init__("; ".join(part for part in (message, remedy) if part))


class WorkspaceError(AnnotatorError):
    """No lock, no checkout, or a folder that cannot be read or written."""


class PinError(AnnotatorError):
    """A reference cannot be fetched, verified, unpacked or loaded."""


class LockError(PinError):
    """``pins.toml`` has an unknown key, a missing field or a value of the wrong form."""


class FetchError(PinError):
    """An artifact could not be brought here whole: no network, no such file, a truncated download."""


class DigestError(PinError):
    """Bytes that are not those of the lock."""


class UnsafeArchiveError(PinError):
    """An archive member that escapes its folder, is a link or a device, or is larger than it may be."""


class IndexFileError(AnnotatorError):
    """The index is missing, was made by another schema, or cannot be read."""


class SymbolNotFound(IndexFileError):
    """No symbol of that name is in the index; ``near`` holds the closest ones."""

    def __init__(self, symbol: str, near: Iterable[str] = (), *, place: str = "") -> None:
        self.symbol, self.near = symbol, tuple(near)
        remedy = did_you_mean(self.near)
        super().__init__(place or symbol, expected="a symbol of the pins", found=f"no {symbol!r}", remedy=remedy)


class ReadingError(AnnotatorError):
    """A step or block of a reading that cannot be understood or anchored."""


class ContractError(AnnotatorError):
    """A contract that does not exist, or is wrong in itself."""


class UserCodeError(ContractError):
    """The function handed to ``annotator diff`` could not be run as the contract asks."""


class SiteError(AnnotatorError):
    """The site could not be built."""


def near_matches(name: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The closest of ``known`` to ``name``, best first."""
    return tuple(difflib.get_close_matches(name, list(known), n=limit, cutoff=0.6))


def did_you_mean(near: Iterable[str]) -> str:
    """A remedy that names near matches, or an empty string when there are none."""
    names = list(near)
    return f"did you mean {' or '.join(names)}?" if names else ""
