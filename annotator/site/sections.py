"""The page of a contract as HTML, section by section; the headings are Markdown's, so that its table of contents has
them. What a section shows is gathered by `methods`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from annotator import catalog
from annotator.contracts.model import Contract
from annotator.contracts.structure import entry_of
from annotator.errors import ReadingError
from annotator.site import code, methods, minimal, proof, step
from annotator.site.atlas import Atlas, Place, relative
from annotator.site.formula import mathml

KINDS = {
    "value": "values",
    "trace": "what is seen after each operation",
    "distribution": "probabilities and draws",
    "trajectory": "values after each step",
}
_QUOTED = re.compile(r"`([^`]+)`")
_PAPER = re.compile(r"\b(\d{4}\.\d{5})\b")
_BACKENDS = {"torch": "PyTorch", "jax": "JAX", "numpy": "Python"}


@dataclass(frozen=True)
class Section:
    """A part of the page: ``id`` and ``title`` of its heading, and its HTML."""

    id: str
    title: str
    html: str


def about(atlas: Atlas, contract: Contract, page: str) -> str:
    """The line under the lead: the contract, how it is compared, and the readings that show it."""
    shown: dict[str, list[Place]] = {}
    for place in methods.steps(atlas, contract.name):
        shown.setdefault(place.step.reading, []).append(place)
    titles = {reading.path: reading.title for reading in atlas.pages.values()}
    places = [(titles[path], relative(found[0].address, page), len(found)) for path, found in shown.items()]
    moves = contract.kind == "value" and any(item.differentiable for item in methods.references(contract))
    kind = f"{KINDS[contract.kind]} and gradients" if moves else KINDS[contract.kind]
    return _render("method/about.html", contract=contract, kind=kind, places=places)


def sections(atlas: Atlas, contract: Contract, page: str) -> Iterator[Section]:
    """The whole page below its lead."""
    yield Section("computed", "What is computed", _computed(contract))
    yield Section("libraries", "Where the libraries stand", _libraries(atlas, contract, page))
    yield Section("minimal", "The minimal version", _minimal(atlas, contract, page))
    yield Section("proof", "What was shown", _proof(atlas, contract, page))
    yield Section("deviations", "Mistakes that it catches", _deviations(atlas, contract))
    yield Section("yours", "Is yours the same?", _zoo(atlas, contract))


def concepts(atlas: Atlas, page: str) -> str:
    """The map: a row a contract, a column a library."""
    return _render(
        "method/map.html", titles=[*methods.LIBRARIES.values(), "others"], parts=methods.concepts(atlas, page)
    )


def _computed(contract: Contract) -> str:
    formula = catalog.formula(contract.name)
    inputs = [_value(item, item.dtype, item.differentiable) for item in contract.inputs]
    outputs = [_value(item, "exact" if item.exact else "float", False) for item in contract.outputs]
    return _render(
        "method/computed.html",
        contract=contract,
        formula=[mathml(line, block=True) for line in formula.lines],
        symbols=[(mathml(symbol), meaning) for symbol, meaning in formula.symbols.items()],
        paragraphs=[(kind, _prose(text)) for kind, text in methods.paragraphs(contract.doc)],
        values=[("inputs", inputs), ("outputs", outputs)],
        stages=contract.stages,
        operations=contract.operations,
    )


def _prose(text: str) -> str:
    """A contract's words as HTML: names in backquotes as code, numbers of papers as links to them."""
    marked = _QUOTED.sub(r"<code>\1</code>", code.escape(text))
    return _PAPER.sub(r'<a href="https://arxiv.org/abs/\1" rel="noopener">\1</a>', marked)


def _value(item: Any, kind: str, differentiable: bool) -> dict[str, Any]:
    """A row of the table of inputs and outputs."""
    told = f"{kind}, with gradient" if differentiable else kind
    return {"name": item.name, "shape": item.shape, "type": told, "unit": item.unit, "doc": item.doc}


def _libraries(atlas: Atlas, contract: Contract, page: str) -> str:
    sides = methods.sides(atlas, contract, page)
    refused = [(side, name, why) for side in sides for name, stand in side.stands.items() for why in stand.refused]
    docs = {probe.name: probe.doc for probe in contract.probes}
    rows = methods.rows(contract, sides)
    return _render("method/libraries.html", sides=sides, rows=rows, refused=refused, docs=docs, shown=methods.shown)


def _minimal(atlas: Atlas, contract: Contract, page: str) -> str:
    own = [item for item in contract.implementations if item.role == "minimal"]
    views: list[step.View] = []
    others: dict[str, str] = {}
    for item in own:
        entry = entry_of(item)
        path = entry[0] if entry else item.symbols[0]
        file = minimal.whole(atlas.workspace, path)
        html = _render("code.html", parts=[step.Part(step.minimal_lines(atlas, page, file))], name=path, caption=path)
        views.append(step.View(item.backend, _BACKENDS[item.backend], html))
        others |= {name: _documented(atlas, name, page) for name in item.symbols if name != path}
    return _render("method/minimal.html", id="minimal", views=views, others=others.items())


def _documented(atlas: Atlas, path: str, page: str) -> str:
    """Where the API pages have a file of ours; empty if they do not."""
    module = path.removesuffix(".py").replace("/", ".")
    address = atlas.documented.get(module)
    return relative(f"{address}#{module}", page) if address else ""


def _proof(atlas: Atlas, contract: Contract, page: str) -> str:
    card = proof.cached(atlas, contract.name, page)
    return _render("proof.html", card=card, full_at="", method="")


def _deviations(atlas: Atlas, contract: Contract) -> str:
    return _render("method/deviations.html", mistakes=methods.mistakes(atlas, contract))


def _zoo(atlas: Atlas, contract: Contract) -> str:
    found = [
        {
            "target": item.target,
            "deviations": item.deviations,
            "lines": [code.line_html(x) for x in code.colour(item.text)],
        }
        for item in methods.zoo(atlas.workspace, contract.name)
    ]
    return _render("method/zoo.html", contract=contract, zoo=found)


def _render(template: str, **values: Any) -> str:
    return step.environment().get_template(template).render(**values).strip()


def contract_of(name: str, place: str, title: str) -> Contract:
    """The contract of a page, whose title the page must have.

    Raises:
        ReadingError: no such contract, or another title.
    """
    contract = methods.contract_of(name, place)
    if title != contract.title:
        raise ReadingError(place, expected=f"the contract's title, {contract.title!r}", found=repr(title))
    return contract
