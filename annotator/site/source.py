"""Source pages: every pinned file that a reading touches, with line numbers, links, and the steps in the margin.

Our own writer, apart from MkDocs: a page of 3,000 lines is one ``<pre>`` in chunks that the browser lays out when they
come into view, and stays out of the search index of prose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from annotator.errors import SiteError
from annotator.pins import Progress
from annotator.site import code, step
from annotator.site.atlas import Atlas, Place, Source, relative, source_address

if TYPE_CHECKING:
    from annotator.index import Definition

CHUNK = 100
"""Lines that are laid out together."""

_OUTLINED = frozenset({"class", "function", "method", "struct", "enum", "namespace"})


@dataclass(frozen=True)
class Chunk:
    """Lines laid out together: how many, and their HTML."""

    count: int
    html: str


@dataclass(frozen=True)
class Entry:
    """A definition in a page's outline."""

    line: int
    depth: int
    name: str
    kind: str
    title: str


def write(atlas: Atlas, site: Path, progress: Progress | None = None) -> list[Path]:
    """Write the source page of every touched file under ``site``; files that did not change are left alone.

    Raises:
        SiteError: a page cannot be written. PinError: a file of a pin is not there.
    """
    written = []
    if progress:
        progress.start("source pages", len(atlas.touched))
    for pin, path in atlas.touched:
        written.append(_write(site / source_address(pin, path), page(atlas, pin, path)))
        if progress:
            progress.advance("source pages", 1)
    if progress:
        progress.finish("source pages")
    return written


def page(atlas: Atlas, pin: str, path: str) -> str:
    """The source page of one file, whole."""
    source, address = atlas.source(pin, path), source_address(pin, path)
    places = atlas.touched.get((pin, path), ())
    return (
        step.environment()
        .get_template("source.html")
        .render(
            pin=atlas.lock[pin],
            path=path,
            count=len(source.lines),
            permalink=atlas.permalink(pin, path),
            root=relative("index.html", address).removesuffix("index.html"),
            places=[(place, relative(place.address, address)) for place in places],
            outline=list(outline(atlas.index.definitions(pin, path))),
            chunks=list(_chunks(atlas, source, places)),
        )
    )


def outline(definitions: list[Definition]) -> Iterator[Entry]:
    """What a file defines, in the order of its lines: classes, functions and methods."""
    for item in sorted(definitions, key=lambda d: (d.line, d.column)):
        if item.kind in _OUTLINED and item.qualname and "<locals>" not in item.qualname:
            yield Entry(item.line, item.qualname.replace("::", ".").count("."), item.name, item.kind, step.tip(item))


def _chunks(atlas: Atlas, source: Source, places: tuple[Place, ...]) -> Iterator[Chunk]:
    anchors = _definition_spans(atlas.index.definitions(source.pin, source.path))
    address = source_address(source.pin, source.path)
    for first in range(1, len(source.lines) + 1, CHUNK):
        numbers = range(first, min(first + CHUNK, len(source.lines) + 1))
        yield Chunk(
            len(numbers), "".join(_line(atlas, source, n, anchors, _marks(places, n, address)) for n in numbers)
        )


def _line(atlas: Atlas, source: Source, number: int, anchors: Mapping[int, list[code.Span]], mark: str) -> str:
    spans = [*anchors.get(number, ()), *step.spans(atlas, source, number)]
    shown = code.line_html(source.bits[number - 1], spans)
    return f'<a class="n" id="L{number}" href="#L{number}">{number}</a>{mark}{shown}\n'


def _marks(places: tuple[Place, ...], number: int, address: str) -> str:
    """The margin of a line: a bar where a step shows it, and the step's number where it begins."""
    inside = [p for p in places if p.anchor.first <= number <= p.anchor.last]
    if not inside:
        return ""
    begins = [p for p in inside if p.anchor.first == number]
    if not begins:
        return "<u></u>"
    place = begins[0]
    title = code.attribute(f"step {place.number} of {place.step.reading}: {place.title}")
    return f'<a class="m" href="{code.attribute(relative(place.address, address))}" title="{title}">{place.number}</a>'


def _definition_spans(definitions: list[Definition]) -> Mapping[int, list[code.Span]]:
    """An id at every definition's name: its qualified name. The first of several wins (overloads, branches)."""
    first = {d.qualname: d for d in sorted(definitions, key=lambda d: (-d.line, -d.column)) if d.qualname}
    return code.by_line(
        (d.line, code.Span(d.column, d.column + len(d.name), anchor=d.qualname.replace(" ", "")))
        for d in first.values()
        if d.kind in _OUTLINED
    )


def _write(file: Path, text: str) -> Path:
    try:
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SiteError(str(file), expected="a page that can be written", found=error.strerror or "none") from error
    return file
