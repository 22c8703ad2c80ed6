"""What `diff` says of a function that is not equal: its dialect, its deviation, its arithmetic; and what it writes."""

import dataclasses
import functools
import json
import subprocess
import sys

import pytest

from annotator.contracts import Deviation, Implementation, diff
from annotator.contracts.diffing import literals, write
from annotator.contracts.explaining import composed, points
from annotator.contracts.probes import poison
from annotator.errors import UserCodeError
from tests.contracts import toy

USER = """
import torch

def f(values, mask, eps):
    kept = torch.where(mask, values, 0.0)
    return {"mean": kept.sum(-1) / (mask.sum(-1).to(values.dtype) + eps), "kept": mask.sum(-1)}

def held(values, mask):
    return f(values, mask, 1e-6)

def other_eps(values, mask):
    return f(values, mask, 1e-4)

def padded(values, mask, eps):
    return {**f(values, mask, eps), "mean": torch.where(mask, values, 0.0).sum(-1) / (values.shape[-1] + eps)}

def padded_other_eps(values, mask):
    return padded(values, mask, 1e-4)

def cut(values, mask, eps):
    return f(values.detach(), mask, eps)

def doubled_slope(values, mask, eps):
    return f(2 * values - values.detach(), mask, eps)

def by_product(values, mask, eps):
    return {"mean": (values * mask).sum(-1) / (mask.sum(-1).to(values.dtype) + eps), "kept": mask.sum(-1)}

def cubed(values, mask, eps):
    return {"mean": f(values, mask, eps)["mean"] ** 3}

def picky(values, mask, eps):
    if eps > 1e-5:
        raise KeyError(eps)
    return padded(values, mask, eps)

def coarse(values, mask, eps):
    short = values + (values.bfloat16().to(values.dtype) - values).detach() if values.dtype == torch.float32 else values
    return f(short, mask, eps)

class Mean:
    def __init__(self, eps=1e-6):
        if eps < 0:
            raise ValueError("eps below 0")
        self.eps = eps

    def mean(self, values, mask):
        return f(values, mask, self.eps)

    def forward(self, values, mask):
        return f(values, mask, self.eps)
"""

MINIMAL = Implementation("minimal-torch", "minimal", "torch", toy.mean_torch, ("minimal/toy_torch.py",))
CONTRACT = toy.contract(implementations=(toy.REFERENCE, MINIMAL))


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.py").write_text(USER)
    return str(tmp_path / "mine.py")


def _diff(file, function, **options):
    return diff(file, function, options.pop("contract", CONTRACT), **{"timeout": 60.0, "examples": 30, **options})


EXPLAINED = [
    ("other_eps", "dialect", {"eps": 1e-4}, [], "is ref's with eps=0.0001 (ref: eps=1e-06)"),
    ("padded", "deviation", {}, ["padded"], "is ref's with deviation padded"),
    ("padded_other_eps", "deviation", {"eps": 1e-4}, ["padded"], "with deviation padded and eps=0.0001"),
    ("cut", "deviation", {}, ["cut"], "is ref's with deviation cut"),
    ("coarse", "arithmetic", {}, [], "is the same mathematics as ref, less accurate in float32 (error "),
]


@pytest.mark.parametrize(("function", "kind", "moved", "names", "says"), EXPLAINED)
def test_what_it_is_instead(file, function, kind, moved, names, says):
    verdict = _diff(file, function)
    assert not verdict.equal
    assert verdict.explanation.kind == kind
    assert verdict.explanation.moved == moved
    assert [item.name for item in verdict.explanation.deviations] == names
    assert says in verdict.render()[0]
    assert verdict.witness is not None
    assert json.loads(json.dumps(verdict.to_json()))["explanation"]["kind"] == kind


def test_what_nothing_explains_gets_a_witness_alone(file):
    verdict = _diff(file, "cubed")
    assert verdict.explanation is None
    assert "no dialect and no deviation" in verdict.render()[1]
    assert "smallest input" in verdict.render()[2]


@pytest.mark.parametrize("function", ["f", "held"])
def test_equal_functions_get_no_explanation(file, function):
    verdict = _diff(file, function)
    assert verdict.equal_to == ("ref",)
    assert verdict.explanation is None


def test_a_knob_that_the_reference_leaves_open_is_found(file):
    free = dataclasses.replace(toy.REFERENCE, dialect={})
    verdict = _diff(file, "other_eps", contract=toy.contract(implementations=(free, MINIMAL)))
    assert verdict.equal_to == ("ref",)
    assert verdict.render()[0].endswith("equals ref at eps=0.0001")


@pytest.mark.parametrize(("refuses", "kind"), [(True, "deviation"), (False, "dialect")])
def test_a_dialect_that_the_reference_refuses_is_none_where_a_deviation_explains(file, refuses, kind):
    def accepts(case):
        return "another eps" if refuses and case.knobs["eps"] != 1e-6 else None

    wide = Deviation("wide-eps", "a large eps", "a small one", functools.partial(_at_eps, 1e-4))
    reference = dataclasses.replace(toy.REFERENCE, accepts=accepts)
    made = toy.contract(implementations=(reference, MINIMAL), deviations=(wide,))
    assert _diff(file, "other_eps", contract=made).explanation.kind == kind


def _at_eps(fixed, values, mask, eps):
    return toy.mean_torch(values, mask, fixed)


