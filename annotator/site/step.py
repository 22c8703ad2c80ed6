"""One step as HTML: its place, its code with links, and its other views. The note is not here: Markdown renders that.

The views Reference, PyTorch, JAX and Proof are radio buttons with labels and a stylesheet, complete without JavaScript.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from annotator.observations.model import Statement, scenario_digest, stale
from annotator.readings.essence import folds
from annotator.site import aligned, code, minimal, proof
from annotator.site.atlas import Atlas, Place, Source, relative, source_address

if TYPE_CHECKING:
    from jinja2 import Environment

    from annotator.index import Definition, Link

_NAME = re.compile(r"(?<![\w.])[A-Za-z]\w*")
_TITLES = {"torch": "PyTorch", "jax": "JAX"}


@dataclass(frozen=True)
class Line:
    """A shown line: its number, the link of that number, an id for deep links, its HTML, and what a run made there."""

    number: int
    href: str
    id: str
    html: str
    ran: Statement | None = None


@dataclass(frozen=True)
class Part:
    """Lines shown together; with a ``title`` they are folded away behind it."""

    lines: list[Line]
    title: str = ""


@dataclass(frozen=True)
class Group:
    """Lines of a minimal function, and the lines of the reference that do the same work."""

    lines: list[Line]
    beside: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """One of the four views of a step: ``key`` names its class, ``html`` is its panel."""

    key: str
    title: str
    html: str


def head(atlas: Atlas, place: Place) -> str:
    """Where the step is: file, lines, pin, and the permalink upstream."""
    a = place.anchor
    return _render(
        "where.html",
        place=place,
        pin=atlas.lock[a.pin],
        source=relative(f"{source_address(a.pin, a.path)}#L{a.first}", place.page),
        permalink=atlas.permalink(a.pin, a.path, a.first, a.last),
    )


def body(atlas: Atlas, place: Place) -> str:
    """The step's code in all its views."""
    return _render("views.html", id=place.id, views=list(_views(atlas, place)))


@dataclass(frozen=True)
class Stop:
    """A step on the map: its place, and the steps whose code its function calls."""

    place: Place
    calls: list[Place]


def overview(atlas: Atlas, places: Iterable[Place]) -> str:
    """The map of a reading: its steps in order, each a link, with its file, the process that runs it and the steps that
    its function calls. Where a recorded run came to the steps in another order, that order is shown too.
    """
    stops = [Stop(place, _called(atlas, place)) for place in places]
    seen = atlas.observed(stops[0].place.step.reading) if stops else None
    by_id = {stop.place.step.id: stop.place for stop in stops}
    ran = [by_id[name] for name in seen.order if name in by_id] if seen else []
    return _render("map.html", stops=stops, ran=ran if ran != sorted(ran, key=lambda one: one.number) else [])


def _called(atlas: Atlas, place: Place) -> list[Place]:
    """The steps, of other functions, that show a function which the function of this step uses by name."""
    others, own = atlas.places[place.step.reading], place.step.symbol
    if next(one for one in others if one.step.symbol == own) != place:
        return []  # said once for a function, not once for each of its steps
    source, (first, last) = atlas.source(place.anchor.pin, place.anchor.path), place.anchor.within
    lines = range(first, last + 1)
    head = next((line for line in lines if not source.lines[line - 1].lstrip().startswith("@")), first)
    used = {link.target.symbol for line in lines[head - first :] for link in source.links.get(line, ()) if link.target}
    return [one for one in others if one.step.symbol != own and one.step.symbol in used]


def _views(atlas: Atlas, place: Place) -> Iterator[View]:
    parts = _folded(atlas, place, _reference(atlas, place))
    code_html = _render("code.html", parts=parts, name=place.step.symbol, caption="")
    yield View("reference", "Reference", _observed(atlas, place) + code_html)
    wanted = place.step.options.get("minimal")
    for backend in minimal.BACKENDS if wanted else ():
        shown = minimal.function(atlas.workspace, str(wanted), backend, place.step.place("minimal"))
        yield View(backend, _TITLES[backend], _beside(atlas, place, shown))
    contract = place.step.options.get("contract")
    if contract:
        card = proof.cached(atlas, str(contract), place.step.place("contract"))
        full_at, method = _table_at(atlas, str(contract), place), _method_at(atlas, str(contract), place)
        yield View("proof", "Proof", _render("proof.html", card=card, full_at=full_at, method=method))


def _beside(atlas: Atlas, place: Place, shown: minimal.Function) -> str:
    """A minimal function, under its statements those of the reference that do the same work, and what has none."""
    found, lines = aligned.align(atlas, place, shown), minimal_lines(atlas, place.page, shown)
    groups, at = [], 0
    for (first, last), theirs in sorted(found.pairs.items()) if found else ():
        start, end = first - shown.first, last + 1 - shown.first
        if start < at or end > len(lines):
            continue
        groups += [
            Group(lines[at:start]),
            Group(lines[start:end], [one for ends in theirs for one in _lines(atlas, place, *ends)]),
        ]
        at = end
    pin = atlas.lock[place.anchor.pin]
    return _render(
        "beside.html",
        name=f"{shown.path}:{shown.first}",
        library=f"{pin.name} {pin.version}",
        groups=[group for group in [*groups, Group(lines[at:])] if group.lines],
        alignment=found,
        left=[(kind, [_extent(place, *ends) for ends in held]) for kind, held in found.left.items()] if found else [],
    )


