"""Where everything is on the site: whose page a text is, which steps show a line, where a definition's link leads.

Apart from rendering, so that the extension, the source pages and the checks agree on every address. All addresses are
relative to the site's root (``verl/grpo-advantage.html``); `relative` turns one into a link from a page, so that the
site works from a server, under any sub-path and from ``file://``.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from annotator import observations, pins
from annotator.errors import PinError, SymbolNotFound
from annotator.index import Index
from annotator.readings import anchor, load
from annotator.site import code

if TYPE_CHECKING:
    from annotator.index import Definition, Link
    from annotator.observations import Observed
    from annotator.pins import Pin
    from annotator.readings import Anchor, Reading, Step
    from annotator.site.proof import Card
    from annotator.workspace import Workspace

_DOCUMENTS = re.compile(r"^::: ([\w.]+)[ ]*$", re.MULTILINE)
_METHOD = re.compile(r"^/// contract \| ([\w-]+)[ ]*$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"-{3}[ \t]*\n.*?\n(?:\.{3}|-{3})[ \t]*\n", re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A step where the site shows it: its page, number, title and anchored lines."""

    page: str
    number: int
    title: str
    step: Step
    anchor: Anchor

    @property
    def id(self) -> str:
        """The element's id, ``step-…``; stable as long as the step keeps its id."""
        return f"step-{self.step.id}"

    @property
    def address(self) -> str:
        """``verl/grpo-advantage.html#step-…``."""
        return f"{self.page}#{self.id}"

    @property
    def within(self) -> str:
        """The symbol without its module: ``Class.method``."""
        module = self.anchor.path.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
        return self.step.symbol.partition(":")[2].removeprefix(module).strip(".")

    def shows(self, pin: str, path: str, line: int) -> bool:
        """Whether the step's code holds that line."""
        return (self.anchor.pin, self.anchor.path) == (pin, path) and self.anchor.first <= line <= self.anchor.last


@dataclass(frozen=True)
class Source:
    """A pinned file as the site shows it: its lines, coloured, and the links on each."""

    pin: str
    path: str
    language: str
    lines: tuple[str, ...]
    bits: tuple[list[code.Bit], ...]
    links: Mapping[int, list[Link]]


@dataclass
class Atlas:
    """The site's map, made once from a workspace. `current` hands it out and makes it anew when something changed."""

    workspace: Workspace
    lock: Mapping[str, Pin]
    index: Index
    pages: Mapping[str, Reading]
    sources: dict[tuple[str, str], Source] = field(default_factory=dict)
    anchored: dict[tuple[str, str], tuple[Place, ...]] = field(default_factory=dict)
    """Steps of readings by path and digest; looking for them takes longer than all else."""
    linked: set[tuple[str, str]] = field(default_factory=set)
    """Files that links of the pages lead to; filled while these are rendered."""
    whole: bool = False
    """Whether every file of the index has a source page."""
    cards: dict[str, Card] = field(default_factory=dict)
    observations: dict[str, Observed | None] = field(default_factory=dict)

    @classmethod
    def open(cls, workspace: Workspace) -> Atlas:
        """The atlas of a workspace. Anchors are looked for when they are first asked for.

        Raises:
            ReadingError: a reading that cannot be parsed. IndexFileError: no index. LockError: an unreadable lock.
        """
        pages = {digest(reading.text): reading for reading in load(workspace)}
        return cls(workspace, pins.read_lock(workspace.lock), Index.open(workspace), pages)

    def page(self, text: str) -> Reading | None:
        """The reading whose body ``text`` is, with or without front matter."""
        return self.pages.get(digest(text))

    @cached_property
    def places(self) -> Mapping[str, tuple[Place, ...]]:
        """The steps of each reading, by the reading's path, in order."""
        known = {(reading.path, key): reading for key, reading in self.pages.items()}
        self.anchored = {key: self.anchored.get(key) or self._places(reading) for key, reading in known.items()}
        return {path: places for (path, _), places in self.anchored.items()}

    @cached_property
    def touched(self) -> Mapping[tuple[str, str], tuple[Place, ...]]:
        """Every file that a reading touches, with the steps that show it."""
        files: dict[tuple[str, str], list[Place]] = {}
        for places in self.places.values():
            for place in places:
                files.setdefault((place.anchor.pin, place.anchor.path), []).append(place)
        return {key: tuple(files[key]) for key in sorted(files)}

    @cached_property
    def documented(self) -> Mapping[str, str]:
        """The page that documents a module of our own with mkdocstrings (``::: minimal.x``)."""
        return {name: page_address(r.path) for r in self.pages.values() for name in _DOCUMENTS.findall(r.text)}

    @cached_property
    def methods(self) -> Mapping[str, str]:
        """The page of a contract (``/// contract | x``), by the contract's name."""
        return {name: page_address(r.path) for r in self.pages.values() for name in _METHOD.findall(r.text)}

    def source(self, pin: str, path: str) -> Source:
        """A pinned file, read, coloured and resolved; kept while the atlas lives if steps show it.

        Raises:
            PinError: the pin is not fetched, or has no such file.
        """
        if (pin, path) in self.sources:
            return self.sources[pin, path]
        source = self._source(pin, path)
        if (pin, path) in self.touched:
            self.sources[pin, path] = source
        return source

    def observed(self, reading: str) -> Observed | None:
        """What a run showed of a reading, given by its path; ``None`` if nothing is recorded."""
        if reading not in self.observations:
            name = reading.removeprefix("walkthroughs/").removesuffix(".md")
            self.observations[reading] = observations.read(self.workspace, name)
        return self.observations[reading]

    def permalink(self, pin: str, path: str, first: int | None = None, last: int | None = None) -> str:
        """The same lines upstream, at the pinned commit."""
        return self.lock[pin].permalink(path, first, last)

    def address(self, definition: Definition) -> str:
        """Where a definition is read: the step that shows it, else its source page, which it thereby has."""
        key = (definition.pin, definition.path)
        for place in self.touched.get(key, ()):
            if place.shows(*key, definition.line):
                return place.address
        self.linked.add(key)
        return f"{source_address(*key)}#L{definition.line}"

    def browsed(self, definition: Definition) -> str:
        """Where a link of a source page leads: a source page if there is one, else upstream; never into prose."""
        key = (definition.pin, definition.path)
        if self.has_page(*key):
            return f"{source_address(*key)}#L{definition.line}"
        return self.permalink(*key, definition.line)

    def has_page(self, pin: str, path: str) -> bool:
        """Whether a file has a source page: a reading or a link touches it, or all have."""
        return self.whole or (pin, path) in self.touched or (pin, path) in self.linked

    @property
    def paged(self) -> list[tuple[str, str]]:
        """The files that have a source page, sorted."""
        if self.whole:
            return [(pin, path) for pin in self.index.pins() for path in self.index.paths(pin)]
        return sorted({*self.touched, *self.linked})

    def symbol(self, name: str) -> Definition | None:
        """The definition that a reference in prose names: ``verl.protocol.DataProto``; the pin may stand before it."""
        pin = name.split(":")[0] if ":" in name else name.split(".")[0]
        if pin not in self.lock:
            return None
        try:
            return self.index.definition(name if ":" in name else f"{pin}:{name}")
        except SymbolNotFound:
            return None

    def _places(self, reading: Reading) -> tuple[Place, ...]:
        page = page_address(reading.path)
        return tuple(
            Place(page, number, _title(step), step, anchor(step, self.workspace, self.index))
            for number, step in enumerate(reading.steps, 1)
        )

    def _source(self, pin: str, path: str) -> Source:
        from annotator.index.languages import decode, language_of

        text, language = decode(_bytes(pins.tree(self.workspace, pin) / path)), language_of(path) or ""
        links: dict[int, list[Link]] = {}
        for link in self.index.links(pin, path):
            links.setdefault(link.line, []).append(link)
        return Source(pin, path, language, tuple(code.split(text)), tuple(code.colour(text, language)), links)