def test_a_reference_at_which_the_function_raises_does_not_hide_what_it_is(file):
    other = dataclasses.replace(toy.REFERENCE, name="other", dialect={"eps": 1e-4})
    verdict = _diff(file, "picky", contract=toy.contract(implementations=(toy.REFERENCE, other, MINIMAL)))
    assert [item.name for item in verdict.explanation.deviations] == ["padded"]
    assert any(note.startswith("other: not compared, it cannot be run there") for note in verdict.notes)


def test_a_reference_that_is_not_equal_runs_on_the_witness_only(file):
    calls = []

    def counted(**arguments):
        calls.append(1)
        return toy.mean_torch(**arguments)

    reference = dataclasses.replace(toy.REFERENCE, call=counted)
    verdict = _diff(file, "padded", contract=toy.contract(implementations=(reference, MINIMAL)))
    assert verdict.explanation.reference == "ref"
    assert len(calls) <= 3  # once, and twice more where a condition is asked for
    assert all(item.ran == "minimal-torch" for item in verdict.comparisons)


INIT = [
    ("Mean.mean", {}, ("ref",)),
    ("Mean", {}, ("ref",)),
    ("Mean.mean", {"eps": 1e-4}, ()),
]


@pytest.mark.parametrize(("function", "init", "equal"), INIT)
def test_methods(file, function, init, equal):
    assert _diff(file, function, init=init).equal_to == equal


BAD = [("Mean.mean", {"eps": -1}, "eps below 0"), ("Mean.mean", {"ops": 1}, "ops"), ("f", {"eps": 1}, "--init")]


@pytest.mark.parametrize(("function", "init", "part"), BAD)
def test_objects_that_cannot_be_made(file, function, init, part):
    with pytest.raises(UserCodeError) as caught:
        _diff(file, function, init=init)
    assert part in str(caught.value)
    assert "mine.py" in caught.value.place


def test_literals():
    assert literals({"a": "1e-3", "b": "[1]", "c": "None", "d": "text"}) == {
        "a": 1e-3,
        "b": [1],
        "c": None,
        "d": "text",
    }


@pytest.mark.parametrize("function", ["padded", "cut"])
def test_the_emitted_test_fails_until_the_function_is_mended(file, tmp_path, function):
    verdict = _diff(file, function)
    path = tmp_path / "test_mine.py"
    write(verdict, CONTRACT, emitted=str(path), html=None)
    assert "annotator" not in path.read_text()
    assert subprocess.run([sys.executable, str(path)], capture_output=True).returncode == 1
    with open(file, "a") as text:
        text.write(f"\n{function} = f\n")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_report_loads_nothing(file, tmp_path):
    told = write(_diff(file, "padded"), CONTRACT, emitted=None, html=str(tmp_path / "mine.html"))
    text = (tmp_path / "mine.html").read_text()
    assert told == [f"{tmp_path / 'mine.html'}: written"]
    assert "deviation padded" in text
    assert not any(part in text for part in ("http", "src=", "<script", "<link"))


def test_nothing_is_emitted_for_an_equal_function(file, tmp_path):
    told = write(_diff(file, "f"), CONTRACT, emitted=str(tmp_path / "test_mine.py"), html=None)
    assert "not written" in told[0]
    assert not (tmp_path / "test_mine.py").exists()


def test_points_are_choices_first_then_values_beyond():
    moved = [point["eps"] for point in points(CONTRACT, {"eps": 1e-6}, ["eps"], 1)]
    assert moved[0] == 1e-4
    assert {1e-8, 1e-12} < set(moved)
    assert 1e-6 not in moved
    assert list(points(CONTRACT, {"eps": 1e-6}, ["eps"], 0)) == [{"eps": 1e-6}]


def _variant(x, *, a=None, b=None):
    return a, b


def test_deviations_compose_where_they_replace_different_parts():
    first, second, plain = (
        Deviation("d", "", "", call)
        for call in (functools.partial(_variant, a=1), functools.partial(_variant, b=2), _variant)
    )
    assert composed(first, second)(0) == (1, 2)
    assert composed(first, first) is None
    assert composed(first, plain) is None


# Without a reference --------------------------------------------------------------------------------------------------

NAN = poison({"values": "mask"}, name="nan")
BLIND = dataclasses.replace(CONTRACT, probes=(NAN,), edges=tuple)
"""No case of it has NaN under the mask: only the probe looks there."""


def test_what_agrees_on_every_case_and_breaks_a_probe_is_not_equal(file):
    verdict = _diff(file, "by_product", contract=dataclasses.replace(BLIND, deviations=()))
    assert not verdict.equal
    assert verdict.agrees_with == ("ref",)
    assert verdict.explanation is None
    assert "agrees with ref on every case, but breaks nan" in verdict.headline()
    assert [item["probe"] for item in verdict.to_json()["broken"]] == ["nan"]


def test_a_deviation_that_only_a_probe_sees_is_named(file):
    verdict = _diff(file, "by_product", contract=BLIND)
    assert verdict.explanation is not None
    assert [item.name for item in verdict.explanation.deviations] == ["poisoned"]


def test_a_probe_that_the_library_breaks_too_is_not_held_against_a_function(file):
    lax = dataclasses.replace(toy.REFERENCE, breaks=("nan",))
    verdict = _diff(file, "by_product", contract=dataclasses.replace(BLIND, implementations=(lax, MINIMAL)))
    assert verdict.equal


def test_what_keeps_the_probe_is_equal(file):
    assert _diff(file, "f", contract=BLIND).equal


def test_a_wrong_gradient_is_not_taken_for_none(file):
    """The deviation ``cut`` has the same values and no gradient at all: it is not what this function does."""
    verdict = _diff(file, "doubled_slope")
    assert not verdict.equal
    assert verdict.explanation is None
