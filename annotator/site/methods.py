"""What the page of a contract shows, and the map of all: gathered from the catalogue, the pins, the proofs and the zoo.

Data first; the templates render it. Apart from the steps because nothing here depends on a reading's text: a page
names its contract, the rest is found when the site is built.
"""

from __future__ import annotations

import math
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from annotator import catalog
from annotator.contracts.model import Case, Contract, Implementation, Knob
from annotator.errors import ContractError, ReadingError, SymbolNotFound
from annotator.pins.lock import FORGE
from annotator.site import proof
from annotator.site.atlas import Atlas, Place, relative

if TYPE_CHECKING:
    from annotator.workspace import Workspace

LIBRARIES = {"verl": "verl", "trl": "TRL", "vllm": "vLLM", "torch": "PyTorch"}
"""The pins that the map has a column for, and how they write themselves; the others share the last column."""
PARTS = {"post_training": "Post-training", "serving": "Serving", "framework": "Framework"}
"""The folders of ``minimal/``, by which the map is ordered."""

_THREAD = re.compile(r"#(\d+)")


@dataclass(frozen=True)
class Pinned:
    """A pinned symbol as a link: ``name`` without its module, where it is read, and its lines upstream."""

    symbol: str
    name: str
    where: str
    href: str
    upstream: str


@dataclass(frozen=True)
class Stand:
    """Where an implementation stands on one knob: ``fixed`` there, or its caller chooses among ``values``.

    ``refused`` says, in the library's adapter's words, why the choices that are not among them are not.
    """

    values: tuple[str, ...]
    fixed: bool
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """One reference: its library and version, the code that runs, and where it stands on each knob."""

    name: str
    library: str
    version: str
    code: tuple[Pinned, ...]
    stands: Mapping[str, Stand]
    dtypes: tuple[str, ...]
    breaks: tuple[str, ...]

    @property
    def dialect(self) -> str:
        """The knobs that it fixes, in few words."""
        return ", ".join(f"{name} {stand.values[0]}" for name, stand in self.stands.items() if stand.fixed)

    @property
    def named(self) -> bool:
        """Whether the library's name alone does not say which of its implementations it is."""
        return self.name != self.code[0].symbol.partition(":")[0]


@dataclass(frozen=True)
class Row:
    """One knob over all references; ``differs`` where two of them do not offer the same."""

    knob: Knob
    stands: tuple[Stand, ...]

    @property
    def differs(self) -> bool:
        """Whether the references part here."""
        return len({(stand.values, stand.fixed) for stand in self.stands}) > 1


@dataclass(frozen=True)
class Mistake:
    """A deviation: what is wrong, what is right, the probes that caught it, and the public threads it was seen in."""

    name: str
    wrong: str
    right: str
    stage: str
    caught: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Wild:
    """A file of the zoo that carries deviations, or is an equal rewriting: its target and its text."""

    target: str
    deviations: tuple[str, ...]
    text: str


def contract_of(name: str, place: str) -> Contract:
    """The contract that a page names.

    Raises:
        ReadingError: the catalogue has none of that name.
    """
    try:
        return catalog.contract(name)
    except ContractError as error:
        raise ReadingError(place, expected="a contract of the catalogue", found=repr(name)) from error


def references(contract: Contract) -> list[Implementation]:
    """The implementations that are held against."""
    return [item for item in contract.implementations if item.role == "reference"]


def shown(value: Any) -> str:
    """A knob's value as a reader writes it: ``1e-6``, ``∞``, ``group``."""
    if isinstance(value, float):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        if 0 < abs(value) < 1e-2:
            digits, power = f"{value:e}".split("e")
            return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
        return f"{value:g}"
    return str(value)


# References -----------------------------------------------------------------------------------------------------------


def sides(atlas: Atlas, contract: Contract, page: str) -> list[Side]:
    """Every reference of a contract, in its order."""
    return [_side(atlas, contract, item, page) for item in references(contract)]


def _side(atlas: Atlas, contract: Contract, item: Implementation, page: str) -> Side:
    code = tuple(pinned(atlas, symbol, page) for symbol in item.symbols if ":" in symbol)
    pin = atlas.lock[code[0].symbol.partition(":")[0]]
    library = LIBRARIES.get(pin.name, pin.name)
    cases = contract.edges()
    stands = {knob.name: _stand(cases, knob, item) for knob in contract.knobs}
    return Side(item.name, library, pin.version, code, stands, item.dtypes, item.breaks)


def pinned(atlas: Atlas, symbol: str, page: str) -> Pinned:
    """A pinned symbol as a link from ``page``.

    Raises:
        ReadingError: the index does not have it.
    """
    try:
        found = atlas.index.definition(symbol)
    except SymbolNotFound as error:
        raise ReadingError(page, expected="a symbol that the index has", found=repr(symbol)) from error
    return Pinned(
        symbol,
        found.qualname.replace("::", "."),
        f"{found.path.rpartition('/')[2]}:{found.line}",
        relative(atlas.address(found), page),
        atlas.permalink(found.pin, found.path, found.line, found.end_line),
    )


def _stand(cases: Sequence[Case], knob: Knob, item: Implementation) -> Stand:
    """Where a reference stands: at its dialect, else at the choices that it takes in one named case at least."""
    if knob.name in item.dialect:
        return Stand((shown(item.dialect[knob.name]),), True)
    reasons = {choice: _refused(cases, knob.name, choice, item) for choice in knob.choices}
    taken = tuple(shown(choice) for choice, reason in reasons.items() if not reason)
    return Stand(taken, False, tuple(dict.fromkeys(reason for reason in reasons.values() if reason)))


