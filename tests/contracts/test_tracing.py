"""The kind *trace*, on a cache so small that its states can be told by hand: the last few keys, latest first."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from annotator.contracts import (
    Case,
    Contract,
    Deviation,
    Implementation,
    Input,
    Knob,
    Operation,
    Output,
    conform,
    diff,
    power,
)
from annotator.contracts.diffing import template
from annotator.contracts.emitting import emit
from annotator.contracts.running import Fault, run
from annotator.contracts.tracing import driven, injection, rows, sequences, steps
from annotator.errors import UserCodeError

OPERATIONS = (
    Operation("touch", ("key",), "a key is used"),
    Operation("fill", ("*keys",), "several are, in this order"),
    Operation("drop", ("key",), "a key is taken out"),
)
OUTPUTS = (
    Output("order", ("N", "3"), "the keys, latest first", exact=True),
    Output("size", ("N",), "how many there are", exact=True),
)


class Recent:
    def __init__(self, capacity):
        self.capacity, self.order = capacity, []

    def touch(self, key):
        self.order = [key, *(k for k in self.order if k != key)][: self.capacity]

    def fill(self, keys):
        for key in keys:
            self.touch(key)

    def drop(self, key):
        self.order = [k for k in self.order if k != key]

    @property
    def size(self):
        return len(self.order)


class Stays(Recent):
    """A key that is used again keeps its place."""

    def touch(self, key):
        if key not in self.order:
            super().touch(key)


class Reversed(Recent):
    def fill(self, keys):
        super().fill(keys[::-1])


def cases():
    keys = st.integers(0, 3)
    lists = st.lists(keys, max_size=3)
    drawn = sequences(OPERATIONS, {"key": keys, "keys": lists}, longest=3, most=6, often=("touch",))
    return st.builds(lambda n, c: Case({"operations": n}, {"capacity": c}), drawn, st.sampled_from((2, 3)))


def case(*words, capacity=2, label=""):
    return Case({"operations": rows(words, OPERATIONS, 3)}, {"capacity": capacity}, label)


def made(kind):
    return driven(kind, OPERATIONS, OUTPUTS)


def implementation(name, role, kind):
    return Implementation(name, role, "numpy", made(kind), (), dtypes=("float64",), differentiable=False)


CONTRACT = Contract(
    name="recent",
    kind="trace",
    title="The latest keys",
    doc="",
    inputs=(Input("operations", ("N", "5"), "int", "rows"),),
    outputs=OUTPUTS,
    knobs=(Knob("capacity", 2, (2, 3), "how many are kept"),),
    cases=cases,
    edges=lambda: (case(("touch", 1), ("touch", 2), ("touch", 1), label="used again"),),
    implementations=(implementation("ref", "reference", Recent), implementation("minimal", "minimal", Recent)),
    deviations=(
        Deviation("stays", "a key that is used again stays", "it goes first", made(Stays)),
        Deviation("reversed", "from behind", "in order", made(Reversed)),
    ),
    operations=OPERATIONS,
)

OWN = """
class Cache:
    def __init__(self, capacity, note=""):
        self.keys, self.capacity = {}, capacity

    def touch(self, key):
        TOUCH
        self.keys[key] = True
        if len(self.keys) > self.capacity:
            self.keys.pop(next(iter(self.keys)))

    def fill(self, keys):
        for key in keys:
            self.touch(key)

    def remove(self, key):
        self.keys.pop(key, None)

    def order(self):
        return reversed(self.keys)
