"""What a caller gets who passes no knob: the defaults of minimal functions are those that their contracts state."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from annotator import catalog
from annotator.contracts.model import Contract
from annotator.contracts.structure import entry_of

ROOT = Path(__file__).parents[2]


def pairs() -> list[tuple[str, str]]:
    """Contract and the minimal file whose function it calls; what that file builds upon has a contract of its own."""
    found = set()
    for name in catalog.names():
        for item in (item for item in catalog.contract(name).implementations if item.role == "minimal"):
            entry = entry_of(item)
            found |= {(name, entry[0])} if entry else {(name, s) for s in item.symbols if s.startswith("minimal/")}
    return sorted(found)


def other_defaults(module: ModuleType, contract: Contract) -> dict[str, tuple[Any, Any]]:
    """``function(knob)`` to the default there and the contract's, where the two differ."""
    knobs = {knob.name: knob.default for knob in contract.knobs}
    found = {}
    for function in vars(module).values():
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            for name, parameter in inspect.signature(function).parameters.items():
                stated = parameter.default is not parameter.empty and name in knobs
                if stated and parameter.default != knobs[name]:
                    found[f"{function.__name__}({name})"] = parameter.default, knobs[name]
    return found


@pytest.mark.parametrize(("name", "file"), pairs())
def test_defaults_are_those_of_the_contract(name: str, file: str) -> None:
    module = __import__(file.removesuffix(".py").replace("/", "."), fromlist=["_"])
    assert other_defaults(module, catalog.contract(name)) == {}


def test_another_default_is_seen() -> None:
    module = ModuleType("made")
    exec("def f(x, *, eps=1e-5, scale='group', other=3): ...", vars(module))
    assert other_defaults(module, catalog.contract("grpo-advantage")) == {"f(eps)": (1e-5, 1e-6)}
