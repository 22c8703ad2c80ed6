"""Source pages: every pinned file that a reading or a link touches, or all of them, with line numbers, links, and the
steps in the margin.

Our own writer, apart from MkDocs: a page of 3,000 lines is one ``<pre>`` in chunks that the browser lays out when they
come into view, and stays out of the search index of prose. A page says in its head what it was made of; one of an
earlier build that was made of the same is taken over.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from annotator.errors import SiteError
from annotator.index import Index
from annotator.pins import Progress
from annotator.site import code, step
from annotator.site.atlas import Atlas, Place, Source, relative, source_address
from annotator.site.policy import POLICY

if TYPE_CHECKING:
    from annotator.index import Definition, Link
    from annotator.pins import Pin
    from annotator.workspace import Workspace

CHUNK = 100
"""Lines that are laid out together; the stylesheet knows their height."""

ALONE = 60
"""So many pages, or fewer, are not worth other processes."""

BATCH = 40
"""Pages that a process is given at a time."""

_OUTLINED = frozenset({"class", "function", "method", "struct", "enum", "namespace"})
_MADE_OF = re.compile(rb'<meta name="made-of" content="(\w+)">')

Files = list[tuple[str, str]]


@dataclass(frozen=True)
class Entry:
    """A definition in a page's outline."""

    line: int
    depth: int
    name: str
    kind: str


def write(
    atlas: Atlas, site: Path, progress: Progress | None = None, *, before: Path | None = None, jobs: int | None = None
) -> list[Path]:
    """Write the source page of every file that has one under ``site``. A page of the site ``before`` that was made of
    the same is linked there instead.

    ``jobs``: processes (default: the machine's cores), used where there are many pages.

    Raises:
        SiteError: a page cannot be written. PinError: a file of a pin is not there.
    """
    files = atlas.paged
    if progress:
        progress.start("source pages", len(files))
    taken = {key for key in files if _take_over(atlas, site, before or site, *key)}
    missing = [key for key in files if key not in taken]
    jobs = min(jobs or os.cpu_count() or 1, len(missing) // ALONE + 1)
    if progress and taken:
        progress.advance("source pages", len(taken))
    for done in (
        _write_apart(atlas, site, missing, jobs) if jobs > 1 else (_write(atlas, site, [key]) for key in missing)
    ):
        if progress:
            progress.advance("source pages", done)
    if progress:
        progress.finish("source pages")
    return [site / source_address(*key) for key in files]


def page(atlas: Atlas, pin: str, path: str) -> str:
    """The source page of one file, whole."""
    source, address = atlas.source(pin, path), source_address(pin, path)
    places = atlas.touched.get((pin, path), ())
    definitions = atlas.index.definitions(pin, path)
    return (
        step.environment()
        .get_template("source.html")
        .render(
            pin=atlas.lock[pin],
            path=path,
            policy=POLICY,
            made_of=made_of(atlas, pin, path),
            count=len(source.lines),
            permalink=atlas.permalink(pin, path),
            root=relative("index.html", address).removesuffix("index.html"),
            places=[(place, relative(place.address, address)) for place in places],
            outline=list(outline(definitions)),
            chunks=list(_chunks(atlas, source, places, definitions)),
        )
    )


def outline(definitions: list[Definition]) -> Iterator[Entry]:
    """What a file defines, in the order of its lines: classes, functions and methods."""
    for item in sorted(definitions, key=lambda d: (d.line, d.column)):
        if item.kind in _OUTLINED and item.qualname and "<locals>" not in item.qualname:
            yield Entry(item.line, item.qualname.replace("::", ".").count("."), item.name, item.kind)


def made_of(atlas: Atlas, pin: str, path: str) -> str:
    """A digest of all that a page depends on: the index, its own steps, the other pages, and the code that makes it."""
    places = atlas.touched.get((pin, path), ())
    steps = [(place.address, place.number, place.title, place.anchor.first, place.anchor.last) for place in places]
    others = "all" if atlas.whole else atlas.paged
    told = repr((_rules(), atlas.index.generation, atlas.lock[pin], steps, others))
    return hashlib.sha256(told.encode()).hexdigest()[:24]


@cache
def _rules() -> str:
    """A digest of the code that makes pages: the resolver's, and this package's."""
    from annotator.index.resolver import rules

    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here / "templates" / "source.html"]
    return rules() + hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _take_over(atlas: Atlas, site: Path, before: Path, pin: str, path: str) -> bool:
    """Whether an earlier page was made of the same; then it is the new one too."""
    old, new = (folder / source_address(pin, path) for folder in (before, site))
    try:
        with open(old, "rb") as stream:
            found = _MADE_OF.search(stream.read(1500))
        if not found or found[1].decode() != made_of(atlas, pin, path):
            return False
        if old != new:
            new.parent.mkdir(parents=True, exist_ok=True)
            os.link(old, new)
    except OSError:
        return False
    return True


