"""The contract ``value-loss``: what a critic pays for missing the returns, with its steps clipped.

Bound to verl. By what a batch is divided is the matter of ``loss-aggregation``; here the divisors are the batch's own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog._policy import share
from annotator.catalog._third_party import CORE, pinned
from annotator.contracts import probes
from annotator.contracts.model import Case, Contract, Deviation, Implementation, Input, Knob, Output, Rewriting, Stage

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


# Implementations ------------------------------------------------------------------------------------------------------


def _verl(
    value_preds: Any,
    values: Any,
    returns: Any,
    response_mask: Any,
    *,
    clip_range: float,
    aggregation: str,
    horizon: float,
) -> Outputs:
    """The clipped share comes in float32, as a count over a known number of tokens."""
    loss, clipped = pinned(CORE).compute_value_loss(
        vpreds=value_preds,
        returns=returns,
        values=values,
        response_mask=response_mask,
        cliprange_value=clip_range,
        loss_agg_mode=aggregation,
        loss_scale_factor=horizon,
    )
    return {"loss": loss, "clip_fraction": share(clipped, response_mask, value_preds)}


def _named(result: Any) -> Outputs:
    return dict(zip(("loss", "clip_fraction"), result, strict=True))


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.post_training import value_torch

    return _named(value_torch.value_loss(**arguments))


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.post_training import value_jax

    return _named(value_jax.value_loss(**arguments))


def _verl_accepts(case: Case) -> str | None:
    return None if case.inputs["response_mask"].any() else "verl divides by the number of tokens, which is 0"


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=(
            "verl:verl.trainer.ppo.core_algos.compute_value_loss",
            "verl:verl.trainer.ppo.core_algos.agg_loss",
            "verl:verl.utils.torch_functional.clip_by_value",
            "verl:verl.utils.torch_functional.masked_mean",
            "verl:verl.utils.torch_functional.masked_sum",
        ),
        requires=("verl",),
        accepts=_verl_accepts,
        breaks=("poison",),  # the sum leaves masked slots out, yet their gradient is 0 times what is not a number
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/value_torch.py", "minimal/post_training/aggregation_torch.py"),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/value_jax.py", "minimal/post_training/aggregation_jax.py"),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, preds: Any, values: Any, returns: Any, mask: Any = None, **knobs: Any) -> Case:
    import numpy as np

    floats = {"value_preds": preds, "values": values, "returns": returns}
    inputs = {name: np.array(rows, dtype=np.float64) for name, rows in floats.items()}
    shape = inputs["values"].shape
    inputs["response_mask"] = np.ones(shape, dtype=bool) if mask is None else np.array(mask, dtype=bool)
    return Case(inputs, {**{knob.name: knob.default for knob in KNOBS}, **knobs}, label)


def _edges() -> tuple[Case, ...]:
    values = [[0.5, -1.0, 2.0, 0.0], [1.5, 0.25, -0.5, 1.0], [0.0, 3.0, -2.0, 0.75]]
    returns = [[1.5, -1.5, 1.0, 0.25], [0.0, 2.25, -0.5, 3.0], [2.0, 2.0, -3.0, 0.5]]
    preds = [[1.3125, -0.9375, 3.0625, 0.0625], [0.4375, 0.3125, -1.4375, 0.0625], [1.0625, 1.9375, -2.0625, 2.0]]
    ragged = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]

    def scaled(rows: Any, factor: float) -> Any:
        return [[x * factor for x in row] for row in rows]

    every = [_case(f"ragged rows: {mode}", preds, values, returns, ragged, aggregation=mode) for mode in MODES]
    return (
        *every,
        _case("full rows", preds, values, returns),
        _case("holes", preds, values, returns, [[1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 0, 1]]),
        _case("an empty row", preds, values, returns, [[1, 1, 1, 0], [0] * 4, [1] * 4], aggregation=MODES[4]),
        _case("one token", [[0.0625]], [[1.0]], [[2.0]]),
        _case("the critic has not moved", values, values, returns, ragged),
        _case("the critic is right", returns, values, returns, ragged),
        _case("towards the return, beyond the range", [[1.8125]], [[0.0]], [[2.0]]),
        _case("away from the return, beyond the range", [[-1.8125]], [[0.0]], [[2.0]]),
        _case("past the return, beyond the range", [[0.9375]], [[0.0]], [[0.25]], clip_range=0.2),
        _case("a narrow range", preds, values, returns, ragged, clip_range=0.01),
        _case("huge values", scaled(preds, 2.0**20), scaled(values, 2.0**20), scaled(returns, 2.0**20), ragged),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Recorded values and returns are eighths, predictions lie half a step beside: nobody meets a bound exactly."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shape = draw(st.sampled_from(((1, 1), (1, 3), (2, 3), (3, 4))))

    def eighths() -> Any:
        return draw(hnp.arrays("int8", shape, elements=st.integers(-16, 16))) / 8

    values, mask = eighths(), draw(hnp.arrays("bool", shape))
    mask[0, 0] = True
    knobs = {knob.name: draw(st.sampled_from(knob.choices)) for knob in KNOBS}
    return _case("", values + eighths() + 1 / 16, values, eighths(), mask, **knobs)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _right() -> Any:
    from minimal.post_training import value_torch

    return value_torch


def _variant(
    value_preds: Any,
    values: Any,
    returns: Any,
    response_mask: Any,
    *,
    clip_range: float,
    aggregation: str,
    horizon: float,
    anchor: Any = None,
    clip: Any = None,
    error: Any = None,
    larger: Any = None,
    factor: float = 0.5,
    mask: Any = None,
    reduce: Any = None,
    fraction: Any = None,
) -> Outputs:
    """The value loss with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    right = _right()
    v, old, target = (torch.where(response_mask, item, 0.0) for item in (value_preds, values, returns))
    centre = old if anchor is None else anchor(v, old, target)
    clipped = (clip or right.clipped_values)(v, centre, clip_range=clip_range)
    errors = error or right.squared_errors
    losses = factor * (larger or torch.maximum)(errors(v, target), errors(clipped, target))
    kept = response_mask if mask is None else mask(response_mask)
    loss = (reduce or right.aggregated)(losses, kept, aggregation=aggregation, horizon=horizon)
    share = (fraction or right.clip_fraction)(v, clipped, target, response_mask)
    return {"loss": loss, "clip_fraction": share}


