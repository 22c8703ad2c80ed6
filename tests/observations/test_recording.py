"""What the recorder sees of a few lines of plain code, and what it leaves alone."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from annotator.observations.observing import name_of
from annotator.observations.recording import File, Recorder

CODE = """\
import torch
def work(n):
    total = 0
    for i in range(n):
        total += i
    if total > 100:
        total = -1
    pairs = [
        (a, a)
        for a in range(n)
    ]
    box = {}
    box["sum"] = total
    x = torch.ones(n, 2)
    x.mul_(3).add_(1)
    for never in []:
        print(never)
    return (
        x.sum(),
        box,
    )
def other():
    return 1
def broken():
    value = 1
    return value / 0
"""


def record(tmp_path: Path, call: str, lines: range) -> dict[int, tuple[int, list[tuple[str, str]]]]:
    """Line of each statement that ran → how often, and names with texts."""
    path = tmp_path / "code.py"
    path.write_text(CODE)
    module = ModuleType("code")
    exec(compile(CODE, str(path), "exec"), module.__dict__)
    file = File.of(CODE, lines)
    with Recorder({str(path.resolve()): file}).watching(), suppress(ZeroDivisionError):
        eval(call, module.__dict__)
    return {one.last: (ran.times, [(s.name, s.text) for s in ran.seen]) for one, ran in file.ran.items()}


def test_what_each_line_makes(tmp_path: Path) -> None:
    seen = record(tmp_path, "work(3)", range(2, 22))
    assert seen[3] == (1, [("total", "0")])
    assert seen[4] == (4, [("i", "0")]), "a loop's head runs once more than its body"
    assert seen[5] == (3, [("total", "0")])
    assert seen[6] == (1, [("taken", "no")])
    assert 7 not in seen, "the branch that is not taken"
    assert seen[11] == (1, [("pairs", "tuple [2], tuple [2], tuple [2]")])
    assert seen[13] == (1, [("box['sum']", "3")])
    assert seen[15][1] == [("x", "4, 4, 4, 4, 4, 4")], "a method that ends in _ changes its object"
    assert seen[16] == (1, []), "a loop over nothing binds nothing"
    assert seen[21] == (1, [("returned", "24, dict [1]")])


def test_the_branch_that_is_taken(tmp_path: Path) -> None:
    seen = record(tmp_path, "work(16)", range(2, 22))
    assert (seen[6][1], seen[7][1]) == ([("taken", "yes")], [("total", "−1")])


def test_only_the_watched_lines(tmp_path: Path) -> None:
    assert set(record(tmp_path, "work(3)", range(5, 7))) == {5, 6}
    assert record(tmp_path, "other()", range(2, 22)) == {}


def test_a_line_that_raises_made_nothing(tmp_path: Path) -> None:
    seen = record(tmp_path, "broken()", range(24, 27))
    assert 25 in seen
    assert 26 not in seen


def test_statements_are_numbered_as_they_begin(tmp_path: Path) -> None:
    code = "def outer():\n    return inner()\n\n\ndef inner():\n    return 1\n"
    path = tmp_path / "order.py"
    path.write_text(code)
    module = ModuleType("order")
    exec(compile(code, str(path), "exec"), module.__dict__)
    file = File.of(code, range(1, 7))
    with Recorder({str(path.resolve()): file}).watching():
        module.__dict__["outer"]()
    assert [shape.first for shape in sorted(file.begun, key=file.begun.__getitem__)] == [2, 6]
    assert [shape.first for shape in file.ran] == [6, 2], "they end the other way round"


def test_the_trace_function_of_before_is_put_back(tmp_path: Path) -> None:
    before = sys.gettrace()
    record(tmp_path, "other()", range(1, 3))
    assert sys.gettrace() is before


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [(4, 7, "B"), (5, 9, "T"), (20, 63, "B·T"), (4, 8, "T−1"), (6, 10, "T+1"), (8, 14, "2B"), (3, 3, 3), (4, 9, 4)],
)
def test_names_of_dimensions(first: int, second: int, name: int | str) -> None:
    """The last one fits B in one run and T in the other: it is neither."""
    assert name_of(first, second, ({"B": 4, "T": 5}, {"B": 7, "T": 9})) == name
