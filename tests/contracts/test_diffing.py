"""`diff` from a user's file: the answers, and one clear line for everything that cannot be run."""

import json

import pytest

from annotator.contracts import diff, template
from annotator.contracts.diffing import backend_of
from annotator.errors import ContractError, UserCodeError
from tests.contracts import toy

TORCH = """
import torch

def f(values, mask, eps):
    kept = torch.where(mask, values, 0.0)
    return {"mean": kept.sum(-1) / (mask.sum(-1).to(values.dtype) + eps), "kept": mask.sum(-1)}

def anything(values, mask, eps, *, dtype=None):
    return tuple(f(values, mask, eps).values())

def detached(values, mask, eps):
    return f(values.detach(), mask, eps)

def narrow(values, mask, eps):
    return f(values.float(), mask, eps)

def width(values, mask):
    return torch.where(mask, values, 0.0).mean(-1)

def poisoned(values, mask, eps):
    return {"mean": (values * mask).sum(-1) / (mask.sum(-1).to(values.dtype) + eps)}

def greedy(values, mask):
    torch.empty(2**36)
"""

JAX = """
import jax.numpy as jnp

def f(values, mask, eps):
    kept = jnp.where(mask, values, 0.0)
    return {"mean": kept.sum(-1) / (mask.sum(-1).astype(values.dtype) + eps), "kept": mask.sum(-1)}
"""

NUMPY = """
import numpy as np

def f(values, mask, eps=1e-6):
    kept = np.where(mask, values, np.zeros_like(values))
    count = mask.sum(-1)
    return kept.sum(-1) / (count.astype(values.dtype) + values.dtype.type(eps)), count

def loud(values, mask):
    print("noise " * 10000)
    import os
    os.write(1, b"more noise")
    return f(values, mask)

def renamed(x, keep):
    mean, count = f(x, keep)
    return {"average": mean, "kept": count}

def everything(**given):
    return f(given["values"], given["mask"], given["eps"])

def positional(values, mask, /):
    return f(values, mask)

def width(values, mask):
    return np.where(mask, values, 0.0).mean(-1)

def nan(values, mask):
    return np.full(len(values), np.nan)

def unknown_parameter(values, maks): ...
def no_parameter(): ...
def shape(values, mask): return values
def nothing(values, mask): return None
def text(values, mask): return "text"
def many(values, mask): return 1, 2, 3
def other_names(values, mask): return {"meen": values.sum(-1)}

def in_place(values, mask):
    values[:] = 0
    return f(values, mask)

def raises(values, mask):
    x = 1
    return x / 0

def leaves(values, mask):
    import sys
    sys.exit(3)

def dies(values, mask):
    import os
    os._exit(3)

def never(values, mask):
    while True:
        pass

def random(values, mask):
    return np.random.default_rng().random(len(values))

calls = []

def remembers(values, mask):
    calls.append(1)
    return f(values, mask)[0] + len(calls)

def greedy(values, mask):
    return np.ones(2**33)
"""

LIMITS = {"timeout": 60.0, "examples": 6}


