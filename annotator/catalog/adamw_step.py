"""`adamw-step`: K steps of AdamW on given gradients, PyTorch's two eager paths beside the minimal twins.

Apart from any training loop: the gradients are inputs, so that an error of step 3 cannot hide in the loss of step 4.
The references hold several tensors of different shapes, cut from the flat vector of the contract, since the foreach
path exists for lists. Out of scope: ``fused`` (one kernel, no Python to read), ``capturable`` (needs an accelerator),
complex and sparse parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from annotator.catalog._third_party import default_dtype, pinned
from annotator.contracts.comparison import error
from annotator.contracts.model import (
    Case,
    Contract,
    Deviation,
    Implementation,
    Input,
    Knob,
    Output,
    Probe,
    Rewriting,
    Runner,
    Stage,
)
from annotator.contracts.probes import apart

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

STEPS = 8

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


def _reference(**path: bool) -> Callable[..., Mapping[str, Any]]:
    """`torch.optim.AdamW` with ``foreach`` or ``differentiable`` as given."""

    def call(parameters: Any, gradients: Any, beta1: float, beta2: float, **options: Any) -> Mapping[str, Any]:
        adamw = pinned("torch:torch.optim.adamw").AdamW
        if not path.get("differentiable"):
            parameters, gradients = parameters.detach(), gradients.detach()
        tensors = [part.clone() for part in _cut(parameters)]
        with default_dtype(parameters):  # Steps are counted in it, and biases corrected by that count.
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


def _variant(
    parameters: Any,
    gradients: Any,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
    betas: Any = None,
    climb: Any = None,
    regularise: Any = None,
    shrink: Any = None,
    shrinks_last: bool = False,
    moments: Any = None,
    corrections: Any = None,
    largest: Any = None,
    denominator: Any = None,
) -> Mapping[str, Any]:
    """The trajectory with one part replaced. A part left out is the right one."""
    import torch

    beta1, beta2 = (betas or (lambda first, second: (first, second)))(beta1, beta2)
    zeros = torch.zeros_like(parameters)
    theta, m, v, v_max, kept, rows = parameters, zeros, zeros, zeros, zeros, []
    for t, given in enumerate(gradients, start=1):
        g, rate = (climb or _climbed)(given, lr) if maximize else (given, lr)
        g = regularise(g, theta, weight_decay) if regularise else g
        factor = (shrink or _shrunk)(rate, weight_decay)
        start = theta if shrinks_last else theta * factor
        m, v = (moments or _averaged)(m, v, g, beta1, beta2)
        first, second = (corrections or _corrected)(beta1, beta2, t)
        v_max = torch.maximum(v_max, v) if amsgrad else v_max
        kept, used = largest(kept, v, second) if amsgrad and largest else (kept, v_max if amsgrad else v)
        theta = start - rate * (m / first) / (denominator or _rooted)(used, second, eps)
        theta = theta * factor if shrinks_last else theta
        rows.append({"parameters": theta, "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": v_max})
    return _history(rows)


def _climbed(gradient: Any, lr: float) -> tuple[Any, float]:
    return -gradient, lr


def _shrunk(lr: float, weight_decay: float) -> float:
    return 1 - lr * weight_decay


def _averaged(m: Any, v: Any, g: Any, beta1: float, beta2: float) -> tuple[Any, Any]:
    return beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g


def _of_surprise(m: Any, v: Any, g: Any, beta1: float, beta2: float) -> tuple[Any, Any]:
    m = beta1 * m + (1 - beta1) * g
    return m, beta2 * v + (1 - beta2) * (g - m) * (g - m)


def _corrected(beta1: float, beta2: float, t: int) -> tuple[float, float]:
    return 1 - beta1**t, 1 - beta2**t


def _rooted(v: Any, second: float, eps: float) -> Any:
    return (v / second).sqrt() + eps


def _largest_corrected(kept: Any, v: Any, second: float) -> tuple[Any, Any]:
    """The maximum of v after its correction; what is used is corrected again on the way to the root."""
    import torch

    kept = torch.maximum(kept, v / second)
    return kept, kept * second


DEVIATIONS = (
    Deviation(
        name="l2",
        wrong="the decay is added to the gradient",
        right="it shrinks the parameters and enters no moment",
        call=functools.partial(
            _variant, regularise=lambda g, theta, decay: g + decay * theta, shrink=lambda lr, decay: 1.0
        ),
        stage="exp_avg",
    ),
    Deviation(
        name="decay-without-lr",
        wrong="the decay is not scaled by the learning rate",
        right="parameters times 1 - lr lambda",
        call=functools.partial(_variant, shrink=lambda lr, decay: 1 - decay),
        stage="parameters",
    ),
    Deviation(
        name="decay-last",
        wrong="the parameters are decayed after the update",
        right="before it, so that the update is not decayed",
        call=functools.partial(_variant, shrinks_last=True),
        stage="parameters",
    ),
    Deviation(
        name="eps-inside-root",
        wrong="eps is added under the root",
        right="after the root",
        call=functools.partial(_variant, denominator=lambda v, second, eps: (v / second + eps).sqrt()),
        stage="denominator",
    ),
    Deviation(
        name="eps-before-correction",
        wrong="eps is added before the bias is corrected",
        right="after",
        call=functools.partial(_variant, denominator=lambda v, second, eps: (v.sqrt() + eps) / second**0.5),
        stage="denominator",
    ),
    Deviation(
        name="correction-outside-root",
        wrong="the root is divided by 1 - beta2^t",
        right="by its root",
        call=functools.partial(_variant, denominator=lambda v, second, eps: v.sqrt() / second + eps),
        stage="denominator",
    ),
    Deviation(
        name="root-forgotten",
        wrong="division by the second moment",
        right="by its root",
        call=functools.partial(_variant, denominator=lambda v, second, eps: v / second + eps),
        stage="denominator",
    ),
    Deviation(
        name="no-correction",
        wrong="the moments' bias is left",
        right="both are divided by 1 - beta^t",
        call=functools.partial(_variant, corrections=lambda first, second, t: (1.0, 1.0)),
        stage="denominator",
    ),
    Deviation(
        name="first-uncorrected",
        wrong="only the second moment is corrected",
        right="both are",
        call=functools.partial(_variant, corrections=lambda first, second, t: (1.0, 1 - second**t)),
        stage="parameters",
    ),
    Deviation(
        name="step-from-two",
        wrong="the first step counts as the second",
        right="steps are counted from 1",
        call=functools.partial(_variant, corrections=lambda first, second, t: _corrected(first, second, t + 1)),
        stage="denominator",
    ),
    Deviation(
        name="betas-swapped",
        wrong="beta1 and beta2 are interchanged",
        right="beta1 belongs to the first moment",
        call=functools.partial(_variant, betas=lambda first, second: (second, first)),
        stage="exp_avg",
    ),
    Deviation(
        name="momentum-undamped",
        wrong="m is beta1 m + g, as in SGD with momentum",
        right="beta1 m + (1 - beta1) g",
        call=functools.partial(
            _variant, moments=lambda m, v, g, first, second: (first * m + g, second * v + (1 - second) * g * g)
        ),
        stage="exp_avg",
    ),
    Deviation(
        name="square-of-surprise",
        wrong="the second moment is that of g - m (AdaBelief)",
        right="of g",
        call=functools.partial(_variant, moments=_of_surprise),
        stage="exp_avg_sq",
    ),
    Deviation(
        name="amsgrad-of-corrected",
        wrong="the maximum is taken of the corrected second moment",
        right="of the raw one",
        call=functools.partial(_variant, largest=_largest_corrected),
        stage="denominator",
    ),
    Deviation(
        name="maximize-by-negative-lr",
        wrong="lr is negated, and with it the decay",
        right="the gradient is negated",
        call=functools.partial(_variant, climb=lambda gradient, lr: (gradient, -lr)),
        stage="exp_avg",
    ),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _closed_form(parameters: Any, gradients: Any, **knobs: Any) -> Mapping[str, Any]:
    """The moments as weighted sums over the steps so far, in float64 throughout."""
    import torch

    sign = -1.0 if knobs["maximize"] else 1.0
    g, steps = sign * gradients.double(), torch.arange(len(gradients), dtype=torch.float64, device=gradients.device)
    age = steps[:, None] - steps  # [K, K]

    def moment(beta: float, values: Any) -> Any:
        weights = torch.where(age >= 0, (1 - beta) * torch.tensor(beta, dtype=torch.float64) ** age.clamp(min=0), 0.0)
        return weights @ values  # [K, P]

    m, v = moment(knobs["beta1"], g), moment(knobs["beta2"], g * g)
    v_max = v.cummax(0).values if knobs["amsgrad"] else 0 * v
    first, second = (
        1 - torch.tensor(knobs[name], dtype=torch.float64) ** (steps[:, None] + 1) for name in ("beta1", "beta2")
    )
    moves = knobs["lr"] * (m / first) / (((v_max if knobs["amsgrad"] else v) / second).sqrt() + knobs["eps"])
    rows, theta = [], parameters.double()
    for move in moves:
        theta = theta - knobs["lr"] * knobs["weight_decay"] * theta - move
        rows.append(theta)
    made = {"parameters": torch.stack(rows), "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": v_max}
    return {name: value.to(gradients) for name, value in made.items()}


def _folded(parameters: Any, gradients: Any, **knobs: Any) -> Mapping[str, Any]:
    """Both corrections folded into step size and eps, as section 2 of the paper has it."""
    beta1, beta2, eps = knobs["beta1"], knobs["beta2"], knobs["eps"]
    import torch

    zeros = torch.zeros_like(parameters)
    p, m, v, v_max, rows = parameters, zeros, zeros, zeros, []
    for t, g in enumerate(-gradients if knobs["maximize"] else gradients, start=1):
        m, v = m.lerp(g, 1 - beta1), v.mul(beta2).addcmul(g, g, value=1 - beta2)
        v_max = v_max.maximum(v) if knobs["amsgrad"] else v_max
        root = (1 - beta2**t) ** 0.5
        scale = (v_max if knobs["amsgrad"] else v).sqrt() + eps * root
        p = p * (1 - knobs["lr"] * knobs["weight_decay"]) - knobs["lr"] * root / (1 - beta1**t) * m / scale
        rows.append({"parameters": p, "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": v_max})
    return _history(rows)


REWRITINGS = (
    Rewriting("closed-form", "the moments as weighted sums over all steps so far", _closed_form),
    Rewriting("folded", "the corrections folded into the step size and eps", _folded),
)


# Probes ---------------------------------------------------------------------------------------------------------------


def _moved(case: Case, inputs: Mapping[str, Any], **knobs: Any) -> Case:
    return Case({**case.inputs, **inputs}, {**case.knobs, **knobs})


def _reordered(run: Runner, case: Case) -> float | None:
    """Each parameter takes its own step: another order of them only reorders the result."""
    size = len(case.inputs["parameters"])
    if size < 2:
        return None
    order = np.roll(np.arange(size)[::-1], 1)
    inputs = {"parameters": case.inputs["parameters"][order], "gradients": case.inputs["gradients"][:, order]}
    before, after = run(case), run(_moved(case, inputs))
    moved = {name: array[:, order] for name, array in before.outputs.items()}
    return apart(after, replace(before, outputs=moved), case, gradient=False)


def _in_other_units(run: Runner, case: Case) -> float | None:
    """A loss four times as large, and an eps in the same units: the parameters move as before."""
    before = run(case)
    after = run(_moved(case, {"gradients": 4 * case.inputs["gradients"]}, eps=4 * case.knobs["eps"]))
    units = {"parameters": 1, "exp_avg": 4, "exp_avg_sq": 16, "max_exp_avg_sq": 16}
    moved = {name: units[name] * array for name, array in before.outputs.items()}
    return apart(after, replace(before, outputs=moved), case, gradient=False)


def _without_the_last(run: Runner, case: Case) -> float | None:
    """A gradient does not reach back: without the last one, all steps before are the same."""
    before, after = run(case), run(_moved(case, {"gradients": case.inputs["gradients"][:-1]}))
    return apart(after, replace(before, outputs={k: v[:-1] for k, v in before.outputs.items()}), case, gradient=False)


def _first_step(run: Runner, case: Case) -> float | None:
    """Without eps and decay the first step is lr in the direction of the gradient's sign, whatever the betas are."""
    if not case.inputs["gradients"][0].all():
        return None
    knobs = case.knobs
    after = run(_moved(case, {}, eps=0.0, weight_decay=0.0)).outputs["parameters"][0]
    sign = np.sign(case.inputs["gradients"][0]) * (1 if knobs["maximize"] else -1)
    return error(after, case.inputs["parameters"] + knobs["lr"] * sign)


