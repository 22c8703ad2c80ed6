"""A witness as a pytest file that stands alone: it needs the user's file and its backend, no network and no annotator.

What is expected stands in it as numbers, with the version of the pin that computed them. The tolerance is an absolute
number: the bound in force times the scale of the result.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from annotator.contracts.comparison import GRADIENT
from annotator.contracts.findings import Witness
from annotator.contracts.model import Contract
from annotator.contracts.running import normal, rounded
from annotator.contracts.tracing import PAD, steps
from annotator.contracts.verdicts import Usage, Verdict

_TORCH = """
def array(values, dtype):
    return torch.tensor(values, dtype=getattr(torch, dtype))


def numpy(value):
    return value.detach().double().numpy() if isinstance(value, torch.Tensor) else np.asarray(value, dtype=float)
"""

_JAX = """
def array(values, dtype):
    return jnp.asarray(values, dtype=dtype)


def numpy(value):
    return np.asarray(value, dtype=float)
"""

_NUMPY = """
def array(values, dtype):
    return np.array(values, dtype=dtype)


def numpy(value):
    return np.asarray(value, dtype=float)
"""

_GRADIENT = {
    "torch": '''
def gradient(inputs):
    """Of the sum of outputs times WEIGHTS."""
    leaf = inputs[OF].requires_grad_(True)
    outputs = call(inputs)
    loss = sum((outputs[name] * array(weight, DTYPE)).sum() for name, weight in WEIGHTS.items())
    assert loss.requires_grad, "the result is detached from its inputs"
    return numpy(torch.autograd.grad(loss, leaf, allow_unused=True)[0])
''',
    "jax": '''
def gradient(inputs):
    """Of the sum of outputs times WEIGHTS."""
    def loss(leaf):
        outputs = call({**inputs, OF: leaf})
        return sum((outputs[name] * array(weight, DTYPE)).sum() for name, weight in WEIGHTS.items())
    return numpy(jax.grad(loss)(inputs[OF]))
''',
}

_HEADS = {
    "torch": "import numpy as np\nimport torch\n",
    "jax": 'import jax\nimport jax.numpy as jnp\nimport numpy as np\n\njax.config.update("jax_enable_x64", True)\n',
    "numpy": "import numpy as np\n",
}

_LOAD = '''
def load(**given):
    """What is under test, from its file beside this one; a class is made into an object."""
    path = (Path(__file__).parent / FILE).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module
    for name in FUNCTION.split("."):
        found = getattr(found, name)
        found = found(**INIT, **given) if isinstance(found, type) else found
    return found
'''

_CALL = '''
def call(inputs):
    """What it returns, by the contract's names."""
    given = {**inputs, **KNOBS}
    found = load()
    function = getattr(found, "forward", found)
    raw = function(*[given[name] for name in POSITIONAL], **{theirs: given[ours] for theirs, ours in NAMED.items()})
    if isinstance(raw, dict):
        return {RENAMED.get(name, name): value for name, value in raw.items()}
    return dict(zip(OUTPUTS, raw if isinstance(raw, tuple) else (raw,)))
'''

_TRACE = '''
def call(inputs):
    """What its object shows after each of the OPERATIONS."""
    given = {**inputs, **KNOBS}
    thing = load(**{theirs: given[ours] for theirs, ours in NAMED.items()})
    seen = []
    for name, *arguments in OPERATIONS:
        getattr(thing, name)(*arguments)
        value = getattr(thing, OBSERVED)
        value = value() if callable(value) else value
        seen.append((list(value) + [PAD] * WIDTH)[:WIDTH] if WIDTH else value)
    return {PART: np.array(seen)}