def _straight_through(preds: Any, values: Any, *, clip_range: float) -> Any:
    return preds + (_right().clipped_values(preds, values, clip_range=clip_range) - preds).detach()


def _relative(preds: Any, values: Any, *, clip_range: float) -> Any:
    import torch

    width = clip_range * values.abs()
    return torch.maximum(torch.minimum(preds, values + width), values - width)


def _one_sided(preds: Any, values: Any, *, clip_range: float) -> Any:
    import torch

    return torch.minimum(preds, values + clip_range)


def _huber(preds: Any, target: Any) -> Any:
    import torch

    return 2 * torch.nn.functional.smooth_l1_loss(preds, target, reduction="none")


def _outside(preds: Any, clipped: Any, returns: Any, mask: Any) -> Any:
    return ((preds != clipped) & mask).sum().to(preds.dtype) / mask.sum()


def _of_all_slots(preds: Any, clipped: Any, returns: Any, mask: Any) -> Any:
    return _right().clip_fraction(preds, clipped, returns, mask) * mask.sum() / mask.numel()


def _padded(losses: Any, mask: Any, *, aggregation: str, horizon: float) -> Any:
    """The mean over all slots, masked ones counted as 0, whatever the mode of a mean over tokens."""
    right = _right()
    if aggregation != "token-mean":
        return right.aggregated(losses, mask, aggregation=aggregation, horizon=horizon)
    return (losses * mask).mean()


