"""Who calls what, on a little tree: every kind of call that is an edge, and what is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.index import Call, Index
from annotator.index.calls import callees, callers, path
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
        ("shop.goods.price", [("tax", 3), ("total", 6)]),  # not where it is handed to map
        ("shop.till.alone", []),
    ],
)
def test_who_calls_it(index: Index, name: str, expected: list[tuple[str, int]]) -> None:
    assert to(index, name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.till.Till.total", [("add", 6), ("price", 6)]),
        ("shop.till.main", [("Till", 14), ("total", 15)]),
        ("shop.till.Till", [("__init__", 3)]),
        ("shop.till.Till.add", [("rounded", 9)]),
        ("shop.till.handed", []),
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
    assert chain(path(index, start, goal)) == ["total", "price", "tax"]
    assert chain(path(index, index.find("shop.till.Till")[0], goal)) == ["__init__", "Good", "__init__", "tax"]


def test_no_chain_and_circles_end(index: Index) -> None:
    start, goal = index.find("shop.goods.tax")[0], index.find("shop.till.alone")[0]
    assert path(index, start, goal) is None
    assert chain(path(index, start, index.find("shop.goods.price")[0])) == ["price"]
    assert path(index, index.find("shop.till.main")[0], index.find("shop.goods.tax")[0], widest=1) is None


def test_a_limit(index: Index, tmp_path: Path) -> None:
    assert len(callers(index, index.find("shop.goods.price")[0], limit=1)) == 1