def digest(text: str) -> str:
    """What tells a page by its body: front matter, line ends and outer blank lines do not count."""
    body = (
        _FRONT_MATTER.sub("", text.replace("\r\n", "\n").lstrip("\ufeff"), count=1)
        if text.lstrip("\ufeff").startswith("---")
        else text
    )
    lines = [line.rstrip() for line in body.replace("\r\n", "\n").lstrip("\ufeff").split("\n")]
    return hashlib.sha256("\n".join(lines).strip().encode()).hexdigest()


def page_address(path: str) -> str:
    """The address of a reading's page: ``walkthroughs/verl/x.md`` is at ``verl/x.html``."""
    return path.removeprefix("walkthroughs/").removesuffix(".md") + ".html"


def source_address(pin: str, path: str) -> str:
    """The address of a source page."""
    return f"source/{pin}/{path}.html"


def relative(address: str, page: str) -> str:
    """``address`` as a link from ``page``; addresses outside the site stay as they are."""
    if "://" in address:
        return address
    path, _, fragment = address.partition("#")
    link = "" if path == page and fragment else quote(posixpath.relpath(path, posixpath.dirname(page) or "."))
    return f"{link}#{quote(fragment)}" if fragment else link


def _title(step: Step) -> str:
    return str(step.options.get("title") or step.symbol.rpartition(".")[2])


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise PinError(
            str(file), expected="a file of the pin", found="none that can be read", remedy="run annotator fetch"
        ) from error


_current: dict[Path, tuple[object, Atlas]] = {}


def current(workspace: Workspace) -> Atlas:
    """The atlas of a workspace, made anew when a reading, an observation, minimal code, a proof, the lock or the index
    changed.

    When the lock and the index did not change, what depends on nothing else is kept: sources, the steps of readings
    that did not change, and links, which their pages still have.
    """
    told = [
        *workspace.readings.rglob("*.md"),
        *workspace.readings.rglob("*.observed.json"),
        *workspace.readings.rglob("*.scenario.py"),
        *(workspace.root / "minimal").rglob("*.py"),
        *workspace.proofs.rglob("*.json"),
    ]
    prose, base = _stamps(sorted(told)), _stamps([workspace.lock, workspace.index])
    known = _current.get(workspace.root)
    if known and known[0] == (prose, base):
        return known[1]
    atlas = Atlas.open(workspace)
    if known and known[0][1] == base:  # type: ignore[index]
        atlas.sources, atlas.linked, atlas.anchored = known[1].sources, known[1].linked, known[1].anchored
    _current[workspace.root] = ((prose, base), atlas)
    return atlas


def _stamps(files: list[Path]) -> tuple[tuple[str, int, int], ...]:
    return tuple((str(file), *_stamp(file)) for file in files)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