def _refused(cases: Iterable[Case], knob: str, choice: Any, item: Implementation) -> str:
    """Why no named case is taken with this choice; empty if one is."""
    reason = ""
    for case in cases:
        told = item.accepts(Case(case.inputs, {**case.knobs, **item.dialect, knob: choice}, case.label))
        if not told:
            return ""
        reason = told
    return reason


def rows(contract: Contract, found: Sequence[Side]) -> list[Row]:
    """The knobs, those first on which the references part."""
    table = [Row(knob, tuple(side.stands[knob.name] for side in found)) for knob in contract.knobs]
    return sorted(table, key=lambda row: not row.differs)


# Deviations and the zoo -----------------------------------------------------------------------------------------------


def mistakes(atlas: Atlas, contract: Contract) -> list[Mistake]:
    """The declared deviations, those first that were seen in public."""
    seen = proof.cached(atlas, contract.name, contract.name).caught
    recorded = seen.deviations if seen else {}
    found = [
        Mistake(
            item.name,
            item.wrong,
            item.right,
            item.stage,
            tuple(dict.fromkeys(" ".join(recorded.get(item.name, {}).values()).split())),
            tuple(threads(atlas, item.seen_in)),
        )
        for item in contract.deviations
    ]
    return sorted(found, key=lambda item: not item.threads)


def threads(atlas: Atlas, seen_in: str) -> Iterator[tuple[str, str]]:
    """``TRL #1868, #1904; skrl #449`` as texts with addresses, empty for a project that is no pin."""
    project = ""
    for text in filter(None, re.split(r"[,;]\s*", seen_in)):
        named = text.partition("#")[0].strip()
        project = named or project
        number = _THREAD.search(text)
        owner = next((pin.repository for pin in atlas.lock.values() if _called(pin.repository, project)), "")
        address = f"{FORGE}/{owner}/issues/{number[1]}" if owner and number else ""
        yield (text if named else f"{project} {text}"), address


def _called(repository: str, project: str) -> bool:
    return repository.rpartition("/")[2].lower() == project.lower()


def zoo(workspace: Workspace, contract: str) -> list[Wild]:
    """The files of ``tests/zoo`` for a contract: the wrong ones in the order of their table, then the equal ones.

    Raises:
        ReadingError: a table cannot be read, or names a file that is not there.
    """
    found = []
    for table in sorted((workspace.root / "tests" / "zoo").glob("*/zoo.toml")):
        try:
            stated = tomllib.loads(table.read_text("utf-8"))
            if stated["contract"] != contract:
                continue
            for item in (*stated.get("wrong", ()), *stated.get("equal", ())):
                name, _, function = item["target"].partition(":")
                file = table.with_name(name)
                target = f"{file.relative_to(workspace.root).as_posix()}:{function}"
                found.append(Wild(target, tuple(item.get("deviations", ())), file.read_text("utf-8").strip("\n")))
        except (OSError, ValueError, KeyError) as error:
            raise ReadingError(str(table), expected="a table of the zoo", found=str(error)) from error
    return found


# Readings, words, and the map -----------------------------------------------------------------------------------------


def steps(atlas: Atlas, contract: str) -> list[Place]:
    """The steps of all readings that show a contract."""
    return [
        place for places in atlas.places.values() for place in places if place.step.options.get("contract") == contract
    ]


def paragraphs(doc: str) -> list[tuple[str, str]]:
    """A contract's text in blocks: ``p`` a paragraph, ``pre`` what is indented in it."""
    blocks = [block for block in re.split(r"\n\s*\n", doc.strip("\n")) if block.strip()]
    return [
        ("pre", textwrap.dedent(block)) if block.startswith("    ") else ("p", " ".join(block.split()))
        for block in blocks
    ]


def part(contract: Contract) -> str:
    """The part of the stack that it belongs to: where its minimal version lies."""
    own = next(item for item in contract.implementations if item.role == "minimal")
    return own.symbols[0].split("/")[1]


@dataclass(frozen=True)
class Concept:
    """A row of the map: a contract, the link to its page, its references by library, and whether its proofs hold."""

    contract: Contract
    href: str
    cells: tuple[tuple[Side, ...], ...]
    sound: bool
    proven: str


def concepts(atlas: Atlas, page: str) -> dict[str, list[Concept]]:
    """The map, by part: a row a contract, a column a library, the last one for all others."""
    found: dict[str, list[Concept]] = {title: [] for title in PARTS.values()}
    for name in catalog.names():
        contract = catalog.contract(name)
        found[PARTS[part(contract)]].append(_concept(atlas, contract, page))
    return {title: items for title, items in found.items() if items}


def _concept(atlas: Atlas, contract: Contract, page: str) -> Concept:
    every = sides(atlas, contract, page)
    columns = [tuple(side for side in every if side.library == title) for title in LIBRARIES.values()]
    others = tuple(side for side in every if side.library not in LIBRARIES.values())
    address, card = atlas.methods.get(contract.name), proof.cached(atlas, contract.name, page)
    href = relative(address, page) if address else ""
    return Concept(contract, href, (*columns, others), not card.problems, card.short)