@pytest.fixture
def write(tmp_path):
    def made(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return made


def _diff(file, function, **options):
    return diff(file, function, options.pop("contract", None) or toy.contract(), **{**LIMITS, **options})


EQUAL = [
    (TORCH, "f", {}, ""),
    (TORCH, "anything", {}, ""),
    (TORCH, "narrow", {}, "compared in float32 only"),
    (JAX, "f", {}, ""),
    (NUMPY, "f", {}, "values only"),
    (NUMPY, "loud", {}, ""),
    (NUMPY, "renamed", {"mapping": {"x": "values", "keep": "mask", "average": "mean"}}, ""),
    (NUMPY, "everything", {}, ""),
    (NUMPY, "positional", {}, ""),
]


@pytest.mark.parametrize(("text", "function", "options", "note"), EQUAL)
def test_equal(write, text, function, options, note):
    verdict = _diff(write(text), function, **options)
    assert verdict.equal
    assert verdict.equal_to == ("ref",)
    assert any(note in line for line in verdict.render())
    assert json.loads(json.dumps(verdict.to_json()))["status"] == "equal"


DIFFERENT = [
    (TORCH, "width", "mean", ""),
    (TORCH, "detached", "gradient of values", "detached"),
    (TORCH, "poisoned", "mean", "NaN where"),
    (NUMPY, "width", "mean", ""),
    (NUMPY, "nan", "mean", "NaN where"),
]


@pytest.mark.parametrize(("text", "function", "part", "reason"), DIFFERENT)
def test_different(write, text, function, part, reason):
    verdict = _diff(write(text), function)
    assert not verdict.equal
    assert verdict.nearest == "ref"
    assert verdict.witness.part == part
    assert reason in verdict.witness.reason
    assert verdict.witness.case.inputs["values"].size <= 2
    text = "\n".join(verdict.render())
    assert "smallest input" in text
    assert "expected" in text
    assert json.loads(json.dumps(verdict.to_json()))["witness"]["part"] == part


BAD = [
    ("unknown_parameter", {}, "def unknown_parameter", ["'maks'", "did you mean mask", "--map"]),
    ("no_parameter", {}, "def no_parameter", ["some of values, mask, eps"]),
    ("shape", {}, "", ["[B=", "'mean'"]),
    ("nothing", {}, "def nothing", ["NoneType"]),
    ("text", {}, "def text", ["an array", "str"]),
    ("many", {}, "def many", ["at most 2 outputs"]),
    ("other_names", {}, "def other_names", ["meen", "did you mean mean"]),
    ("in_place", {}, "", ["'values' changed in place"]),
    ("raises", {}, "x / 0", ["ZeroDivisionError", "nothing kept"]),
    ("leaves", {}, "sys.exit(3)", ["SystemExit"]),
    ("dies", {}, "", ["code 3"]),
    ("never", {"timeout": 2.0}, "def never", ["within 2 s", "--timeout"]),
    ("random", {}, "def random", ["same result on the same input"]),
    ("remembers", {}, "def remembers", ["same result on the same input"]),
    ("greedy", {"memory": 2**28}, "np.ones(2**33)", ["0.25 GiB", "--memory"]),
    ("g", {}, "", ["a function 'g'"]),
    ("wdith", {}, "", ["did you mean width"]),
    ("f", {"mapping": {"x": "valeus"}}, "mine.py:f", ["did you mean values"]),
    ("f", {"backend": "cobol"}, "--backend", ["torch, jax or numpy"]),
]


def _line(code):
    """``mine.py:N`` for a piece of the file; anything else as it is."""
    lines = [n for n, line in enumerate(NUMPY.splitlines(), 1) if code and code in line]
    return f"mine.py:{lines[0]}" if lines else code or "mine.py"


@pytest.mark.parametrize(("function", "options", "place", "parts"), BAD)
def test_bad_functions(write, function, options, place, parts):
    with pytest.raises(UserCodeError) as caught:
        _diff(write(NUMPY), function, **options)
    message = str(caught.value)
    assert _line(place) in caught.value.place
    assert "\n" not in message
    assert all(part in message for part in parts), message


FILES = [
    ("def f(:\n", ":1", "SyntaxError"),
    ("import numpy\nimport no_such_library\n", ":2", "no_such_library"),
    ("import numpy\nx = 1\nraise ValueError('no')\n", ":3", "ValueError: no"),
    ("import sys\nsys.exit(1)\n", ":2", "SystemExit"),
    ("\0", "", ""),
]


@pytest.mark.parametrize(("text", "line", "found"), FILES)
def test_bad_files(write, text, line, found):
    with pytest.raises(UserCodeError) as caught:
        _diff(write(text), "f")
    assert f"mine.py{line}" in caught.value.place
    assert found in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UserCodeError, match="No such file"):
        _diff(tmp_path / "none.py", "f")
    with pytest.raises(UserCodeError):
        _diff(tmp_path, "f")


def test_a_knob_that_is_taken_is_set_to_the_dialect_of_each_reference(write):
    import dataclasses

    other = dataclasses.replace(toy.REFERENCE, name="other", dialect={"eps": 1e-4})
    made = toy.contract(implementations=(toy.REFERENCE, other))
    file = write(NUMPY)
    assert _diff(file, "f", contract=made).equal_to == ("ref", "other")
    assert _diff(file, "positional", contract=made).equal_to == ("ref",)  # stays at its own 1e-6


def test_no_reference_to_compare_with(write):
    import dataclasses

    absent = dataclasses.replace(toy.REFERENCE, requires=("no_such_library",))
    with pytest.raises(ContractError, match="no_such_library"):
        _diff(write(NUMPY), "f", contract=toy.contract(implementations=(absent,)))


BACKENDS = [(TORCH, "torch"), (JAX, "jax"), (NUMPY, "numpy"), ("", "numpy"), ("from torch.nn import x", "torch")]


@pytest.mark.parametrize(("text", "backend"), BACKENDS)
def test_the_backend_is_what_the_file_imports(write, text, backend):
    assert backend_of(write(text)) == backend


def test_the_template_is_a_file_that_runs_into_its_own_gap(write):
    text = template(toy.contract())
    assert "def toy_mean(values, mask, eps=1e-06):" in text
    assert "values: float [B, T]. Numbers." in text
    with pytest.raises(UserCodeError, match="NotImplementedError"):
        _diff(write(text), "toy_mean")


def test_a_result_on_another_device_is_refused(write):
    file = write("import torch\n\ndef mean(values, mask):\n    return values.mean(-1).to('meta')\n")
    with pytest.raises(UserCodeError, match="'mean' on cpu, found a tensor on meta"):
        _diff(file, "mean")