"""
RIGHT = OWN.replace("TOUCH", "self.keys.pop(key, None)")
STAYS = OWN.replace("TOUCH", "pass")


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def asked(folder: Path, text: str, **options):
    options = {"mapping": {"remove": "drop"}, **options}
    return diff(written(folder, text), "Cache", CONTRACT, examples=20, **options)


def test_rows_and_steps_are_each_others_inverse():
    words = [("touch", 3), ("fill", [1, 2]), ("drop", 0), ("fill", [])]
    array = rows(words, OPERATIONS, 3)
    assert array.tolist() == [[0, 3, 0, 0, 0], [1, 2, 1, 2, 0], [2, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert [(step.operation.name, *step.arguments) for step in steps(array, OPERATIONS)] == words
    assert str(steps(array, OPERATIONS)[1]) == "fill(keys=[1, 2])"


def test_what_is_seen_after_each_operation():
    found = run(CONTRACT, made(Recent), "numpy", case(("touch", 1), ("fill", [2, 3]), ("drop", 3), ("touch", 2)))
    assert found.outputs["order"].tolist() == [[1, -1, -1], [3, 2, -1], [2, -1, -1], [2, -1, -1]]
    assert found.outputs["size"].tolist() == [1, 2, 1, 1]
    assert found.outputs["order"].dtype == np.int64


def test_no_operation_shows_nothing():
    assert run(CONTRACT, made(Recent), "numpy", case()).outputs["order"].shape == (0, 3)


def test_a_trace_is_the_same_from_torch():
    pytest.importorskip("torch")
    given = case(("touch", 1), ("fill", [2, 3]))
    by_torch, by_numpy = (run(CONTRACT, made(Recent), backend, given) for backend in ("torch", "numpy"))
    assert (by_torch.outputs["order"] == by_numpy.outputs["order"]).all()


@pytest.mark.parametrize(
    ("kind", "rule", "said"),
    [
        (type("Raises", (Recent,), {"drop": lambda self, key: 1 // 0}), "raises", "in step 1, drop(key=7)"),
        (type("Ragged", (Recent,), {"size": property(lambda self: self.order)}), "shape", "(0,) and (1,)"),
    ],
)
def test_what_breaks_is_told_by_its_step(kind, rule, said):
    with pytest.raises(Fault) as caught:
        run(CONTRACT, made(kind), "numpy", case(("touch", 7), ("drop", 7)))
    assert caught.value.rule == rule
    assert said in str(caught.value)


def test_a_row_without_an_operation_is_refused():
    with pytest.raises(Fault, match="a number below 3"):
        run(CONTRACT, made(Recent), "numpy", Case({"operations": np.array([[9, 0, 0, 0, 0]])}, {"capacity": 2}))


def test_a_right_trace_conforms_and_deviations_are_caught():
    assert all(finding.passed for finding in conform(CONTRACT, examples=20))
    kills = power(CONTRACT, examples=20, dtypes=("float64",))
    assert {kill.deviation for kill in kills if kill.caught} == {"stays", "reversed"}


def test_the_witness_is_the_shortest_list_of_operations():
    broken = replace(CONTRACT.implementation("minimal"), call=made(Reversed))
    contract = replace(CONTRACT, implementations=(CONTRACT.implementation("ref"), broken), edges=lambda: ())
    finding = next(f for f in conform(contract, names=("minimal",), examples=20) if not f.passed)
    assert finding.witness is not None
    lines = finding.witness.lines()
    assert "  0  fill(keys=[0, 1])" in lines
    assert lines[-2:] == ["  expected [1, 0, -1]", "  found    [0, 1, -1]"]
    assert finding.witness.to_json()["steps"] == ["0  fill(keys=[0, 1])"]


def test_a_users_class_equals(tmp_path):
    verdict = asked(tmp_path, RIGHT)
    assert verdict.equal, verdict.render()
    assert "not returned, hence not compared: size" in verdict.notes


def test_a_users_class_is_named(tmp_path):
    verdict = asked(tmp_path, STAYS)
    assert verdict.explanation is not None
    assert [item.name for item in verdict.explanation.deviations] == ["stays"]
    assert "  2  touch(key=1)" not in verdict.render()
    assert any(line.startswith("  0  ") for line in verdict.witness.lines())


def test_a_knob_that_a_class_holds_is_found(tmp_path):
    verdict = asked(tmp_path, RIGHT.replace("capacity, note", "note").replace("= {}, capacity", "= {}, 3"))
    assert verdict.equal
    assert verdict.held["ref"] == {"capacity": 3}


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (RIGHT, {"mapping": {}}, "no 'drop' in Cache"),
        (RIGHT.replace("capacity, note", "capacity, rest, note"), {}, "'rest'"),
        (RIGHT.replace("for key in keys", "for key in keys[9]"), {}, "in step"),
        (RIGHT.replace("def order", "def sequence"), {}, "outputs named order, size"),
    ],
)
def test_a_class_that_cannot_be_driven_is_refused(tmp_path, text, options, said):
    with pytest.raises(UserCodeError) as caught:
        asked(tmp_path, text, **options)
    assert said in str(caught.value)


def test_the_emitted_test_fails_on_the_deviation_and_passes_on_the_right_class(tmp_path):
    verdict = asked(tmp_path, STAYS)
    path = tmp_path / "test_mine.py"
    path.write_text(emit(verdict, CONTRACT, path))
    assert "OPERATIONS = [('" in path.read_text()
    for text, code in ((STAYS, 1), (RIGHT, 0)):
        written(tmp_path, text)
        assert subprocess.run([sys.executable, str(path)], capture_output=True).returncode == code


def test_the_template_is_a_class_to_be_filled_in(tmp_path):
    text = template(CONTRACT)
    assert "    def fill(self, keys):" in text
    assert "    def __init__(self, capacity=2):" in text
    path = tmp_path / "template.py"
    path.write_text(text)
    with pytest.raises(UserCodeError, match="NotImplementedError"):
        diff(path, "Recent", CONTRACT, examples=3)


class Meter:
    def __init__(self, start):
        self.total, self.calls = int(start), 0

    def add(self, number):
        self.calls += 1
        self.total += number


class Forgetful(Meter):
    """Every third number is lost: a state that no observable shows."""

    def add(self, number):
        super().add(number if self.calls % 3 != 2 else 0)


@pytest.mark.parametrize(("kind", "holds"), [(Meter, True), (Forgetful, False)])
def test_the_injection_of_a_state_sees_what_is_hidden(kind, holds):
    table = (Operation("add", ("number",), ""),)
    call = driven(kind, table, (Output("total", ("N",), "", exact=True),))
    given = Case({"operations": rows([("add", n) for n in (1, 2, 3, 4)], table), "start": np.array(5)})
    interface = replace(
        CONTRACT,
        inputs=(Input("operations", ("N", "2"), "int", ""), Input("start", (), "int", "")),
        outputs=(Output("total", ("N",), "", exact=True),),
    )
    probe = injection({"start": "total"})
    assert (probe.relation(lambda item: run(interface, call, "numpy", item), given) == 0) is holds
    assert (
        probe.relation(
            lambda item: run(interface, call, "numpy", item),
            replace(given, inputs={**given.inputs, "operations": rows([], table)}),
        )
        is None
    )
