"""The lock, read strictly: which references there are, and the exact bytes of each.

Apart from fetching because everything downstream needs a `Pin` (for permalinks, for staleness) and only ``fetch``
needs a network. A key that is misspelt must not pass for one that is absent, so every table is checked whole.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

from annotator.errors import LockError, did_you_mean, near_matches

Kind = Literal["wheel", "members", "sdist", "git"]
Run = Literal["tree", "installed", "none"]

FORGE = "https://github.com"
"""Where ``repository = "owner/name"`` lives."""

MEASURED = ("sha256", "size", "record", "tree")
"""The fields that `annotator.pins.relock` computes; a maintainer leaves them out of a new table."""


@dataclass(frozen=True)
class Pin:
    """A reference fixed to exact bytes.

    Attributes:
        name: what symbols call it (``torch:torch.optim.adamw``); also its folder under ``vendored_refs/``.
        version: the version, as the registry or the repository states it.
        kind: where bytes come from. ``wheel`` and ``sdist``: a whole artifact of the package registry. ``members``:
            only the kept members of a large wheel, by range requests. ``git``: a commit of a repository.
        license: SPDX expression of the source's licence.
        repository: ``owner/name`` of the upstream repository.
        ref: the upstream tag, for permalinks where the artifact does not state its commit.
        paths: globs of the files that are kept (``**`` spans folders, ``{a,b}`` is either).
        project: the registry's name of the project (not for ``git``).
        artifact: file name of the artifact (not for ``git``).
        sha256: digest of the whole artifact (not for ``git``).
        size: bytes of the whole artifact (not for ``git``).
        record: ``members`` only: digest of the wheel's RECORD, which holds a digest of every member.
        tree: tree digest over the kept files, see `annotator.pins.trees.tree_digest`. A ``git`` pin may go without:
            its commit already fixes every byte.
        commit: the upstream commit, where it is known.
        upstream: path prefix in the tree to path prefix in the repository; the longest that fits wins.
        optional: fetched only when named.
        run: how it is imported: from the ``tree``, from the ``installed`` distribution after comparing bytes, or not.
        distribution: the installed distribution, for ``run = "installed"``.
        differs: globs of files whose installed bytes may differ from the tree's.
    """

    name: str
    version: str
    kind: Kind
    license: str
    repository: str
    ref: str
    paths: tuple[str, ...]
    project: str = ""
    artifact: str = ""
    sha256: str = ""
    size: int = 0
    record: str | None = None
    tree: str = ""
    commit: str | None = None
    upstream: Mapping[str, str] = field(default_factory=dict, hash=False)
    optional: bool = False
    run: Run = "none"
    distribution: str | None = None
    differs: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """Name of its tree in the cache; other bytes have another slug, so trees of several locks live side by side."""
        return f"{self.name}-{self.version}-{(self.tree or self.commit or '')[:12]}"

    def upstream_path(self, path: str) -> str:
        """Where a file of the tree lies in the upstream repository."""
        fitting = [prefix for prefix in self.upstream if path.startswith(prefix)]
        if not fitting:
            return path
        longest = max(fitting, key=len)
        return self.upstream[longest] + path[len(longest) :]

    def permalink(self, path: str, first: int | None = None, last: int | None = None) -> str:
        """The upstream page of a file of the tree, at the commit (or tag) of the pin.

        Args:
            path: path in the tree, with forward slashes.
            first: first line, 1-based.
            last: last line, inclusive; left out when it is ``first``.
        """
        lines = "" if first is None else f"#L{first}" + (f"-L{last}" if last is not None and last != first else "")
        return f"{FORGE}/{self.repository}/blob/{self.commit or self.ref}/{quote(self.upstream_path(path))}{lines}"


_TEXT, _TEXTS, _WHOLE, _TRUTH, _TABLE = (
    "a string",
    "a list of strings",
    "a whole number",
    "true or false",
    "a table of strings",
)
_FORMS = {
    **dict.fromkeys(("version", "kind", "license", "repository", "ref", "project", "artifact", "sha256"), _TEXT),
    **dict.fromkeys(("record", "tree", "commit", "run", "distribution"), _TEXT),
    **dict.fromkeys(("paths", "differs"), _TEXTS),
    "size": _WHOLE,
    "optional": _TRUTH,
    "upstream": _TABLE,
}
_ALWAYS = ("version", "kind", "license", "repository", "ref", "paths")
_BY_KIND: dict[str, tuple[str, ...]] = {
    "wheel": ("project", "artifact", "sha256", "size", "tree"),
    "sdist": ("project", "artifact", "sha256", "size", "tree"),
    "members": ("project", "artifact", "sha256", "size", "record", "tree"),
    "git": ("commit",),
}
_FOREIGN: dict[str, tuple[str, ...]] = {
    "wheel": ("record",),
    "sdist": ("record",),
    "members": (),
    "git": ("project", "artifact", "sha256", "size", "record"),
}
_HEX64 = (r"[0-9a-f]{64}", "64 hexadecimal digits")
_PATTERNS = {
    "sha256": _HEX64,
    "record": _HEX64,
    "tree": _HEX64,
    "commit": (r"[0-9a-f]{40}", "40 hexadecimal digits"),
    "kind": (r"wheel|members|sdist|git", "wheel, members, sdist or git"),
    "run": (r"tree|installed|none", "tree, installed or none"),
    "repository": (r"[\w.-]+/[\w.-]+", "owner/name"),
    "artifact": (r"[\w+][\w.+-]*", "a bare file name"),
    "version": (r"[\w+][\w.+-]*", "a version"),
    "ref": (r"[\w][\w./+-]*", "a tag"),
}
_RESERVED = ("licenses",)


def read_lock(path: Path, *, unmeasured: str | None = None) -> dict[str, Pin]:
    """All pins of a lock, in its order.

    Args:
        path: the ``pins.toml``.
        unmeasured: the one pin whose `MEASURED` fields may be absent, because they are about to be computed.

    Raises:
        LockError: the file is absent or not TOML, a key is unknown, a field is missing or of the wrong form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(_shown(path), expected="a readable lock", found=str(error)) from error
    except tomllib.TOMLDecodeError as error:
        raise LockError(_shown(path), expected="TOML", found=str(error)) from error
    reader = _Reader(_shown(path), text.splitlines())
    return {name: reader.pin(name, table, complete=name != unmeasured) for name, table in tables.items()}


