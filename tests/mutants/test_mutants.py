"""The mutation tester itself: what is a mutant, what a judge sees, and that the list of survivors is sound."""

from __future__ import annotations

import ast
import dataclasses
import functools
import sys

import numpy as np
import pytest

pytest.importorskip("cosmic_ray")

from annotator.contracts import Case, Contract, Implementation
from tests.contracts import toy
from tests.mutants import judging
from tests.mutants.__main__ import Tried, sound
from tests.mutants.benches import load, record, save
from tests.mutants.judging import Bench, Judge, UnitTests, Verdict
from tests.mutants.listing import Entry, argued, entries, stubs
from tests.mutants.making import Mutant, mutants, mutants_of
from tests.mutants.operators import OPERATORS
from tests.mutants.planting import ROOT, dependents, imports, planted

TOY = "tests/mutants/toy_mean.py"
ENTRIES = entries()

# What is a mutant -----------------------------------------------------------------------------------------------------

OURS = [
    ("ExchangeFunction", "x.sum(dim=1)", ["x.mean(dim=1)", "x.prod(dim=1)"]),
    ("ExchangeFunction", "torch.minimum(a, b)", ["torch.maximum(a, b)"]),
    ("ExchangeFunction", "x.reshape(2)", []),
    ("RemoveCall", "x.detach()", ["x"]),
    ("RemoveCall", "jax.lax.stop_gradient(x + 1)", ["x + 1"]),
    ("RemoveCall", "torch.exp(-h)", ["-h"]),
    ("RemoveCall", "x.sum()", []),
    ("ExchangeBranches", "torch.where(m, a, 0.0)", ["torch.where(m, 0.0, a)"]),
    ("ExchangeBranches", "torch.where(m)", []),
    ("ExchangeChoice", "a if m else b", ["b if m else a"]),
    ("ExchangeArguments", "mean(a, b, c)", ["mean(b, a, c)", "mean(a, c, b)"]),
    ("ExchangeArguments", "torch.mean(a, b)", []),
    ("ExchangeArguments", "mean(*a, b)", []),
    ("ScaleNumber", "1e-06", ["1.5e-06"]),
    ("ScaleNumber", "2", []),
    ("ScaleNumber", "0.0", []),
    ("RemoveOperand", "a + b", ["a", "b"]),
    ("RemoveOperand", "a and b", ["a", "b"]),
    ("RemoveOperand", "f(a)", []),
]


@pytest.mark.parametrize(("operator", "text", "expected"), OURS)
def test_our_operators(operator, text, expected):
    assert [ast.unparse(made) for made in OPERATORS[operator](ast.parse(text, mode="eval").body)] == expected


def test_every_operator_of_ours_has_an_example():
    assert {name for name, _, expected in OURS if expected} == set(OPERATORS)


NONE = {
    "a docstring": 'def f(x):\n    """From 0 to 1."""\n    return x\n',
    "an annotation": "def f(x: int | None) -> float | int:\n    return x\n",
    "an annotated field": "class A:\n    x: int | None\n",
    "exported names": '__all__ = ["a" + "b"]\n',
    "the wording of an error": 'def f(x):\n    raise ValueError(f"{x + 1}")\n',
    "compilation": "@jax.jit\ndef f(x):\n    return x\n",
    "the star before keywords": "def f(x, *, y):\n    return x\n",
}


@pytest.mark.parametrize("source", NONE.values(), ids=NONE)
def test_what_cannot_change_a_value_is_no_mutant(source):
    assert mutants_of(source, "f.py") == []


def afters(source):
    return [mutant.after for mutant in mutants_of(source, "f.py")]


