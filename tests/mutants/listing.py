"""The mutants that no test can tell from the original, each with the reason why: ``survivors.toml``.

An entry names a file, a function in it (empty: the top of the module), the statement as it stands and what it may
become. No line numbers: an entry holds as long as the statement does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant

LIST = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True)
class Entry:
    """One statement, the mutants of it that are equivalent, and why."""

    files: tuple[str, ...]
    function: str
    before: str
    after: tuple[str, ...]
    reason: str

    def mutants(self) -> set[tuple[str, str, str, str]]:
        """The keys of its mutants, as `Mutant.key` has them."""
        return {(file, self.function, self.before, after) for file in self.files for after in self.after}


def entries(path: Path = LIST) -> tuple[Entry, ...]:
    """All entries, in their order."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Entry(tuple(item["files"]), item["function"], item["before"], tuple(item["after"]), item["reason"].strip())
        for item in table.get("equivalent", [])
    )


def argued(path: Path = LIST) -> dict[tuple[str, str, str, str], str]:
    """Key of a mutant to the reason why it is equivalent."""
    return {key: entry.reason for entry in entries(path) for key in entry.mutants()}


def stubs(survivors: Iterable[Mutant]) -> str:
    """Survivors as entries whose reasons are still to be given, to be pasted into the list or killed."""
    grouped: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in survivors:
        grouped.setdefault(mutant.key[:3], []).append(mutant)
    return "\n".join(_stub(*key, [m.after for m in group]) for key, group in grouped.items())


def _stub(file: str, function: str, before: str, after: list[str]) -> str:
    became = "".join(f"  {_quoted(each)},\n" for each in dict.fromkeys(after))
    return (
        f'[[equivalent]]\nfiles = ["{file}"]\nfunction = "{function}"\nbefore = {_quoted(before)}\n'
        f'after = [\n{became}]\nreason = ""\n'
    )


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
