"""What a name in a string stands for, on a little tree: each way to register, and strings that register nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from annotator.index import Index
from annotator.index.registries import near, registered
from tests.index.trees import indexed

TREE = {
    "bank/__init__.py": "",
    "bank/core.py": (
        "from enum import Enum\n"
        "LOSSES = {}\n"
        "def register_loss(name):\n"
        "    def keep(f):\n        LOSSES[name] = f\n        return f\n    return keep\n"
        "class Kind(str, Enum):\n"
        "    PLAIN = 'plain'\n"
        "class Config:\n"
        "    kind = 'plain'\n"
    ),
    "bank/losses.py": (
        "from .core import Kind, register_loss\n"
        "from . import core\n"
        "@register_loss('hinge')\n"
        "def hinge(x): return x\n"
        "@core.register_loss(Kind.PLAIN)\n"
        "class Plain: pass\n"
        "@register_loss(name=['square', 'l2'])\n"
        "def square(x): return x * x\n"
        "def cubed(x): return x ** 3\n"
        "core.register_loss('cube')(cubed)\n"
        "core.LOSSES['fourth'] = cubed\n"
        "TABLE = {'fifth': cubed, 'lazy': ('losses', 'Plain'), 'far': 'bank.losses.square', 'no': ('losses', 'Gone')}\n"
        "print('hinge')\n"
        "Kind.PLAIN == 'plain'\n"
    ),
    "bank/models.py": (
        "from .losses import hinge, Plain\n"
        "class Registry:\n    def register(self, name, what): pass\n"
        "ModelRegistry = Registry()\n"
        "ModelRegistry.register('made', Plain)\n"
        "def init_registered_model(name): pass\n"
        "init_registered_model('made')\n"
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("registries"), bank=TREE) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "how", "registry", "target", "certainty", "line"),
    [
        ("hinge", "decorator", "register_loss", "hinge", "exact", 3),
        ("plain", "member", "core.register_loss", "Plain", "exact", 5),
        ("square", "decorator", "register_loss", "square", "exact", 7),
        ("l2", "decorator", "register_loss", "square", "exact", 7),
        ("fourth", "entry", "core.LOSSES", "cubed", "exact", 11),
        ("fifth", "entry", "TABLE", "cubed", "exact", 12),
        ("lazy", "entry", "TABLE", "Plain", "inferred", 12),
        ("far", "entry", "TABLE", "square", "inferred", 12),
        ("made", "call", "ModelRegistry.register", "Plain", "exact", 5),
    ],
)
def test_what_a_name_stands_for(
    index: Index, name: str, how: str, registry: str, target: str, certainty: str, line: int
) -> None:
    (found,) = registered(index, name)
    assert found.target is not None
    assert (found.how, found.registry, found.target.name) == (how, registry, target)
    assert (found.certainty, found.line) == (certainty, line)


def test_what_is_not_plain_is_said(index: Index) -> None:
    (found,) = registered(index, "no")
    assert (found.target, found.certainty) == (None, "unresolved")
    (found,) = registered(index, "cube")
    assert (found.how, found.target) == ("call", None)


def test_strings_that_register_nothing(index: Index) -> None:
    assert registered(index, "losses") == []
    assert registered(index, "hinge", pin="other") == []


def test_near_strings(index: Index) -> None:
    assert near(index, "squere") == ("square",)