def _at_rest(run: Runner, case: Case) -> float | None:
    """With no gradient at all only the decay acts: the parameters fall by the factor 1 - lr lambda a step."""
    if case.knobs["eps"] == 0:
        return None
    found = run(_moved(case, {"gradients": 0 * case.inputs["gradients"]})).outputs["parameters"]
    factor = 1 - case.knobs["lr"] * case.knobs["weight_decay"]
    steps = np.arange(1, len(found) + 1)[:, None]
    return error(found, case.inputs["parameters"] * factor**steps)


PROBES = (
    Probe("permutation", "another order of the parameters only reorders the result", _reordered),
    Probe("units", "gradients and eps in other units move the parameters as before", _in_other_units),
    Probe("causal", "a gradient does not change the steps before it", _without_the_last),
    Probe("first-step", "the first step is lr times the sign, without eps and decay", _first_step),
    Probe("rest", "without a gradient only the decay acts", _at_rest),
)


# Stages ---------------------------------------------------------------------------------------------------------------


def _moments(gradients: Any, beta1: float, beta2: float, amsgrad: bool, maximize: bool) -> Any:
    import torch

    from minimal.framework import adamw_torch as right

    state, rows = right.initial_state(gradients[0]), []
    for gradient in -gradients if maximize else gradients:
        state = right.update_moments(gradient, state, beta1, beta2, amsgrad)
        rows.append(state)
    return right.State(*map(torch.stack, zip(*rows, strict=True)))