MADE = [
    ("def f(x):\n    return x - 1\n", {"return x + 1", "return x - 2", "return x - 0", "return x", "return 1"}),
    ("def f(x):\n    return a < b\n", {"return a <= b", "return a == b", "return a > b"}),
    ("def f(x):\n    return x & y\n", {"return x | y", "return x ^ y"}),
    ("def f(x):\n    if x == 'a':\n        return 1\n    return 2\n", {"if x != 'a':", "if not x == 'a':", "return 3"}),
    ("class A:\n    @property\n    def x(self):\n        return 0.5\n", {"def x(self):", "return 0.75"}),
    ("def f(x, eps=1e-06):\n    return x\n", {"def f(x, eps=1.5e-06):"}),
]


@pytest.mark.parametrize(("source", "expected"), MADE)
def test_what_is_a_mutant(source, expected):
    assert expected <= set(afters(source))


@pytest.mark.parametrize(("source", "other"), [("x = a + b\n", "x = a << b"), ("y = t == 'a'\n", "y = t < 'a'")])
def test_what_says_nothing_of_numbers_is_left_out(source, other):
    assert afters(source)
    assert other not in afters(source)


PLACES = """A = 1


class B:
    def f(self, x=3):
        y = (
            x + 1
        )
        return y
"""


def test_a_mutant_knows_its_place():
    source = PLACES
    made = mutants_of(source, "f.py")
    assert all(ast.dump(ast.parse(m.source)) != ast.dump(ast.parse(source)) for m in made)
    assert len({m.source for m in made}) == len(made)
    assert {(m.function, m.before, min(m.lines, default=0), max(m.lines, default=0)) for m in made} == {
        ("", "A = 1", 0, 0),
        ("B.f", "def f(self, x=3):", 0, 0),
        ("B.f", "y = x + 1", 6, 8),
    }
    assert {m.function for m in mutants_of(source, "f.py", {"B"})} == {"B.f"}


# What a judge sees ----------------------------------------------------------------------------------------------------


def toy_call(values, mask, eps):
    from tests.mutants.toy_mean import mean

    return {"mean": mean(values, mask, eps), "kept": mask.sum(-1)}


def toy_contract() -> Contract:
    minimal = Implementation("minimal-torch", "minimal", "torch", toy_call, (TOY,))
    return toy.contract(implementations=(toy.REFERENCE, minimal))


@pytest.fixture(scope="module")
def judge(tmp_path_factory) -> Judge:
    contract, path = toy_contract(), tmp_path_factory.mktemp("kept") / "toy.pickle"
    save(record(contract, examples=6), path)
    bench = Bench(contract, contract.implementation("minimal-torch"), load(contract, path), TOY).prepare()
    assert not bench.unanswered
    return Judge(TOY, [bench])


def changed(old: str, new: str, lines: frozenset[int] = frozenset()) -> Mutant:
    source = (ROOT / TOY).read_text()
    assert source.count(old) == 1
    return Mutant(TOY, "mean", "by hand", old, new, lines, source.replace(old, new))


VERDICTS = [
    ("values, 0.0)", "values, 1.0)", "value"),
    ("count + eps", "count - eps", "value"),
    ("kept.sum(dim=-1) /", "kept.detach().sum(dim=-1) /", "gradient"),
    ("values, 0.0)", "values, 0.0) + undefined", "fault"),
    ("import torch", "import torch.no_such_module", "import"),
    ("count.ndim > 1", "count.ndim >= 1", "value"),
    ("count = count[0]", "pass", ""),
    ("count.ndim > 1", "count.ndim > 2", ""),
    ("eps=1e-6", "eps=1.0", ""),
]


@pytest.mark.parametrize(("old", "new", "by"), VERDICTS)
def test_a_wrong_mutant_is_killed_and_an_equivalent_one_lives(judge, old, new, by):
    assert judge(changed(old, new)).by == by


def test_a_mutant_that_loops_is_ended(judge, monkeypatch):
    monkeypatch.setattr(judging, "PATIENCE", 0.2)
    mutant = changed("count = count[0]", "pass")
    assert judge(dataclasses.replace(mutant, source=mutant.source.replace("count.ndim > 1", "True"))).by == "time-out"


