"""Data for the search of symbols in the page: names of all pins by what they and their parts begin with.

Static files, made from the index and fetched by ``assets/symbols.js`` as a reader types:

- ``symbols/parts/NUMBER.json``: names, in the order of what they and their parts begin with (``GRPOTrainer`` stands at
  ``grpotrainer`` and at ``trainer``), a stretch of that order each.
- ``symbols/best/PREFIX.json``: of a prefix of too many names, the likeliest.
- ``symbols/names/NUMBER.json``: where names are defined, a stretch of the alphabet each.
- ``symbols/manifest.json``: where the stretches begin, which files have a source page, where the others are upstream.

Only the last depends on the site; the rest is made once an index and kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotator.index.lookup import ASIDE, RANK

if TYPE_CHECKING:
    from annotator.index import Definition
    from annotator.site.atlas import Atlas

CROWD = 1500
"""More names than these with one prefix are too many to be fetched; so many stand in one stretch of the parts too."""

BEST = 300
"""Names that a prefix of too many still has."""

STRETCH = 700
"""Definitions of a stretch of the alphabet."""

SAME = 2500
"""Definitions of one name that are listed; how many there are beyond is said."""

PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""A part of a name; ``assets/symbols.js`` has the same."""

UNLIKELY = 8
"""Classes of names: from what a library offers in Python to attributes that its tests have in C++."""

Shelf = list[list[str]]
"""Names, one list a class."""

Row = tuple[str, str, int, str, str]
"""Folder (the pin first), file, line, kind, and what the definition stands in."""


def write(atlas: Atlas, site: Path) -> None:
    """Write the data of the search under ``site``, most of it linked from the cache."""
    made = _cached(atlas)
    for file in made.rglob("*.json"):
        target = site / "symbols" / file.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            _link(file, target)
    manifest = json.loads((made / "contents.json").read_text(encoding="utf-8"))
    _dump(site / "symbols" / "manifest.json", manifest | _addresses(atlas))
    (site / "symbols" / "contents.json").unlink()


def beginnings(name: str) -> list[str]:
    """What a search for a name may begin with: the name from each of its parts on, folded."""
    parts = [part.lower() for part in PART.findall(name)]
    return ["".join(parts[at:]) for at in range(len(parts))]


def stretches(names: dict[str, int]) -> tuple[list[str], list[Shelf]]:
    """Names, given with how unlikely each is, in the order of what they begin with: where stretches begin, and they."""
    pairs = sorted((beginning, name) for name in names for beginning in set(beginnings(name)))
    parts = [pairs[at : at + CROWD] for at in range(0, len(pairs), CROWD)]
    return [part[0][0] for part in parts], [_shelf({name for _, name in part}, names) for part in parts]


def best(names: dict[str, int]) -> dict[str, Shelf]:
    """The likeliest names of each prefix that too many have."""
    found: dict[str, Shelf] = {}
    crowds = [("", [(beginning, name) for name in names for beginning in set(beginnings(name))])]
    while crowds:
        prefix, pairs = crowds.pop()
        some = {name for _, name in pairs}
        if prefix and len(some) <= CROWD:
            continue
        if prefix:
            found[prefix] = _shelf(sorted(some, key=lambda name: (names[name], len(name), name))[:BEST], names)
        longer: dict[str, list[tuple[str, str]]] = {}
        for beginning, name in pairs:
            if len(beginning) > len(prefix):
                longer.setdefault(beginning[: len(prefix) + 1], []).append((beginning, name))
        crowds += longer.items()
    return found


def _shelf(some: Iterable[str], names: dict[str, int]) -> Shelf:
    """Names by how unlikely they are, the short before the long."""
    shelf: Shelf = [[] for _ in range(UNLIKELY)]
    for name in sorted(some, key=lambda name: (len(name), name)):
        shelf[names[name]].append(name)
    return shelf


