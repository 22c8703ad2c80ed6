"""Trees of kept files: which are kept, what digest they have together, where they lie.

Apart from fetching because verification, loading and staleness need digests and places without any source of bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from annotator.errors import DigestError, PinError
from annotator.pins.lock import Pin
from annotator.workspace import Workspace

Manifest = Mapping[str, str]
"""Path in the tree (forward slashes) to the sha256 of the file, in hexadecimal."""


def keeper(globs: Iterable[str]) -> Callable[[str], bool]:
    """A test whether a path is kept: ``*`` stays within a folder, ``**`` spans folders, ``{a,b}`` is either."""
    pattern = re.compile("|".join(f"(?:{_translate(glob)})" for glob in globs) or r"(?!)")
    return lambda path: pattern.fullmatch(path) is not None


def _translate(glob: str) -> str:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": "|"}
    return "".join(parts.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|[*?{},])", glob))


def tree_digest(manifest: Manifest) -> str:
    """The digest of a tree: sha256 over the lines ``path NUL sha256 LF`` of its kept files, sorted by path (UTF-8)."""
    lines = sorted(f"{path}\0{digest}\n".encode() for path, digest in manifest.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scan(root: Path) -> dict[str, str]:
    """The manifest of what really lies in a folder. Byte-code caches are left out: they are never read from a tree."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            path = Path(folder, name)
            found[path.relative_to(root).as_posix()] = file_digest(path)
    return found


def cached_tree(workspace: Workspace, pin: Pin) -> Path:
    """Where the cache holds the tree of a pin, whether or not it is there."""
    return workspace.cache / "trees" / pin.slug


def manifest_beside(tree: Path) -> Path:
    """Where the manifest of a tree lies."""
    return tree.with_name(tree.name + ".manifest.json")


def is_ours(workspace: Workspace, pin: Pin) -> bool:
    """Whether ``fetch`` put ``vendored_refs/NAME`` there: a link into a cache, or a copy with its manifest beside it.

    Anything else is the user's own and is used as it stands.
    """
    place = workspace.tree(pin.name)
    if place.is_symlink():
        target = Path(os.readlink(place))
        return target.parent.name == "trees" and target.name.startswith(f"{pin.name}-")
    return place.is_dir() and manifest_beside(place).is_file()


def is_current(workspace: Workspace, pin: Pin) -> bool:
    """Whether a tree of the pin's bytes (by name, without hashing), or the user's own, is in place."""
    place = workspace.tree(pin.name)
    if not place.is_dir():
        return False
    if not is_ours(workspace, pin):
        return True
    if place.is_symlink():
        return Path(os.readlink(place)).name == pin.slug
    return _read_manifest(manifest_beside(place), pin) is not None


def locate(workspace: Workspace, pin: Pin) -> Path:
    """The tree of a pin, real path.

    Raises:
        PinError: it was not fetched, or is of another lock.
    """
    place = workspace.tree(pin.name)
    if is_current(workspace, pin):
        return place.resolve()
    found = "none" if not place.is_dir() else "one of other bytes"
    raise PinError(
        f"vendored_refs/{pin.name}",
        expected=f"the tree of {pin.name} {pin.version}",
        found=found,
        remedy=f"run `annotator fetch {pin.name}`",
    )


def manifest(workspace: Workspace, pin: Pin) -> Manifest:
    """The digests that the lock demands of each file of a tree.

    A stored manifest is believed only if it has the lock's tree digest; without one the tree itself is hashed.

    Raises:
        PinError: there is no tree.
        DigestError: no manifest is stored and the tree is not the lock's.
    """
    place = workspace.tree(pin.name)
    for candidate in (manifest_beside(place), manifest_beside(cached_tree(workspace, pin))):
        stored = _read_manifest(candidate, pin)
        if stored is not None:
            return stored
    found = scan(locate(workspace, pin))
    if pin.tree and tree_digest(found) != pin.tree:
        raise _damaged(pin, f"tree digest {tree_digest(found)[:12]}…")
    return found


def verify(workspace: Workspace, pin: Pin) -> None:
    """Hash every file of a tree and compare with the lock.

    Raises:
        PinError: there is no tree.
        DigestError: a file is changed, missing or extra; the message names the first.
    """
    root = locate(workspace, pin)
    wanted, found = manifest(workspace, pin), scan(root)
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            raise _damaged(pin, "no such file", path)
        if path not in wanted:
            raise _damaged(pin, "a file that the pin does not have", path)
        if wanted[path] != found[path]:
            raise _damaged(pin, f"sha256 {found[path][:12]}…", path)


def _damaged(pin: Pin, found: str, path: str = "") -> DigestError:
    place = f"vendored_refs/{pin.name}" + (f"/{path}" if path else "")
    remedy = f"run `annotator fetch {pin.name} --verify`, or remove your own copy first"
    return DigestError(place, expected=f"the bytes of {pin.name} {pin.version}", found=found, remedy=remedy)


def write_manifest(path: Path, digests: Manifest) -> None:
    """Store a manifest whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(dict(sorted(digests.items())), file, indent=0)
    os.replace(draft, path)


def _read_manifest(path: Path, pin: Pin) -> Manifest | None:
    """The stored manifest, or None where it is absent, unreadable or not of the lock's digest."""
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(stored, dict) or not all(isinstance(value, str) for value in stored.values()):
        return None
    return stored if not pin.tree or tree_digest(stored) == pin.tree else None
