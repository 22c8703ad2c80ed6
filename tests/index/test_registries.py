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
        "ModelRegistry.register('late', 'bank.losses', 'Plain')\n"
        "SIZES = {'size': 3}\n"
        "numbers = {'number': 3}\n"
    ),
    "bank/modes.py": (
        "from enum import Enum\n"
        "from .losses import hinge, square, Plain\n"
        "class Mode(Enum):\n"
        "    ONE = 1\n"
        "    TWO = 2\n"
        "    FAR = 'bank.losses.' 'Plain'\n"
        "    NEAR = ('bank.losses.square')\n"
        "    NONE = 'plain words'\n"
        "TABLE = {\n"
        "    Mode.ONE: {'send': hinge, 'receive': square},\n"
        "    Mode.TWO: Plain,\n"
        "}\n"
        "class Settings:\n"
        "    def __init__(self, names): pass\n"
        "def register(mode=None, names=None): return lambda f: f\n"
        "def register_backend(f=None): return f\n"
        "def register_op(op): return lambda f: f\n"
        "class Worker:\n"
        "    @register(mode=Mode.TWO)\n"
        "    def work(self): pass\n"
        "@register(Settings(names=['nested']))\n"
        "def by_settings(): pass\n"
        "@register_backend\n"
        "def turbo(): pass\n"
        "@register_op(aten.squeeze)\n"
        "def my_squeeze(x): return x\n"
        "@register_op([aten.view, aten.reshape])\n"
        "def my_view(x): return x\n"
        "@checked(aten.flip)\n"
        "def my_flip(x): return x\n"
        "MODEL_MAPPING = Lazy(shell='Plain', ghost='Missing')\n"
    ),
    "bank/plugins.py": (
        "GROUP = 'bank.plugins'\n"
        "def load_plugins_by_group(group): return entry_points(group=group)\n"
        "def load(): return load_plugins_by_group(GROUP)\n"
        "found = entry_points(group='bank.tools')\n"
        "print(GROUP, 'bank.tools')\n"
    ),
    "bank-1.dist-info/entry_points.txt": (
        "[console_scripts]\nbank = bank.models:init_registered_model\n\n[bank.tools]\nhammer = bank.gone:Gone\n"
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


@pytest.mark.parametrize(
    ("name", "how", "registry", "target", "certainty", "role"),
    [
        ("late", "call", "ModelRegistry.register", "Plain", "inferred", ""),
        ("FAR", "member", "Mode", "Plain", "inferred", ""),
        ("NEAR", "member", "Mode", "square", "inferred", ""),
        ("nested", "decorator", "register", "by_settings", "exact", "names"),
        ("turbo", "decorator", "register_backend", "turbo", "exact", ""),
        ("squeeze", "decorator", "register_op", "my_squeeze", "exact", ""),
        ("aten.reshape", "decorator", "register_op", "my_view", "exact", ""),
        ("shell", "entry", "MODEL_MAPPING", "Plain", "inferred", ""),
        ("bank", "entry point", "console_scripts", "init_registered_model", "exact", ""),
    ],
)
def test_other_keys(index: Index, name: str, how: str, registry: str, target: str, certainty: str, role: str) -> None:
    (found,) = registered(index, name)
    assert found.target is not None
    assert (found.how, found.registry, found.target.name) == (how, registry, target)
    assert (found.certainty, found.role) == (certainty, role)


def test_a_member_of_an_enumeration_as_a_key(index: Index) -> None:
    found = [(one.how, one.role, one.target and one.target.name) for one in registered(index, "Mode.ONE")]
    assert found == [("entry", "send", "hinge"), ("entry", "receive", "square")]
    found = [(one.how, one.role, one.target and one.target.name) for one in registered(index, "TWO")]
    assert found == [("entry", "", "Plain"), ("decorator", "mode", "work")]


def test_entry_points(index: Index) -> None:
    (asked,) = registered(index, "bank.plugins")
    assert (asked.how, asked.registry, asked.path, asked.line) == (
        "group",
        "load_plugins_by_group",
        "bank/plugins.py",
        3,
    )
    asked, declared = registered(index, "bank.tools")
    assert (asked.how, asked.registry, asked.line) == ("group", "entry_points", 4)
    assert (declared.name, declared.target, declared.certainty) == ("hammer", None, "unresolved")


@pytest.mark.parametrize("name", ["flip", "ghost", "NONE", "number", "aten.nothing", "other.squeeze", "hinge_"])
def test_keys_that_register_nothing(index: Index, name: str) -> None:
    assert registered(index, name) == []


def test_a_number_under_a_key_is_nothing_that_a_name_stands_for(index: Index) -> None:
    (found,) = registered(index, "size")
    assert (found.registry, found.target) == ("SIZES", None)