def test_a_line_that_no_case_runs_is_not_judged_by_cases(judge):
    wrong = changed("values, 0.0)", "values, 1.0)", frozenset({10_000}))
    assert not judge(wrong).killed
    assert judge(dataclasses.replace(wrong, lines=frozenset({8}))).killed


def test_jax_is_asked_in_few_shapes():
    cases = [Case({"x": np.zeros(n)}, label=label) for n, label in [(1, "edge"), *((n // 2, "") for n in range(2, 40))]]
    kept = judging._in_few_shapes([FakeSample(case) for case in cases])
    assert [len(sample.case.inputs["x"]) for sample in kept] == [1, *(n // 2 for n in range(2, 22))]


@dataclasses.dataclass
class FakeSample:
    case: Case


def test_the_original_stands_again_afterwards(judge):
    from tests.mutants import toy_mean

    judge(changed("count + eps", "count - eps"))
    assert sys.modules["tests.mutants.toy_mean"] is toy_mean
    assert toy_mean.mean.__defaults__ == (1e-6,)


def test_modules_that_import_the_mutated_one_are_made_anew():
    name = next(name for name in imports() if name.endswith("_torch") and dependents(name))
    other = dependents(name)[0]
    source = (ROOT / (name.replace(".", "/") + ".py")).read_text()
    __import__(other)
    before = sys.modules[other]
    with planted(name, source):
        assert sys.modules[other] is not before
    assert sys.modules[other] is before


def test_a_twin_with_another_default_is_seen_by_its_outline():
    wrong = changed("eps=1e-6", "eps=1.5e-6")
    assert "test_twins" in UnitTests(TOY, (), ROOT / TOY).outline(wrong)
    assert not UnitTests(TOY, (), ROOT / TOY).outline(changed("count + eps", "count - eps"))


def test_a_default_that_the_contract_states_otherwise_is_seen():
    wrong = changed("eps=1e-6", "eps=1.5e-6")
    with planted("tests.mutants.toy_mean", wrong.source):
        assert "test_defaults" in UnitTests(TOY, contracts=(toy_contract(),)).outline(wrong)
    assert not UnitTests(TOY, contracts=(toy_contract(),)).outline(wrong)


# The score and the list -----------------------------------------------------------------------------------------------

DEAD, ALIVE = Verdict("value", "a case"), Verdict()
SCORES = [
    ([(DEAD, "")] * 20, True),
    ([(DEAD, "")] * 19 + [(ALIVE, "equal for all x")], True),
    ([(DEAD, "")] * 19 + [(ALIVE, "")], False),
    ([(DEAD, "")] * 18 + [(ALIVE, "equal for all x")] * 2, False),
    ([(DEAD, "")] * 19 + [(DEAD, "equal for all x")], False),
]


@pytest.mark.parametrize(("tried", "expected"), SCORES)
def test_when_a_run_is_sound(tried, expected):
    mutant = changed("count + eps", "count - eps")
    assert sound([Tried(mutant, verdict, reason) for verdict, reason in tried]) is expected


def test_a_stub_is_an_entry_without_its_reason(tmp_path):
    mutant = dataclasses.replace(changed("count + eps", "count - eps"), before="x == 'a'")
    path = tmp_path / "list.toml"
    path.write_text(stubs([mutant]))
    assert entries(path) == (Entry((TOY,), "mean", "x == 'a'", ("count - eps",), ""),)
    assert argued(path) == {mutant.key: ""}


@functools.cache
def keys_of(file, within):
    return {mutant.key for mutant in mutants(ROOT / file, ROOT, {within})}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.function}-{entry.before[:30]}")
def test_an_entry_gives_its_reason_and_fits_the_code(entry):
    assert len(entry.reason.split()) > 4
    assert entry.after
    for file in entry.files:
        assert file.startswith("minimal/")
        made = keys_of(file, entry.function.partition(".")[0])
        missing = {key for key in entry.mutants() if key[0] == file} - made
        assert not missing


def test_no_mutant_is_argued_twice():
    keys = [key for entry in ENTRIES for key in entry.mutants()]
    assert len(keys) == len(set(keys))