def _cached(atlas: Atlas) -> Path:
    """The folder of the data that depends on the index alone, made if it is not there."""
    code = Path(__file__).read_bytes()
    mark = hashlib.sha256(repr((atlas.index.generation, list(atlas.lock), code)).encode()).hexdigest()[:16]
    cache = atlas.workspace.root / ".cache"
    folder = cache / f"symbols-{mark}"
    if not folder.is_dir():
        for old in cache.glob("symbols-*"):
            shutil.rmtree(old, ignore_errors=True)
        making = cache / f"symbols-{mark}.{os.getpid()}"
        _make(atlas, making)
        making.rename(folder)
    return folder


def _make(atlas: Atlas, folder: Path) -> None:
    pins = list(atlas.lock)
    aside: dict[str, bool] = {}
    found: dict[str, list[tuple[tuple[Any, ...], Row]]] = {}
    for one in atlas.index.every():
        if one.path not in aside:
            aside[one.path] = bool(ASIDE.search(one.path))
        found.setdefault(one.name, []).append((_likely(one, aside[one.path], pins), _row(one)))
    for rows in found.values():
        rows.sort()
    unlikely = {name: _class(rows[0][0]) for name, rows in found.items()}
    parts, shelves = stretches(unlikely)
    for number, shelf in enumerate(shelves):
        _dump(folder / "parts" / f"{number}.json", shelf)
    crowded = best(unlikely)
    for prefix, shelf in crowded.items():
        _dump(folder / "best" / f"{prefix}.json", shelf)
    first = []
    for number, stretch in enumerate(_stretches({name: [row for _, row in found[name]] for name in sorted(found)})):
        first.append(next(iter(stretch)))
        _dump(folder / "names" / f"{number}.json", _packed(stretch))
    _dump(folder / "contents.json", {"parts": parts, "best": sorted(crowded), "names": first})


def _likely(one: Definition, aside: bool, pins: list[str]) -> tuple[Any, ...]:
    """Sort key of a definition: what a library offers before its tests, source before stubs, classes before attributes,
    and what stands inside a function last."""
    other = one.language != "python" or one.path.endswith(".pyi")
    nested = 2 * (one.kind == "function" and "." in one.qualname)
    return aside, other, RANK.get(one.kind, 3) + nested, pins.index(one.pin), one.path, one.line


def _class(likely: tuple[Any, ...]) -> int:
    aside, other, kind, *_ = likely
    return int(4 * aside + 2 * other + (kind > max(RANK.values())))


def _row(one: Definition) -> Row:
    folder, _, file = f"{one.pin}/{one.path}".rpartition("/")
    within = one.qualname.removesuffix(one.name).rstrip(".:")
    return folder, file, one.line, one.kind, within


def _stretches(definitions: dict[str, list[Row]]) -> Iterator[dict[str, list[Row]]]:
    stretch: dict[str, list[Row]] = {}
    size = 0
    for name, rows in definitions.items():
        if size >= STRETCH:
            yield stretch
            stretch, size = {}, 0
        stretch[name] = rows
        size += min(len(rows), SAME)
    if stretch:
        yield stretch


def _packed(stretch: dict[str, list[Row]]) -> dict[str, Any]:
    """A stretch as it is written: folders once; of overloads and branches, which stand in one file, the first."""
    folders: dict[str, int] = {}
    names: dict[str, list[Any]] = {}
    more: dict[str, int] = {}
    for name, rows in stretch.items():
        different: dict[tuple[str, str, str, str], int] = {}
        for folder, file, line, kind, within in rows:
            different.setdefault((folder, file, kind, within), line)
        listed = [
            [folders.setdefault(folder, len(folders)), file, line, kind, within]
            for (folder, file, kind, within), line in islice(different.items(), SAME)
        ]
        names[name] = listed
        if len(different) > SAME:
            more[name] = len(different) - SAME
    return {"folders": list(folders), "names": names, "more": more}


def _addresses(atlas: Atlas) -> dict[str, Any]:
    """Where a file is read: here, if it has a page, else upstream."""
    mark = "\x00"
    upstream = {name: pin.permalink(mark).replace("%00", "") for name, pin in atlas.lock.items()}
    moved = {name: dict(pin.upstream) for name, pin in atlas.lock.items() if pin.upstream}
    paged = True if atlas.whole else [f"{pin}/{path}" for pin, path in atlas.paged]
    return {"upstream": upstream, "moved": moved, "paged": paged}


def _dump(file: Path, value: Iterable[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)