'''


def emit(verdict: Verdict, contract: Contract, path: str | Path) -> str:
    """The text of a pytest file for ``path`` that fails as long as the function differs on the witness."""
    shown = verdict.witness
    assert shown is not None
    assert shown.expected is not None
    parts = [_head(verdict, shown), _constants(verdict, contract, shown, path)]
    parts += [
        {"torch": _TORCH, "jax": _JAX, "numpy": _NUMPY}[verdict.backend],
        _LOAD,
        _TRACE if _traced(verdict, contract) else _CALL,
    ]
    if shown.part.startswith(GRADIENT):
        parts.append(_GRADIENT[verdict.backend])
    parts.append(_test(verdict, shown))
    return "\n".join(part.strip("\n") + "\n\n" for part in parts).rstrip() + "\n"


def _traced(verdict: Verdict, contract: Contract) -> bool:
    """Whether a class is under test, whose methods are the operations of a trace."""
    return bool(contract.operations) and verdict.usage.method


def _head(verdict: Verdict, shown: Witness) -> str:
    pin = verdict.versions.get(verdict.nearest) or verdict.nearest
    answer = f"{Path(verdict.file).name}:{verdict.function}"
    said = verdict.explanation.line() if verdict.explanation else f"differs from {verdict.nearest}"
    lines = [f'"""{answer} {said}.', "", f"Contract {verdict.contract}; expected values: {verdict.nearest} ({pin})."]
    heads = _HEADS[verdict.backend]
    return "\n".join([*lines, '"""', "", "import importlib.util", "import sys", "from pathlib import Path", "", heads])


def _constants(verdict: Verdict, contract: Contract, shown: Witness, path: str | Path) -> str:
    usage: Usage = verdict.usage
    dtype = _dtype(verdict)
    assert shown.expected is not None
    file = os.path.relpath(Path(verdict.file).resolve(), Path(path).resolve().parent)
    constants: dict[str, Any] = {
        "FILE": Path(file).as_posix(),
        "FUNCTION": verdict.function,
        "INIT": dict(usage.init),
        "POSITIONAL": list(usage.positional),
        "NAMED": dict(usage.named),
        "RENAMED": dict(usage.mapping),
        "OUTPUTS": [item.name for item in contract.outputs],
        "DTYPE": dtype,
        "KNOBS": dict(shown.case.knobs),
        "EXPECTED": shown.expected.tolist(),
        "ALLOWED": _allowed(verdict, shown),
    }
    if shown.part.startswith(GRADIENT):
        constants |= {"OF": shown.part.removeprefix(GRADIENT), "WEIGHTS": _weights(verdict, contract, shown)}
    inputs = _inputs(contract, shown, dtype)
    if _traced(verdict, contract):
        constants |= _steps(usage, contract, shown)
        del inputs["operations"], constants["POSITIONAL"], constants["RENAMED"]
    lines = ['nan, inf = float("nan"), float("inf")', *(f"{name} = {value!r}" for name, value in constants.items())]
    return "\n".join([*lines, "INPUTS = {", *(f"    {n!r}: ({v!r}, {d!r})," for n, (v, d) in inputs.items()), "}"])


def _steps(usage: Usage, contract: Contract, shown: Witness) -> dict[str, Any]:
    """The operations up to the first difference, by the user's own names, and what is looked at after each."""
    assert shown.expected is not None
    own = {ours: theirs for theirs, ours in usage.mapping.items()}
    count = shown.index[0] + 1 if shown.index else len(shown.expected)
    taken = steps(shown.case.inputs["operations"], contract.operations)[:count]
    axes = next(item.shape for item in contract.outputs if item.name == shown.part)[1:]
    return {
        "OPERATIONS": [(own.get(s.operation.name, s.operation.name), *s.arguments) for s in taken],
        "PART": shown.part,
        "OBSERVED": own.get(shown.part, shown.part),
        "PAD": PAD,
        "WIDTH": int(axes[0]) if axes and axes[0].isdigit() else 0,
        "EXPECTED": shown.expected[:count].tolist(),
    }


def _dtype(verdict: Verdict) -> str:
    """That of the comparison in which the difference showed."""
    seen = [item for item in verdict.comparisons if item.reference == verdict.nearest]
    return seen[-1].dtype if seen else "float64"


def _allowed(verdict: Verdict, shown: Witness) -> float:
    seen = [item for item in verdict.comparisons if item.reference == verdict.nearest][-1]
    gradient = shown.part.startswith(GRADIENT) and seen.gradient_bound is not None
    limit = seen.gradient_bound if gradient else seen.bound
    assert shown.expected is not None
    assert limit is not None
    finite = np.abs(shown.expected[np.isfinite(shown.expected)].astype(np.float64))
    # Where all of it is 0, what the inputs themselves are rounded to is the scale.
    scale = float(finite.max(initial=0.0)) or 1.0
    return limit * scale


def _inputs(contract: Contract, shown: Witness, dtype: str) -> dict[str, tuple[Any, str]]:
    kinds = {"float": dtype, "int": "int64", "bool": "bool"}
    return {
        item.name: (
            (rounded(shown.case.inputs[item.name], dtype) if item.dtype == "float" else shown.case.inputs[item.name])
            .tolist(),
            kinds[item.dtype],
        )
        for item in contract.inputs
    }  # fmt: skip


def _weights(verdict: Verdict, contract: Contract, shown: Witness) -> dict[str, Any]:
    """The weights of the outputs, as the comparison drew them; shapes follow from the inputs' axes."""
    sizes = {
        axis: size
        for item in contract.inputs
        for axis, size in zip(item.shape, np.shape(shown.case.inputs[item.name]), strict=True)
    }
    carried = [item for item in contract.outputs if item.differentiable and not item.exact]
    return {
        item.name: normal(item.name, tuple(int(a) if a.isdigit() else sizes[a] for a in item.shape)).tolist()
        for item in carried
    }


def _test(verdict: Verdict, shown: Witness) -> str:
    name = verdict.contract.replace("-", "_")
    found = "gradient(inputs)" if shown.part.startswith(GRADIENT) else f"numpy(call(inputs)[{shown.part!r}])"
    return f"""
def test_{name}():
    inputs = {{name: array(values, dtype) for name, (values, dtype) in INPUTS.items()}}
    np.testing.assert_allclose({found}, np.array(EXPECTED, dtype=float), rtol=0, atol=ALLOWED)


if __name__ == "__main__":
    test_{name}()
"""