def _lines(atlas: Atlas, place: Place, first: int, last: int) -> Iterator[Line]:
    """A statement of a step's reference as it stands under a minimal one: its numbers lead to the source page."""
    source = atlas.source(place.anchor.pin, place.anchor.path)
    skip = code.indentation(source.lines[first - 1 : last])
    for number in range(first, last + 1):
        html = code.line_html(source.bits[number - 1], (), skip)
        yield Line(number, _extent(place, number, number)[1], "", html)


def _extent(place: Place, first: int, last: int) -> tuple[str, str]:
    """Lines of a step's reference as a text and as a link to the source page."""
    address = f"{source_address(place.anchor.pin, place.anchor.path)}#L{first}"
    return (str(first) if first == last else f"{first}–{last}"), relative(address, place.page)


def _table_at(atlas: Atlas, contract: str, place: Place) -> str:
    """Where the page shows a contract's whole table: at its first step; empty for that step itself."""
    first = next(p for p in atlas.places[place.step.reading] if p.step.options.get("contract") == contract)
    return "" if first == place else f"#{first.id}"


def _method_at(atlas: Atlas, contract: str, place: Place) -> str:
    """The page of a contract as a link from a step; empty if the site has none."""
    address = atlas.methods.get(contract)
    return relative(address, place.page) if address else ""


def _reference(atlas: Atlas, place: Place) -> list[Line]:
    a = place.anchor
    source = atlas.source(a.pin, a.path)
    skip = code.indentation(source.lines[a.first - 1 : a.last])
    page = source_address(a.pin, a.path)
    ran = _ran(atlas, place)
    return [
        Line(
            number,
            relative(f"{page}#L{number}", place.page),
            f"{place.id}-L{number}",
            code.line_html(source.bits[number - 1], spans(atlas, source, number, place), skip),
            ran.get(number),
        )
        for number in range(a.first, a.last + 1)
    ]


def _folded(atlas: Atlas, place: Place, lines: list[Line]) -> list[Part]:
    """The lines of a step in parts: what it computes, and plumbing folded away."""
    source = atlas.source(place.anchor.pin, place.anchor.path)
    if source.language != "python" or place.step.options.get("fold") == "none":
        return [Part(lines)]
    parts, start, first = [], 0, place.anchor.first
    for fold in folds("\n".join(source.lines), first, place.anchor.last):
        end = fold.last - first + 1
        parts += [Part(lines[start : fold.first - first]), Part(lines[fold.first - first : end], fold.title)]
        start = end
    return [part for part in [*parts, Part(lines[start:])] if part.lines]


def _ran(atlas: Atlas, place: Place) -> Mapping[int, Statement]:
    """What a recorded run did on the lines of a step, by line; empty if it did not come by."""
    seen = atlas.observed(place.step.reading)
    return seen.at(place.anchor.pin, place.anchor.path) if seen and place.step.id in seen.steps else {}


def _observed(atlas: Atlas, place: Place) -> str:
    """The bar above code that ran: its sizes and versions, and switches for values and gradients."""
    seen, ran = atlas.observed(place.step.reading), _ran(atlas, place)
    if seen is None or not ran:
        return ""
    steps = {other.step.id: other.anchor.digest for other in atlas.places[place.step.reading]}
    reasons = stale(seen, scenario_digest(atlas.workspace, seen.reading), steps)
    lines = range(place.anchor.first, place.anchor.last + 1)
    moving = any(value.gradient for line in lines if line in ran for value in ran[line].seen)
    return _render("observed.html", place=place, seen=seen, reasons=reasons, moving=moving)


def minimal_lines(atlas: Atlas, page: str, shown: minimal.Function) -> list[Line]:
    """The lines of a minimal function or file for ``page``; names of its file lead to the page that documents it."""
    documented = atlas.documented.get(shown.module)
    base = relative(f"{documented}#{shown.module}.", page) if documented else ""
    bits = code.colour("\n".join(shown.lines))
    return [
        Line(number, "", "", code.line_html(line, _own_names(line, shown, base) if base else ()))
        for number, line in enumerate(bits, shown.first)
    ]


def _own_names(bits: list[code.Bit], shown: minimal.Function, base: str) -> Iterator[code.Span]:
    column = 0
    for colour, text in bits:
        for match in _NAME.finditer(text) if not colour else ():
            if match[0] in shown.public and match[0] != shown.name:
                at = column + match.start()
                yield code.Span(at, at + len(match[0]), base + match[0], "exact", shown.public[match[0]])
        column += len(text)


def spans(atlas: Atlas, source: Source, number: int, place: Place) -> list[code.Span]:
    """The links of one line, as seen from a step."""
    return [
        span
        for link in source.links.get(number, ())
        if link.target is not None and (span := _span(atlas, source, link, link.target, place))
    ]


def _span(atlas: Atlas, source: Source, link: Link, target: Definition, place: Place) -> code.Span | None:
    key = (target.pin, target.path)
    if key == (source.pin, source.path) and target.line == link.line:
        return None
    inside = place.shows(*key, target.line)
    address = f"{place.page}#{place.id}-L{target.line}" if inside else atlas.address(target)
    return code.Span(link.column, link.end_column, relative(address, place.page), link.certainty, tip(target, link))


def tip(target: Definition, link: Link | None = None) -> str:
    """Signature and first line of the docstring, and why an inferred link is only that."""
    what = " ".join((target.signature or f"{target.kind} {target.qualname}").split())
    doc = (target.doc or "").strip().split("\n")[0]
    doubt = f"inferred: {link.reason}" if link and link.certainty == "inferred" and link.reason else ""
    return "\n".join(_short(part) for part in (what, doc, doubt) if part)


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values).strip()


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Jinja2 with this package's templates; everything is escaped that a template does not mark safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("annotator.site", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
