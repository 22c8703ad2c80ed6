"""`adamw-step`: K steps of AdamW on given gradients, PyTorch's two eager paths beside the minimal twins.

Apart from any training loop: the gradients are inputs, so that an error of step 3 cannot hide in the loss of step 4.
The references hold several tensors of different shapes, cut from the flat vector of the contract, since the foreach
path exists for lists. Out of scope: ``fused`` (one kernel, no Python to read), ``capturable`` (needs an accelerator),
complex and sparse parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from annotator.contracts.model import Case, Contract, Deviation, Implementation, Input, Knob, Output

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

STEPS = 20

KNOBS = (
    Knob("lr", 1e-3, (1e-3, 0.1), "learning rate"),
    Knob("beta1", 0.9, (0.9, 0.0), "decay of the first moment"),
    Knob("beta2", 0.999, (0.999, 0.9), "decay of the second moment"),
    Knob("eps", 1e-8, (1e-8, 1e-3), "added to the root of the corrected second moment, in units of the gradient"),
    Knob("weight_decay", 1e-2, (1e-2, 0.0, 0.3), "decoupled decay, scaled by lr"),
    Knob("amsgrad", False, (False, True), "divide by the running maximum of the second moment"),
    Knob("maximize", False, (False, True), "climb instead of descend"),
)

DOC = r"""
For t = 1..K, from m = v = v_max = 0:

    g <- -g                              if maximize
    theta <- theta (1 - lr lambda)
    m <- beta1 m + (1 - beta1) g
    v <- beta2 v + (1 - beta2) g^2
    v_max <- max(v_max, v)               if amsgrad; it then takes the place of v below
    theta <- theta - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

Sources: Adam, arXiv 1412.6980, algorithm 1; AdamW, arXiv 1711.05101, algorithm 2 (whose decay is not scaled by lr);
AMSGrad, arXiv 1904.09237, algorithm 2 (which has no bias correction).
"""


# References -----------------------------------------------------------------------------------------------------------


def _cut(vector: Any) -> list[Any]:
    """A vector [P] as tensors of different shapes: a scalar, a matrix, a vector; fewer when P is small."""
    scalar, rest = vector[:1].reshape(()), vector[1:]
    even = len(rest) // 4 * 2
    return [part for part in (scalar, rest[:even].reshape(2, -1), rest[even:]) if part.numel()]


def _join(parts: list[Any]) -> Any:
    """The inverse of `_cut`."""
    import torch

    return torch.cat([part.reshape(-1) for part in parts])


@contextlib.contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    """PyTorch counts steps in the default dtype, and the differentiable path corrects biases by that count."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _reference(**path: bool) -> Callable[..., Mapping[str, Any]]:
    """`torch.optim.AdamW` with ``foreach`` or ``differentiable`` as given."""

    def call(parameters: Any, gradients: Any, beta1: float, beta2: float, **options: Any) -> Mapping[str, Any]:
        from annotator import pins

        adamw = pins.load("torch:torch.optim.adamw").AdamW
        tensors = [part.clone() for part in _cut(parameters)]
        with _default_dtype(parameters.dtype):
            optimiser = adamw(tensors, betas=(beta1, beta2), **options, **path)
            return _history([_taken(optimiser, tensors, gradient) for gradient in gradients])

    return call


def _taken(optimiser: Any, tensors: list[Any], gradient: Any) -> dict[str, Any]:
    """One step of a reference, and its tensors and state after it.

    The state goes on as copies: with ``differentiable`` and ``amsgrad`` the next step would write into a tensor that
    the backward pass of `torch.maximum` still needs.
    """
    for tensor, part in zip(tensors, _cut(gradient), strict=True):
        tensor.grad = part
    optimiser.step()
    row = {"parameters": _join([tensor.clone() for tensor in tensors])}
    for name in STATE:
        held = [optimiser.state[tensor] for tensor in tensors]
        row[name] = _join([state.get(name, 0 * state["exp_avg"]) for state in held])
        for state in held:
            state.update({name: state[name].clone()} if name in state else {})
    return row


def _moves(case: Case) -> str | None:
    """The differentiable path divides by the step size, whose slope at 0 is not a number."""
    return None if case.knobs["lr"] > 0 else "it divides by lr"


STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")