# Other processes


def _write_apart(atlas: Atlas, site: Path, files: Files, jobs: int) -> Iterator[int]:
    """Writes pages in other processes, started anew rather than forked; gives how many, batch by batch."""
    batches = [files[at : at + BATCH] for at in range(0, len(files), BATCH)]
    shared = (atlas.workspace, atlas.lock, dict(atlas.touched), atlas.linked, atlas.whole, site)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=shared) as pool:
            yield from pool.map(_write_batch, batches)
    except BrokenProcessPool as error:
        raise SiteError("source pages", expected="processes that write them", found="one that ended") from error


_here: tuple[Atlas, Path] | None = None


def _begin(
    workspace: Workspace,
    lock: Mapping[str, Pin],
    touched: Mapping[tuple[str, str], tuple[Place, ...]],
    linked: set[tuple[str, str]],
    whole: bool,
    site: Path,
) -> None:
    """Makes the map anew in a process of its own: an opened index cannot be handed over."""
    global _here
    gc.disable()  # trees and tables hold no cycles, and looking for some costs a tenth of the time
    atlas = Atlas(workspace, lock, Index.open(workspace), {}, linked=linked, whole=whole)
    atlas.touched = touched
    _here = atlas, site


def _write_batch(files: Files) -> int:
    assert _here is not None
    return _write(*_here, files)


# One page


def _write(atlas: Atlas, site: Path, files: Files) -> int:
    for pin, path in files:
        file = site / source_address(pin, path)
        text = page(atlas, pin, path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                file.unlink()  # an earlier site may share it
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SiteError(str(file), expected="a page that can be written", found=error.strerror or "none") from error
    return len(files)


def _chunks(atlas: Atlas, source: Source, places: tuple[Place, ...], definitions: list[Definition]) -> Iterator[str]:
    address = source_address(source.pin, source.path)
    anchors, links, marks = _anchors(definitions), _links(atlas, source, address), _marks(places, address)
    nothing: list[code.Span] = []
    for first in range(0, len(source.bits), CHUNK):  # an empty file too has a line that links lead to
        yield "".join(
            f'<a class="n" id="L{number}" href="#L{number}">{number}</a>{marks.get(number, "")}'
            f"{code.line_html(bits, anchors.get(number, nothing) + links.get(number, nothing))}\n"
            for number, bits in enumerate(source.bits[first : first + CHUNK], first + 1)
        )


def _links(atlas: Atlas, source: Source, address: str) -> dict[int, list[code.Span]]:
    """The links of each line. What leads to one place in one way is written once and kept."""
    known: dict[tuple[object, ...], tuple[str, str, str]] = {}
    spans: dict[int, list[code.Span]] = {}
    for number, links in source.links.items():
        for link in links:
            target = link.target
            if target is None:
                continue
            key = (target.line, target.column, target.path, target.pin, link.certainty, link.reason)
            if key not in known:
                known[key] = _leading(atlas, source, link, target, address)
            if target.line != number or known[key][0] != f"#L{number}":
                spans.setdefault(number, []).append(code.Span(link.column, link.end_column, *known[key]))
    return spans


def _leading(atlas: Atlas, source: Source, link: Link, target: Definition, address: str) -> tuple[str, str, str]:
    """Where a link leads, its kind, and what its card says."""
    at_home = (target.pin, target.path) == (source.pin, source.path)
    href = f"#L{target.line}" if at_home else relative(atlas.browsed(target), address)
    return href, link.certainty, step.tip(target, link)


def _marks(places: Iterable[Place], address: str) -> dict[int, str]:
    """The margin of each line: a bar where a step shows it, and the step's number where it begins."""
    marks: dict[int, str] = {}
    for place in places:
        for number in range(place.anchor.first, place.anchor.last + 1):
            marks.setdefault(number, "<u></u>")
    for place in reversed(list(places)):
        title = code.attribute(f"step {place.number} of {place.step.reading}: {place.title}")
        href = code.attribute(relative(place.address, address))
        marks[place.anchor.first] = f'<a class="m" href="{href}" title="{title}">{place.number}</a>'
    return marks


def _anchors(definitions: list[Definition]) -> Mapping[int, list[code.Span]]:
    """An id at every definition's name: its qualified name. The first of several wins (overloads, branches)."""
    first = {d.qualname: d for d in sorted(definitions, key=lambda d: (-d.line, -d.column)) if d.qualname}
    return code.by_line(
        (d.line, code.Span(d.column, d.column + len(d.name), anchor=d.qualname.replace(" ", "")))
        for d in first.values()
        if d.kind in _OUTLINED
    )