DEVIATIONS = (
    Deviation(
        name="clipped-against-itself",
        wrong="the prediction is clipped around itself, so never",
        right="around the value recorded at rollout",
        call=functools.partial(_variant, anchor=lambda v, old, target: v.detach()),
        seen_in="tf-agents #352, ray #19291",
        zoo=18,
        stage="clipped_preds",
    ),
    Deviation(
        name="clipped-around-return",
        wrong="clipped around the return",
        right="around the value recorded at rollout",
        call=functools.partial(_variant, anchor=lambda v, old, target: target),
        stage="clipped_preds",
    ),
    Deviation(
        name="smaller-error",
        wrong="the smaller of both errors",
        right="the larger",
        call=functools.partial(_variant, larger=lambda plain, clipped: plain.minimum(clipped)),
        stage="token_losses",
    ),
    Deviation(
        name="clipped-alone",
        wrong="the clipped error alone: a step away from the return is not paid for, and not taken back",
        right="the larger of both",
        call=functools.partial(_variant, larger=lambda plain, clipped: clipped),
        stage="token_losses",
    ),
    Deviation(
        name="mean-of-errors",
        wrong="the mean of both errors",
        right="the larger",
        call=functools.partial(_variant, larger=lambda plain, clipped: (plain + clipped) / 2),
        stage="token_losses",
    ),
    Deviation(
        name="gradient-through-clip",
        wrong="the gradient passes where the prediction is clipped",
        right="none comes of a clipped prediction",
        call=functools.partial(_variant, clip=_straight_through),
        stage="clipped_preds",
    ),
    Deviation(
        name="relative-range",
        wrong="the range is a share of the recorded value, as the ratio's is",
        right="an amount",
        call=functools.partial(_variant, clip=_relative),
        stage="clipped_preds",
    ),
    Deviation(
        name="one-sided",
        wrong="clipped from above alone",
        right="on both sides",
        call=functools.partial(_variant, clip=_one_sided),
        stage="clipped_preds",
    ),
    Deviation(
        name="no-half",
        wrong="without the factor 1/2",
        right="half of the squared error",
        call=functools.partial(_variant, factor=1.0),
        stage="token_losses",
    ),
    Deviation(
        name="absolute-error",
        wrong="|v - R|",
        right="(v - R)^2",
        call=functools.partial(_variant, error=lambda preds, target: (preds - target).abs()),
        stage="token_losses",
    ),
    Deviation(
        name="huber",
        wrong="linear beyond an error of 1",
        right="squared throughout",
        call=functools.partial(_variant, error=_huber),
        stage="token_losses",
    ),
    Deviation(
        name="mask-forgotten",
        wrong="masked slots count as tokens of error 0",
        right="they do not count",
        call=functools.partial(_variant, mask=lambda mask: mask | True),
        stage="loss",
    ),
    Deviation(
        name="padded-mean",
        wrong="token-mean divides by all slots",
        right="by the tokens",
        call=functools.partial(_variant, reduce=_padded),
        stage="loss",
    ),
    Deviation(
        name="fraction-outside",
        wrong="counted as clipped wherever the prediction left the range",
        right="where clipping raised the loss",
        call=functools.partial(_variant, fraction=_outside),
        stage="clip_fraction",
    ),
    Deviation(
        name="fraction-of-slots",
        wrong="the clipped share of all slots",
        right="of the tokens",
        call=functools.partial(_variant, fraction=_of_all_slots),
        stage="clip_fraction",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _clipped_preds(value_preds: Any, values: Any, *, clip_range: float) -> Any:
    return _right().clipped_values(value_preds, values, clip_range=clip_range)


def _token_losses(value_preds: Any, clipped_preds: Any, returns: Any) -> Any:
    return _right().token_value_losses(value_preds, clipped_preds, returns)


def _loss(token_losses: Any, response_mask: Any, *, aggregation: str, horizon: float) -> Any:
    return _right().aggregated(token_losses, response_mask, aggregation=aggregation, horizon=horizon)


STAGES = (
    Stage("clipped_preds", ("B", "T"), "The predictions within the range.", _clipped_preds, "reward"),
    Stage("token_losses", ("B", "T"), "Half of the larger squared error.", _token_losses, "reward^2"),
    Stage("loss", (), "Their mean, by the mode of aggregation.", _loss, "reward^2"),
)


def _by_distance(
    value_preds: Any,
    values: Any,
    returns: Any,
    response_mask: Any,
    *,
    clip_range: float,
    aggregation: str,
    horizon: float,
) -> Outputs:
    """The larger error is that of the point further away; a plain loop over rows does the aggregation."""
    import torch

    near = values + (value_preds - values).clamp(-clip_range, clip_range)
    further = (near - returns).abs() > (value_preds - returns).abs()
    losses = torch.where(further, near - returns, value_preds - returns).pow(2) / 2
    rows = [row[kept] for row, kept in zip(losses, response_mask, strict=True) if kept.any()]
    count = response_mask.sum()
    total: Any = {
        "token-mean": lambda: torch.cat(rows).mean(),
        "token-sum": lambda: torch.cat(rows).sum(),
        "seq-mean-token-sum": lambda: torch.stack([row.sum() for row in rows]).mean(),
        "seq-mean-token-sum-norm": lambda: torch.stack([row.sum() for row in rows]).mean() / horizon,
        "seq-mean-token-mean": lambda: torch.stack([row.mean() for row in rows]).mean(),
    }[aggregation]
    return {"loss": total(), "clip_fraction": (further & response_mask).sum().to(losses.dtype) / count}


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("clip_range", 0.5, (0.5, 0.2, 1.0), "How far a prediction may move from the recorded value, in reward units."),
    Knob("aggregation", "token-mean", MODES, "Who counts the same: tokens, or responses."),
    Knob("horizon", 512.0, (512.0, 8.0), "The constant of seq-mean-token-sum-norm; the other modes ignore it."),
)

INPUTS = (
    Input("value_preds", ("B", "T"), "float", "v: what the critic says now.", "reward", differentiable=True),
    Input("values", ("B", "T"), "float", "V: what it said at rollout.", "reward"),
    Input("returns", ("B", "T"), "float", "R: what it should have said.", "reward"),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that count, at least at one; holes are allowed."),
)

OUTPUTS = (
    Output("loss", (), "What the critic differentiates.", "reward^2"),
    Output("clip_fraction", (), "Share of tokens whose loss the clipping raised.", "1", differentiable=False),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)

COVERED = dict.fromkeys(("value_preds", "values", "returns"), "response_mask")

PADDING = {"value_preds": 3.0, "values": -1.0, "returns": 2.0, "response_mask": False}

PROBES = (
    probes.poison(COVERED),
    probes.poison(COVERED, value=1e6, name="fill"),
    probes.padding(AXES, "T", PADDING),
    probes.permutation(AXES, "B"),
)

CONTRACT = Contract(
    name="value-loss",
    kind="value",
    title="Clipped value loss (PPO)",
    doc=(
        "Of each token half the larger of (v - R)^2 and (v' - R)^2, v' being the prediction v kept within a range of"
        " the value recorded at rollout; then their aggregate over the batch, whose own tokens and responses are the"
        " divisors. No gradient comes of a clipped prediction. The clipping is that of OpenAI's implementation of PPO"
        " (arXiv 1707.06347)."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=PROBES,
    stages=STAGES,
    rewritings=(Rewriting("distance", "the error of the point further from the return, row by row", _by_distance),),
)
