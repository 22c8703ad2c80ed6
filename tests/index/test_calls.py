"""Who calls what, on a little tree: every kind of call that is an edge, and what is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.errors import IndexFileError
from annotator.index import Call, Definition, Index, circles
from annotator.index.calls import callees, callers, partial
from annotator.index.implementations import implementations
from annotator.index.paths import path
from tests.index.trees import indexed

TREE = {
    "shop/__init__.py": "",
    "shop/till.py": (
        "from .goods import Good, price\n"
        "class Till:\n"
        "    def __init__(self):\n"
        "        self.good = Good(3)\n"
        "    def total(self):\n"
        "        return self.add(price(self.good))\n"
        "    def add(self, x):\n"
        "        def rounded(y): return round(y)\n"
        "        return rounded(x)\n"
        "def handed(things):\n"
        "    return map(price, things)\n"
        "def alone(): return 1\n"
        "def main():\n"
        "    till = Till()\n"
        "    return till.total ()\n"
        "main()\n"
    ),
    "shop/goods.py": (
        "class Good:\n"
        "    def __init__(self, cost): self.cost = tax(cost)\n"
        "def tax(x): return price(x) if x else 0\n"
        "def price(good): return tax(good)\n"
    ),
    "shop/variants.py": (
        "from .goods import price\n"
        "@dispatched\n"
        "def cost(x): return x\n"
        "@cost.register_impl('fast', supported=True)\n"
        "def fast_cost(x): return x\n"
        "@cost.register\n"
        "def other_cost(x: int): return x\n"
        "@cost.register_fake\n"
        "def fake_cost(x): return x\n"
        "@price.register\n"
        "def no_cost(x): return x\n"
    ),
    "shop/kernel.cu": (
        "template <typename T> __global__ void scaled(T* x) { }\n"
        "void launch(float* x) { scaled<float><<<1, 2>>>(x); }\n"
        "void twice(float* x) { launch(x); launch(x); auto f = launch; }\n"
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("calls"), shop=TREE) as opened:
        yield opened


def to(index: Index, name: str) -> list[tuple[str, int]]:
    found = callers(index, index.find(name)[0])
    return [(call.caller.rpartition(".")[2], call.line) for call in found]


def of(index: Index, name: str) -> list[tuple[str, int]]:
    return [(call.callee.rpartition(".")[2], call.line) for call in callees(index, index.find(name)[0])]


def chain(calls: list[Call] | None) -> list[str]:
    return [call.callee.rpartition(".")[2] for call in calls or []]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.till.Till.total", [("main", 15)]),  # through an object, with a space before the arguments
        ("shop.till.main", [("till", 16)]),  # by the module itself
        ("shop.goods.Good", [("__init__", 4)]),
        ("shop.goods.Good.__init__", [("__init__", 4)]),  # where the class is called
        ("shop.goods.price", [("tax", 3), ("total", 6), ("handed", 11)]),  # also where it is handed to map
        ("shop.till.alone", []),
    ],
)
def test_who_calls_it(index: Index, name: str, expected: list[tuple[str, int]]) -> None:
    assert to(index, name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.till.Till.total", [("add", 6), ("price", 6)]),
        ("shop.till.main", [("Till", 14), ("__init__", 14), ("total", 15)]),
        ("shop.till.Till", [("__init__", 3)]),
        ("shop.till.Till.add", [("rounded", 9)]),
        ("shop.till.handed", [("price", 11)]),
        ("shop.till.alone", []),
    ],
)
def test_what_it_calls(index: Index, name: str, expected: list[tuple[str, int]]) -> None:
    assert of(index, name) == expected


def test_kernels_are_called_by_launching_them(index: Index) -> None:
    assert to(index, "scaled") == [("shop:launch", 2)]
    assert [line for _, line in to(index, "launch")] == [3, 3]


def test_certainty_and_place_go_with_a_call(index: Index) -> None:
    call = callees(index, index.find("shop.till.main")[0])[0]
    assert (call.caller, call.callee) == ("shop:shop.till.main", "shop:shop.till.Till")
    assert (call.path, call.line, call.column, call.text) == ("shop/till.py", 14, 11, "till = Till()")
    assert {item.certainty for item in callees(index, index.find("shop.till.main")[0])} <= {"exact", "inferred"}


def test_the_shortest_chain_passes_through_constructors(index: Index) -> None:
    start, goal = index.find("shop.till.main")[0], index.find("shop.goods.tax")[0]
    assert chain(path(index, start, goal)) == ["__init__", "__init__", "tax"]
    assert chain(path(index, index.find("shop.till.Till")[0], goal)) == ["__init__", "__init__", "tax"]


def test_no_chain_and_circles_end(index: Index) -> None:
    start, goal = index.find("shop.goods.tax")[0], index.find("shop.till.alone")[0]
    assert path(index, start, goal) is None
    assert chain(path(index, start, index.find("shop.goods.price")[0])) == ["price"]
    assert path(index, index.find("shop.till.main")[0], index.find("shop.goods.tax")[0], widest=1) is None


def test_a_limit(index: Index, tmp_path: Path) -> None:
    assert len(callers(index, index.find("shop.goods.price")[0], limit=1)) == 1


def test_what_is_registered_with_a_decorated_function_may_be_called_by_it(index: Index) -> None:
    """``price`` is decorated by nothing, so nothing can be registered with it."""
    assert of(index, "shop.variants.cost") == [("fast_cost", 4), ("other_cost", 6)]
    made = callees(index, index.definition("shop:shop.variants.cost"))
    assert [call.certainty for call in made] == ["inferred", "inferred"]
    assert of(index, "shop.goods.price") == [("tax", 4)]


KINDS = {
    "kinds/__init__.py": "",
    "kinds/shapes.py": (
        "import contextlib, functools\n"
        "from abc import ABC, abstractmethod\n"
        "from dataclasses import dataclass\n"
        "class Shape(ABC):\n"
        "    @abstractmethod\n"
        "    def area(self): ...\n"
        "    def twice(self): return self.area() + self.area()\n"
        "    @property\n"
        "    def name(self): return 'shape'\n"
        "    def __call__(self, x): return x\n"
        "    def __getitem__(self, i): return i\n"
        "    def __len__(self): return 0\n"
        "    def __iter__(self): return iter(())\n"
        "    def __contains__(self, x): return False\n"
        "    def __add__(self, other): return self\n"
        "    def __rsub__(self, other): return self\n"
        "    def __neg__(self): return self\n"
        "    def __eq__(self, other): return True\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *error): return None\n"
        "    def __setitem__(self, i, x): return None\n"
        "class Square(Shape):\n"
        "    def area(self): return 4\n"
        "class Round(Shape):\n"
        "    def area(self): return 3\n"
        "class Other:\n"
        "    def area(self): return 0\n"
        "@dataclass\n"
        "class Point:\n"
        "    x: int\n"
        "    def __post_init__(self): return None\n"
        "class Loose:\n"
        "    def __getattr__(self, name): return 1\n"
        "    def __setattr__(self, name, value): return None\n"
        "    def known(self): return 1\n"
        "def wrapped(f):\n"
        "    @functools.wraps(f)\n"
        "    def wrapper(*args):\n"
        "        return f(*args)\n"
        "    return wrapper\n"
        "@wrapped\n"
        "def decorated(): return 1\n"
        "def plain(): return 1\n"
        "REGISTRY = {}\n"
        "def register(name):\n"
        "    def keep(f):\n"
        "        REGISTRY[name] = f\n"
        "        return f\n"
        "    return keep\n"
        "@register('one')\n"
        "def first(): return 1\n"
        "@register('two')\n"
        "def second(): return 2\n"
        "def get(name): return REGISTRY[name]\n"
        "def apply(action): return action()\n"
    ),
    "kinds/use.py": (
        "from kinds import shapes\n"
        "from kinds.shapes import Loose, Point, Round, Shape, apply, decorated, first, get, plain\n"
        "def call(s: Shape): return s(1)\n"
        "def read(s: Shape): return s.name\n"
        "def item(s: Shape): return s[0]\n"
        "def store(s: Shape): s[0] = 1\n"
        "def size(s: Shape): return len(s)\n"
        "def loop(s: Shape):\n"
        "    for x in s: pass\n"
        "def inside(s: Shape): return 1 in s\n"
        "def plus(s: Shape): return s + 1\n"
        "def minus(s: Shape): return 1 - s\n"
        "def negative(s: Shape): return -s\n"
        "def same(s: Shape): return s == 1\n"
        "def context(s: Shape):\n"
        "    with s as t: return t\n"
        "def override(s: Shape): return s.area()\n"
        "def exact(): return Round().area()\n"
        "def make(): return Point(1)\n"
        "def missing(o: Loose): return o.anything\n"
        "def present(o: Loose): return o.known()\n"
        "def written(o: Loose): o.x = 1\n"
        "def around(): return decorated()\n"
        "def direct(): return plain()\n"
        "def chosen(name):\n"
        "    f = get(name)\n"
        "    return f()\n"
        "def handed(): return apply(plain)\n"
        "def either(flag):\n"
        "    f = plain if flag else first\n"
        "    return f()\n"
        "def listed():\n"
        "    return [f() for f in (plain, first)]\n"
        "def nothing(s): return s.area() + s[0] - len(s)\n"
        "def stranger(s: int): return s + 1\n"
    ),
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("kinds"), kinds=KINDS) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("call", {"Shape.__call__"}),
        ("read", {"Shape.name"}),
        ("item", {"Shape.__getitem__"}),
        ("store", {"Shape.__setitem__"}),
        ("size", {"Shape.__len__"}),
        ("loop", {"Shape.__iter__"}),
        ("inside", {"Shape.__contains__"}),
        ("plus", {"Shape.__add__"}),
        ("minus", {"Shape.__rsub__"}),
        ("negative", {"Shape.__neg__"}),
        ("same", {"Shape.__eq__"}),
        ("context", {"Shape.__enter__", "Shape.__exit__"}),
        ("override", {"Shape.area", "~Square.area", "~Round.area"}),  # not Other.area
        ("exact", {"Round", "Round.area"}),  # an object that is made there is of no other class
        ("make", {"Point", "Point.__post_init__"}),
        ("missing", {"~Loose.__getattr__"}),
        ("present", {"Loose.known"}),
        ("written", {"Loose.__setattr__"}),
        ("around", {"decorated", "~wrapped.wrapper"}),
        ("direct", {"plain"}),
        ("chosen", {"get", "~first", "~second"}),
        ("handed", {"apply", "~plain"}),
        ("either", {"~plain", "~first"}),
        ("listed", {"~plain", "~first"}),
        ("nothing", set()),
        ("stranger", set()),
        ("shapes.Shape.twice", {"Shape.area", "~Square.area", "~Round.area"}),
        ("shapes.wrapped.wrapper", {"~decorated"}),
        ("shapes.apply", {"~plain"}),
    ],
)
def test_each_kind_of_edge(kinds: Index, name: str, expected: set[str]) -> None:
    start = kinds.find(name if "." in name else f"kinds.use.{name}")[0]
    found = callees(kinds, start)
    marked = {("" if call.certainty == "exact" else "~") + call.callee.split("shapes.")[-1] for call in found}
    assert marked == expected
    assert all(call.reason for call in found if call.certainty == "inferred")


def test_callers_and_callees_are_each_other_s_inverse(kinds: Index) -> None:
    functions = [d for path_ in kinds.paths("kinds") for d in kinds.definitions("kinds", path_)]
    functions = [d for d in functions if d.kind in ("function", "method")]
    down = {(call.caller, call.callee) for one in functions for call in callees(kinds, one)}
    targets = {kinds.definition(callee) for _, callee in down}
    up = {(call.caller, call.callee) for one in targets for call in callers(kinds, one)}
    nested = {(caller, callee) for caller, callee in down if (f"{caller}.wrapper", callee) in down}
    assert down - nested <= up
    assert up - down <= {(caller, callee) for caller, callee in up if caller.endswith((":kinds.use", ":kinds.shapes"))}


def test_a_path_goes_through_a_registry(kinds: Index) -> None:
    start, goal = kinds.find("kinds.use.chosen")[0], kinds.find("kinds.shapes.second")[0]
    found = path(kinds, start, goal)
    assert chain(found) == ["second"]
    assert found is not None
    assert "REGISTRY" in found[0].reason
    assert path(kinds, kinds.find("kinds.use.direct")[0], goal) is None


def test_implementations_are_the_classes_below(kinds: Index) -> None:
    below = implementations(kinds, kinds.find("kinds.shapes.Shape")[0])
    assert [(one.of.name, one.steps) for one in below] == [("Round", 1), ("Square", 1)]
    of_method = implementations(kinds, kinds.find("kinds.shapes.Shape.area")[0])
    assert [(one.definition.qualname, one.overrides) for one in of_method] == [
        ("Round.area", True),
        ("Square.area", True),
    ]
    inherited = implementations(kinds, kinds.find("kinds.shapes.Shape.twice")[0])
    assert [(one.definition.qualname, one.overrides) for one in inherited] == [("Shape.twice", False)] * 2
    assert implementations(kinds, kinds.find("kinds.shapes.Other.area")[0]) == []
    with pytest.raises(IndexFileError):
        implementations(kinds, kinds.find("kinds.shapes.plain")[0])


HELD = {
    "held/__init__.py": "",
    "held/boxes.py": (
        "import sys\n"
        "from collections import defaultdict\n"
        "from typing import Any, Callable\n"
        "def one(): return 1\n"
        "def two(): return 2\n"
        "def three(): return 3\n"
        "def made(): return []\n"
        "LEVELS = {'low': {'a': one, 'deep': {'b': two}}, 'high': {'c': three}}\n"
        "def walk(level: dict[str, Any]):\n"
        "    for key, value in level.items():\n"
        "        if isinstance(value, dict):\n"
        "            walk(value)\n"
        "        else:\n"
        "            run(value)\n"
        "def run(value): return value()\n"
        "def start(): walk(LEVELS['low'])\n"
        "def counted():\n"
        "    counts = defaultdict(made)\n"
        "    return counts['x']\n"
        "def plain():\n"
        "    counts = {}\n"
        "    return counts['x']\n"
        "class Meta(type):\n"
        "    @property\n"
        "    def World(cls): return 1\n"
        "class Group(metaclass=Meta): pass\n"
        "def world(): return Group.World\n"
        "class Alone:\n"
        "    def unheard_of(self): return 1\n"
        "    def area(self): return 1\n"
        "class Other:\n"
        "    def area(self): return 2\n"
        "def known(x): return x.unheard_of()\n"
        "def unknown(x): return x.area()\n"
        "def mapped(): return [*map(one, [1])]\n"
        "class Kept:\n"
        "    def __init__(self, action: Callable[[], int] | None = None):\n"
        "        self.action: Callable[[], int] | None = action\n"
        "    @classmethod\n"
        "    def of(cls, action): return cls(action=action)\n"
        "    def act(self): return self.action()\n"
        "def keep(): return Kept.of(two)\n"
    ),
    "held/stand.py": (
        "import sys\nclass Stand:\n    def __getattr__(self, name): return 1\nsys.modules[__name__] = Stand()\n"
    ),
    "held/use.py": "from held import stand\ndef asked(): return stand.anything\n",
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("held"), held=HELD) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run", {"one", "two", "three"}),  # whichever level is walked: keys are not told apart
        ("counted", {"made"}),  # where the key is missing
        ("plain", set()),
        ("world", {"World"}),
        ("known", {"unheard_of"}),  # only one class has such a method
        ("unknown", set()),  # two have
        ("mapped", {"one"}),
        ("act", {"two"}),
        ("asked", {"__getattr__"}),
    ],
)
def test_what_containers_factories_and_stand_ins_lead_to(held: Index, name: str, expected: set[str]) -> None:
    found = callees(held, held.find(name)[0])
    assert {call.callee.rpartition(".")[2] for call in found} - {"Alone"} == expected


def test_answers_do_not_depend_on_the_order_of_questions(tmp_path: Path) -> None:
    """Each function is asked first once, in an index of its own."""
    names = [item.name for item in _functions(tmp_path / "all")]
    with indexed(tmp_path / "forward", held=HELD) as index:
        forward = {name: of(index, name) for name in names}
    with indexed(tmp_path / "backward", held=HELD) as index:
        assert {name: of(index, name) for name in reversed(names)} == forward
    assert any(forward.values())


def test_an_answer_that_was_cut_short_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [item.name for item in _functions(tmp_path / "all")]
    with indexed(tmp_path / "tree", held=HELD) as index:
        place = index.resolver.workspace
        with monkeypatch.context() as bounded:
            bounded.setattr(circles, "MOST", 0)
            cut = {name: of(index, name) for name in names}
    with Index.open(place) as index:
        whole = {name: of(index, name) for name in names}
    with indexed(tmp_path / "apart", held=HELD) as index:
        assert whole == {name: of(index, name) for name in names}
    assert cut != whole


def _functions(tree: Path) -> list[Definition]:
    with indexed(tree, held=HELD) as index:
        return [item for item in index.definitions("held", "held/boxes.py") if item.kind == "function"]


def test_callers_say_when_not_all_that_may_were_asked(pins: Index) -> None:
    (length,) = pins.find("verl:verl.protocol.DataProto.__len__")
    (advantage,) = pins.find("verl:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage")
    assert [partial(pins, one) for one in (length, advantage)] == [True, False]