def _first_moment(gradients: Any, beta1: float, maximize: bool) -> Any:
    return _moments(gradients, beta1, 0.0, False, maximize).exp_avg


def _second_moment(gradients: Any, beta2: float) -> Any:
    return _moments(gradients, 0.0, beta2, False, False).exp_avg_sq


def _largest_moment(exp_avg_sq: Any, amsgrad: bool) -> Any:
    return exp_avg_sq.cummax(0).values if amsgrad else 0 * exp_avg_sq


def _denominator(exp_avg_sq: Any, max_exp_avg_sq: Any, beta1: float, beta2: float, eps: float, amsgrad: bool) -> Any:
    from minimal.framework import adamw_torch as right

    second = right.corrections(beta1, beta2, len(exp_avg_sq), exp_avg_sq.dtype).second[:, None]
    return (max_exp_avg_sq if amsgrad else exp_avg_sq).sqrt() / second.to(exp_avg_sq) ** 0.5 + eps


def _after_steps(
    parameters: Any, exp_avg: Any, denominator: Any, lr: float, beta1: float, beta2: float, weight_decay: float
) -> Any:
    import torch

    from minimal.framework import adamw_torch as right

    first = right.corrections(beta1, beta2, len(exp_avg), exp_avg.dtype).first
    rows = []
    for m, scale, correction in zip(exp_avg, denominator, first, strict=True):
        parameters = parameters * (1 - lr * weight_decay) - lr / correction * (m / scale)
        rows.append(parameters)
    return torch.stack(rows)


STAGES = (
    Stage("exp_avg", ("K", "P"), "the first moment, not corrected", _first_moment, "gradient"),
    Stage("exp_avg_sq", ("K", "P"), "the second moment, not corrected", _second_moment, "gradient squared"),
    Stage("max_exp_avg_sq", ("K", "P"), "its running maximum; 0 without amsgrad", _largest_moment, "gradient squared"),
    Stage("denominator", ("K", "P"), "root of the corrected second moment, and eps", _denominator, "gradient"),
    Stage("parameters", ("K", "P"), "after each step", _after_steps),
)


# Contract -------------------------------------------------------------------------------------------------------------

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
    probes=PROBES,
    stages=STAGES,
    rewritings=REWRITINGS,
)