def _history(rows: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Rows after each step as one [K, P] tensor a name."""
    import torch

    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


# Minimal --------------------------------------------------------------------------------------------------------------


def _minimal_torch(**arguments: Any) -> Mapping[str, Any]:
    from minimal.framework.adamw_torch import adamw_trajectory

    parameters, state = adamw_trajectory(**arguments)
    return {"parameters": parameters, **state._asdict()}


def _minimal_jax(**arguments: Any) -> Mapping[str, Any]:
    from minimal.framework.adamw_jax import adamw_trajectory

    parameters, state = adamw_trajectory(**arguments)
    return {"parameters": parameters, **state._asdict()}


IMPLEMENTATIONS = (
    Implementation(
        name="torch-single",
        role="reference",
        backend="torch",
        call=_reference(foreach=False),
        symbols=("torch:torch.optim.adamw.AdamW", "torch:torch.optim.adam._single_tensor_adam"),
        requires=("torch",),
        differentiable=False,
    ),
    Implementation(
        name="torch-foreach",
        role="reference",
        backend="torch",
        call=_reference(foreach=True),
        symbols=("torch:torch.optim.adamw.AdamW", "torch:torch.optim.adam._multi_tensor_adam"),
        requires=("torch",),
        differentiable=False,
    ),
    Implementation(
        name="torch-differentiable",
        role="reference",
        backend="torch",
        call=_reference(foreach=False, differentiable=True),
        symbols=("torch:torch.optim.adamw.AdamW", "torch:torch.optim.adam._single_tensor_adam"),
        requires=("torch",),
        accepts=_moves,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/framework/adamw_torch.py",),
        requires=("torch",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/framework/adamw_jax.py",),
        requires=("jax",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def cases() -> SearchStrategy[Case]:
    """Parameters and gradients on a grid of sixteenths; no gradient is 0, where the root has no derivative.

    Few different shapes, since JAX compiles anew for each.
    """
    from hypothesis import strategies as st

    @st.composite
    def case(draw: DrawFn) -> Case:
        size = draw(st.sampled_from((1, 4)))
        inputs = {
            "parameters": np.array(draw(st.lists(_grid(64), min_size=size, max_size=size))),
            "gradients": np.array(draw(st.lists(_grid(64), min_size=STEPS * size, max_size=STEPS * size))),
        }
        inputs["gradients"] = inputs["gradients"].reshape(STEPS, size) * draw(st.sampled_from((1.0, 2.0**-10, 2.0**10)))
        return Case(inputs, {knob.name: draw(st.sampled_from(knob.choices)) for knob in KNOBS})

    return case()


def _grid(largest: int) -> SearchStrategy[float]:
    """Sixteenths of -largest..largest but 0."""
    from hypothesis import strategies as st

    return st.integers(1, 2 * largest).map(lambda n: (n if n <= largest else largest - n) / 16)


def edges() -> tuple[Case, ...]:
    """Named cases that always run."""
    wave = np.sin(np.arange(1.0, STEPS * 4 + 1)).reshape(STEPS, 4)
    falling = wave * 0.5 ** np.arange(STEPS)[:, None]
    return (
        _edge("plain", wave),
        _edge("zero gradient: only the decay acts", 0 * wave),
        _edge("one gradient, then none: the moments decay", wave * (np.arange(STEPS)[:, None] == 0)),
        _edge("huge gradient", 2.0**40 * wave),
        _edge("gradient below eps", 2.0**-40 * wave),
        _edge("tiny eps", wave, eps=1e-16),
        _edge("eps 0", wave, eps=0.0),
        _edge("large eps", wave, eps=0.5),
        _edge("no decay", wave, weight_decay=0.0),
        _edge("beta1 0: no momentum", wave, beta1=0.0),
        _edge("both betas 0: the sign of the gradient", wave, beta1=0.0, beta2=0.0),
        _edge("lr 0: the moments still move", wave, lr=0.0),
        _edge("amsgrad, falling gradients", falling, amsgrad=True, beta2=0.9),
        _edge("amsgrad, maximize", wave, amsgrad=True, maximize=True),
        _edge("maximize with decay", wave, maximize=True, weight_decay=0.3, lr=0.1),
        _edge("one parameter", wave[:, :1]),
    )


def _edge(label: str, gradients: np.ndarray, **moved: Any) -> Case:
    parameters = np.array([1.0, -2.0, 0.5, 3.0])[: gradients.shape[1]]
    knobs = {knob.name: knob.default for knob in KNOBS}
    return Case({"parameters": parameters, "gradients": gradients}, {**knobs, **moved}, label)


# Deviations -----------------------------------------------------------------------------------------------------------


def _deviation(wrong: str) -> Callable[..., Mapping[str, Any]]:
    """The trajectory with one thing wrong."""

    def call(parameters: Any, gradients: Any, **knobs: Any) -> Mapping[str, Any]:
        zeros = 0 * parameters
        row = {"parameters": parameters, **dict.fromkeys(STATE, zeros), "largest": zeros}
        rows = []
        for t, gradient in enumerate(gradients, start=1):
            row = _wrong_step(row, gradient, t, wrong, **knobs)
            rows.append(row)
        return _history([{name: row[name] for name in ("parameters", *STATE)} for row in rows])

    return call


def _wrong_step(
    row: dict[str, Any],
    gradient: Any,
    t: int,
    wrong: str,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
) -> dict[str, Any]:
    import torch

    theta, decay = row["parameters"], lr * weight_decay
    if wrong == "decay-without-lr":
        decay = weight_decay
    if maximize and wrong == "maximize-by-negative-lr":
        lr, decay = -lr, -decay
    elif maximize:
        gradient = -gradient
    if wrong == "l2":
        gradient, decay = gradient + weight_decay * theta, 0.0
    if wrong == "betas-swapped":
        beta1, beta2 = beta2, beta1
    start = theta if wrong == "decay-last" else theta * (1 - decay)
    m = beta1 * row["exp_avg"] + (1 - beta1) * gradient
    v = beta2 * row["exp_avg_sq"] + (1 - beta2) * gradient * gradient
    first, second = _wrong_corrections(beta1, beta2, t, wrong)
    v_max = torch.maximum(row["max_exp_avg_sq"], v) if amsgrad else row["max_exp_avg_sq"]
    used, largest = v_max if amsgrad else v, row["largest"]
    if amsgrad and wrong == "amsgrad-of-corrected":
        largest = torch.maximum(largest, v / second)
        used = largest * second
    denominator = _wrong_denominator(used, second, eps, wrong)
    after = start - lr * (m / first) / denominator
    if wrong == "decay-last":
        after = after * (1 - decay)
    return {"parameters": after, "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": v_max, "largest": largest}


def _wrong_corrections(beta1: float, beta2: float, t: int, wrong: str) -> tuple[float, float]:
    if wrong == "no-correction":
        return 1.0, 1.0
    if wrong == "step-from-two":
        t += 1
    return (1.0 if wrong == "first-uncorrected" else 1 - beta1**t), 1 - beta2**t


def _wrong_denominator(v: Any, second: float, eps: float, wrong: str) -> Any:
    if wrong == "eps-inside-root":
        return (v / second + eps).sqrt()
    if wrong == "eps-before-correction":
        return (v.sqrt() + eps) / second**0.5
    if wrong == "correction-outside-root":
        return v.sqrt() / second + eps
    return (v / second).sqrt() + eps


DEVIATIONS = tuple(
    Deviation(name=name, wrong=wrong, right=right, call=_deviation(name))
    for name, wrong, right in (
        ("l2", "the decay is added to the gradient", "it shrinks the parameters and enters no moment"),
        ("decay-without-lr", "the decay is not scaled by the learning rate", "parameters times 1 - lr lambda"),
        ("decay-last", "the parameters are decayed after the update", "before it, so that the update is not decayed"),
        ("eps-inside-root", "eps is added under the root", "after the root"),
        ("eps-before-correction", "eps is added before the bias is corrected", "after"),
        ("no-correction", "the moments' bias is left", "both are divided by 1 - beta^t"),
        ("first-uncorrected", "only the second moment is corrected", "both are"),
        ("correction-outside-root", "the root is divided by 1 - beta2^t", "by its root"),
        ("step-from-two", "the first step counts as the second", "steps are counted from 1"),
        ("betas-swapped", "beta1 and beta2 are interchanged", "beta1 belongs to the first moment"),
        ("amsgrad-of-corrected", "the maximum is taken of the corrected second moment", "of the raw one"),
        ("maximize-by-negative-lr", "lr is negated, and with it the decay", "the gradient is negated"),
    )
)

CONTRACT = Contract(
    name="adamw-step",
    kind="trajectory",
    title="AdamW, step by step",
    doc=DOC,
    inputs=(
        Input("parameters", ("P",), "float", "at the start", differentiable=True),
        Input("gradients", ("K", "P"), "float", "a row for each step", "loss per parameter", differentiable=True),
    ),
    outputs=(
        Output("parameters", ("K", "P"), "after each step"),
        Output("exp_avg", ("K", "P"), "first moment after each step", "gradient"),
        Output("exp_avg_sq", ("K", "P"), "second moment after each step", "gradient squared"),
        Output("max_exp_avg_sq", ("K", "P"), "its running maximum; 0 without amsgrad", "gradient squared"),
    ),
    knobs=KNOBS,
    cases=cases,
    edges=edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
)
