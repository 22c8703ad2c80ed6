"""The zoo met in the wild: plain files, as people write them, that know nothing of the catalogue.

Each folder of ``tests/zoo/`` has a table, ``zoo.toml``. A file there is either an equivalent rewriting, which must be
found equal, or carries one deviation or two, which must be found different and named.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from annotator import catalog
from annotator.contracts import diff

ZOO = Path(__file__).parents[1] / "zoo"
EXAMPLES = 8
KINDS = ("wrong", "equal")


@dataclass(frozen=True)
class Wild:
    """A function of a user. ``deviations`` are the catalogue's names for what is wrong with it, if anything is."""

    contract: str
    folder: str
    kind: str
    target: str
    deviations: tuple[str, ...] = ()
    mapping: dict[str, str] = field(default_factory=dict)
    init: dict[str, object] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"{self.folder}/{self.target.partition(':')[0]}"

    def __str__(self) -> str:
        return f"{self.folder}/{self.target}".replace(".py:", ":")


def wild(table: Path) -> list[Wild]:
    stated = tomllib.loads(table.read_text("utf-8"))
    assert set(stated) <= {"contract", "helpers", *KINDS}, table
    return [
        Wild(
            stated["contract"],
            table.parent.name,
            kind,
            item["target"],
            tuple(item.get("deviations", ())),
            item.get("map", {}),
            item.get("init", {}),
        )
        for kind in KINDS
        for item in stated.get(kind, ())
    ]


TABLES = sorted(ZOO.glob("*/zoo.toml"))
ALL = [item for table in TABLES for item in wild(table)]
WRONG, EQUAL = ([item for item in ALL if item.kind == kind] for kind in KINDS)


def sampled(items: list[Wild]) -> list[object]:
    """All of them; the first of each folder is tried in every run of the tests, the others by `make zoo`."""
    first = {item.folder: item for item in reversed(items)}
    marks = {True: [pytest.mark.slow], False: [pytest.mark.slow, pytest.mark.zoo]}
    return [pytest.param(item, id=str(item), marks=marks[item is first[item.folder]]) for item in items]


def verdict_on(item: Wild):
    contract = catalog.contract(item.contract)
    function = item.target.partition(":")[2]
    return diff(
        ZOO / item.file, function, contract, mapping=item.mapping, init=item.init, examples=EXAMPLES, timeout=120.0
    )


@pytest.mark.parametrize("item", sampled(WRONG))
def test_a_deviation_is_caught_and_named(item):
    verdict = verdict_on(item)
    assert not verdict.equal
    assert verdict.explanation is not None, verdict.headline()
    named = {found.name for found in verdict.explanation.deviations}
    alike = [set(other.split(" and ")) for other in verdict.explanation.others]
    assert set(item.deviations) in [named, *alike]


@pytest.mark.parametrize("item", sampled(EQUAL))
def test_an_equivalent_rewriting_raises_no_alarm(item):
    verdict = verdict_on(item)
    assert verdict.equal, "\n".join(verdict.render())


def test_every_numbered_deviation_of_the_catalogue_is_met():
    numbered = {
        (name, deviation.name)
        for name in catalog.names()
        for deviation in catalog.contract(name).deviations
        if deviation.zoo is not None
    }
    assert numbered <= {(item.contract, name) for item in WRONG for name in item.deviations}


def test_at_least_ten_pairs_are_met():
    assert sum(len(item.deviations) == 2 for item in WRONG) >= 10


@pytest.mark.parametrize("contract", catalog.names())
def test_each_contract_has_equivalent_rewritings(contract):
    assert sum(item.contract == contract for item in EQUAL) >= 2


def test_every_file_is_in_a_table_and_knows_nothing_of_the_catalogue():
    helpers = {
        f"{table.parent.name}/{name}"
        for table in TABLES
        for name in tomllib.loads(table.read_text()).get("helpers", ())
    }
    files = {path.relative_to(ZOO).as_posix(): path for path in ZOO.rglob("*.py")}
    assert set(files) - helpers == {item.file for item in ALL}
    assert not [name for name, path in files.items() if {"annotator", "minimal"} & set(path.read_text().split())]