def _shown(path: Path) -> str:
    """A path as messages show it: from its last two parts, which name it in every checkout."""
    return "/".join(path.parts[-2:])


@dataclass(frozen=True)
class _Reader:
    """Checks the tables of one lock; keeps its lines so that a message can name the line."""

    file: str
    lines: list[str]

    def pin(self, name: str, table: object, *, complete: bool) -> Pin:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) or name in _RESERVED:
            raise LockError(self.place(name), expected="a pin name of a-z, 0-9 and -", found=repr(name))
        if not isinstance(table, dict):
            raise LockError(self.place(name), expected=f"a table [{name}]", found=repr(table))
        self.known(name, table)
        self.forms(name, table)
        self.required(name, table, complete)
        return _build(name, table)

    def known(self, name: str, table: Mapping[str, Any]) -> None:
        for key in table:
            if key not in _FORMS:
                remedy = did_you_mean(near_matches(key, _FORMS)) or "remove it"
                raise LockError(self.place(name, key), expected="a known key", found=repr(key), remedy=remedy)

    def forms(self, name: str, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            form = _FORMS[key]
            if not _has_form(value, form):
                raise LockError(self.place(name, key), expected=f"{key} to be {form}", found=repr(value))
            pattern, words = _PATTERNS.get(key, ("(?s).+", "not empty"))
            if form == _TEXT and not re.fullmatch(pattern, value):
                raise LockError(self.place(name, key), expected=f"{key} to be {words}", found=repr(value))
        for key in ("paths", "differs"):
            for glob in table.get(key, ()):
                if glob.startswith("/") or ".." in glob.split("/") or not glob:
                    raise LockError(self.place(name, key), expected="globs inside the tree", found=repr(glob))
        if table.get("paths") == [] or table.get("size", 1) < 1:
            key = "size" if table.get("size", 1) < 1 else "paths"
            raise LockError(self.place(name, key), expected=f"{key} to hold something", found=repr(table[key]))

    def required(self, name: str, table: Mapping[str, Any], complete: bool) -> None:
        wanted = list(_ALWAYS)
        wanted += _BY_KIND.get(table.get("kind", ""), ())
        wanted += ["distribution"] if table.get("run") == "installed" else []
        for key in wanted:
            if key not in table and (complete or key not in MEASURED):
                remedy = (
                    f"add it, or run `annotator fetch {name} --relock` to compute it" if key in MEASURED else "add it"
                )
                raise LockError(self.place(name), expected=f"the field {key!r}", found="none", remedy=remedy)
        for key in _FOREIGN[table["kind"]]:
            if key in table:
                found = f"{key!r} in a pin of kind {table['kind']}"
                raise LockError(self.place(name, key), expected="fields of its kind", found=found, remedy="remove it")

    def place(self, name: str, key: str = "") -> str:
        """``vendored_refs/pins.toml:12 [verl]``: the line of the key, else of the table."""
        header = re.compile(rf"""\s*(\[\s*["']?{re.escape(name)}["']?\s*[\].]|["']?{re.escape(name)}["']?\s*=)""")
        start = next((number for number, line in enumerate(self.lines, 1) if header.match(line)), 0)
        entry = re.compile(rf"""\s*(\[.*\.)?["']?{re.escape(key)}["']?\s*[=\].]""")
        line = start
        for number in range(start + 1, len(self.lines) + 1) if key and start else ():
            if entry.match(self.lines[number - 1]):
                line = number
                break
        return f"{self.file}:{line} [{name}]" if line else f"{self.file} [{name}]"


def _has_form(value: object, form: str) -> bool:
    match form:
        case "a string":
            return isinstance(value, str)
        case "a list of strings":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "a whole number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "true or false":
            return isinstance(value, bool)
        case _:
            return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _build(name: str, table: Mapping[str, Any]) -> Pin:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Pin(name=name, **cast("dict[str, Any]", values))
