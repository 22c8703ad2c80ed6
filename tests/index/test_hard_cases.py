"""Questions that are hard to answer, on the pins, each with the answer that someone found by reading the sources.

The table is in ``tests/index/hard/``: ``why`` a case is hard, what kind of question it ``ask``s, and the ``answer``:
all that must come out, and nothing else. An empty answer says that the honest one is that nothing is known.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from annotator.errors import IndexFileError
from annotator.index import Index
from annotator.index.calls import callees, callers
from annotator.index.configuration import configured
from annotator.index.declarations import counterparts
from annotator.index.implementations import implementations
from annotator.index.metrics import measured
from annotator.index.operators import operators
from annotator.index.paths import path
from annotator.index.registries import registered

Case = dict[str, Any]
TABLES = sorted((Path(__file__).parent / "hard").glob("*.toml"))


def link(index: Index, case: Case) -> set[str]:
    """What the identifier ``name`` leads to on the first line that holds ``on``, in the file ``in`` (pin:path)."""
    pin, _, path = case["in"].partition(":")
    lines = index.resolver.read(pin, path).decode().splitlines()
    here = next((number for number, line in enumerate(lines, 1) if case["on"] in line), None)
    if here is None:
        raise IndexFileError(case["in"], expected=f"a line with {case['on']!r}", found="none", remedy="mend the case")
    found = [item for item in index.links(pin, path) if (item.line, item.name) == (here, case["name"])]
    return {
        item.target.symbol if item.target else str(item.external)
        for item in found
        if item.certainty in case.get("certainty", ("exact", "inferred")) and (item.target or item.external)
    }


def registration(index: Index, case: Case) -> set[str]:
    """What is registered as ``name`` in ``pin``, in all pins if none is given."""
    found = registered(index, case["name"], case.get("pin"))
    return {item.target.symbol for item in found if item.target}


def asked_for(index: Index, case: Case) -> set[str]:
    """Where code asks for the entry points of the group ``name``."""
    return {f"{item.path}:{item.line}" for item in registered(index, case["name"]) if item.how == "group"}


def declared(index: Index, case: Case) -> set[str]:
    """Where ``key`` is declared, of one ``how`` or with a ``note`` if the case names them."""
    found = configured(index, case["key"], case.get("pin")).declared
    return {
        f"{item.path}:{item.line}"
        for item in found
        if case.get("how") in (None, item.how) and case.get("note", "") in item.note
    }


def in_effect(index: Index, case: Case) -> set[str]:
    """Where YAML gives ``key`` the value that it has unless something else is chosen."""
    found = configured(index, case["key"]).declared
    plain = [item for item in found if item.how == "yaml" and "overridden" not in item.note]
    return {f"{item.path}:{item.line}" for item in plain if " if " not in f" {item.note}"}


def becomes(index: Index, case: Case) -> set[str]:
    """The fields and classes that ``key`` becomes by default, or the field that its default is taken from."""
    found = configured(index, case["key"]).declared
    return {item.target.symbol for item in found if item.target and "if " not in item.note}


def refers(index: Index, case: Case) -> set[str]:
    """The keys that the interpolations of ``key`` lead to by default."""
    found = configured(index, case["key"]).declared
    return {each.partition(" ")[0] for item in found if "if " not in item.note for each in item.refers}


def reads(index: Index, case: Case) -> set[str]:
    """Where code reads ``key``, of one ``certainty`` if the case names it."""
    found = configured(index, case["key"]).reads
    return {
        f"{item.path}:{item.line}"
        for item in found
        if item.how != "interpolation" and case.get("certainty") in (None, item.certainty)
    }


def logged(index: Index, case: Case) -> set[str]:
    """Where a ``metric`` is logged."""
    return {f"{item.path}:{item.line}" for item in measured(index, case["metric"])}


def computed(index: Index, case: Case) -> set[str]:
    """The lines behind a ``metric``, where it is logged ``in`` a file or ``within`` a function if the case says so."""
    found = measured(index, case["metric"])
    chosen = [item for item in found if case.get("in") in (None, item.path) and case.get("within", "") in item.within]
    assert chosen, "it is logged there"
    return {f"{hop.path}:{hop.line}" for item in chosen for hop in item.hops}


def operator(index: Index, case: Case) -> set[str]:
    """Where the operator ``name`` has its ``role``, for the dispatch key or input ``key`` if the case names one."""
    parts = [part for found in operators(index, case["name"]) for part in found.parts if part.role == case["role"]]
    return {f"{part.path}:{part.line}" for part in parts if "key" not in case or case["key"] in part.key.split(", ")}


def kernels(index: Index, case: Case) -> set[str]:
    """The kernels that the operator ``name`` launches."""
    return operator(index, case | {"role": "kernel"})


def called(index: Index, case: Case) -> set[str]:
    """What ``of`` calls on its first line that holds ``on`` (anywhere, without it); of those ``among``, if given."""
    caller = index.definition(case["of"])
    lines = index.resolver.read(caller.pin, caller.path).decode().splitlines()[: caller.end_line]
    text = case.get("on", "")
    here = next((number for number, line in enumerate(lines, 1) if number >= caller.line and text in line), None)
    if here is None:
        raise IndexFileError(case["of"], expected=f"a line with {text!r}", found="none", remedy="mend the case")
    found = {call.callee for call in callees(index, caller) if not text or call.line == here}
    return found & set(case["among"]) if "among" in case else found


def calling(index: Index, case: Case) -> set[str]:
    """What calls ``of``."""
    return {call.caller for call in callers(index, index.definition(case["of"]))}


def overriding(index: Index, case: Case) -> set[str]:
    """What stands in for the method ``of`` in classes that derive."""
    found = implementations(index, index.definition(case["of"]))
    return {one.definition.symbol for one in found if one.overrides}


def chain(index: Index, case: Case) -> set[str]:
    """What the shortest chain of calls passes through, ``from`` one symbol ``to`` another."""
    calls = path(index, index.definition(case["from"]), index.definition(case["to"]))
    return {call.callee for call in calls or ()}


def counterpart(index: Index, case: Case) -> set[str]:
    """Where the C++ function at a ``place`` of ``pin`` is declared, or where the declaration there has its body."""
    file, _, line = case["place"].rpartition(":")
    (here,) = [one for one in index.definitions(case["pin"], file) if one.line == int(line)]
    return {f"{one.path}:{one.line}" for one in counterparts(index, here)[1]}


ASK: dict[str, Callable[[Index, Case], set[str]]] = {
    "link": link,
    "registered": registration,
    "asked for": asked_for,
    "declared": declared,
    "in effect": in_effect,
    "becomes": becomes,
    "refers": refers,
    "reads": reads,
    "logged": logged,
    "computed": computed,
    "operator": operator,
    "kernels": kernels,
    "called": called,
    "callers": calling,
    "implementations": overriding,
    "path": chain,
    "counterpart": counterpart,
}


CASES = [
    pytest.param(case, id=f"{table.stem}-{number}-{case['ask']}")
    for table in TABLES
    for number, case in enumerate(tomllib.loads(table.read_text())["case"], 1)
]


@pytest.mark.parametrize("case", CASES)
def test_case(pins: Index, case: Case) -> None:
    assert ASK[case["ask"]](pins, case) == set(case["answer"]), case["why"]


def test_the_table_names_each_case_once() -> None:
    questions = [
        {key: value for key, value in case.values[0].items() if key not in ("why", "answer")} for case in CASES
    ]
    assert all(questions.count(question) == 1 for question in questions)
