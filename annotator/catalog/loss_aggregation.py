"""The contract ``loss-aggregation``: how the losses of tokens become the one number that is differentiated.

Bound to verl, whose ``agg_loss`` states every divisor of the whole batch. What a micro-batch's own counts would give is
a deviation here: its gradients do not add up to the batch's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog._third_party import CORE, pinned
from annotator.contracts import probes
from annotator.contracts.model import Case, Contract, Deviation, Implementation, Input, Knob, Output, Rewriting

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")

HIDDEN = "not a number under the mask"
"""The edge that only code keeps which selects before it adds."""


# Implementations ------------------------------------------------------------------------------------------------------


def _verl(
    token_losses: Any,
    response_mask: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    aggregation: str,
    horizon: float,
) -> Outputs:
    """verl counts in Python numbers. Its 1e-8 beside a count of tokens is lost: the sum is taken in float32."""
    loss = pinned(CORE).agg_loss(
        loss_mat=token_losses,
        loss_mask=response_mask,
        loss_agg_mode=aggregation,
        dp_size=int(dp_size),
        batch_num_tokens=int(batch_num_tokens),
        global_batch_size=int(global_batch_size),
        loss_scale_factor=horizon,
    )
    return {"loss": loss}


def _verl_accepts(case: Case) -> str | None:
    multiplied = case.label == HIDDEN and case.knobs["aggregation"] not in MODES[:2]
    return "verl's modes over sequences multiply masked slots by 0" if multiplied else None


def _minimal_torch(**inputs: Any) -> Outputs:
    from minimal.post_training import aggregation_torch

    return {"loss": aggregation_torch.aggregate(**inputs)}


def _minimal_jax(**inputs: Any) -> Outputs:
    from minimal.post_training import aggregation_jax

    return {"loss": aggregation_jax.aggregate(**inputs)}


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=("verl:verl.trainer.ppo.core_algos.agg_loss", "verl:verl.utils.torch_functional.masked_sum"),
        requires=("verl",),
        accepts=_verl_accepts,
        breaks=("poison",),  # the modes over sequences multiply by the mask: NaN times 0
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/aggregation_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/aggregation_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(
    label: str,
    losses: Any,
    mask: Any,
    *,
    tokens: int | None = None,
    sequences: int | None = None,
    ranks: int = 1,
    **knobs: Any,
) -> Case:
    """Counts that are not given are the micro-batch's own: then it is the whole batch."""
    import numpy as np

    kept = np.array(mask, dtype=bool)
    own = max(int(kept.sum()), 1), max(int(kept.any(axis=1).sum()), 1)
    counts = {
        "batch_num_tokens": own[0] if tokens is None else tokens,
        "global_batch_size": own[1] if sequences is None else sequences,
        "dp_size": ranks,
    }
    inputs = {"token_losses": np.array(losses, dtype=np.float64), "response_mask": kept}
    inputs |= {name: np.array(count, dtype=np.int64) for name, count in counts.items()}
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _edges() -> tuple[Case, ...]:
    losses = [[1.0, -0.5, 2.0, 4.0], [0.25, 3.0, -1.0, 8.0], [-2.0, 0.5, 1.5, 1.0]]
    ragged = [[True, True, False, False], [True, True, True, True], [True, False, False, False]]
    empty = [[False] * 4, *ragged[1:]]
    part: dict[str, Any] = {"tokens": 40, "sequences": 12, "ranks": 2}
    every = [
        _case(f"{what}: {mode}", losses, mask, **counts, aggregation=mode, horizon=8.0)
        for mode in MODES
        for what, mask, counts in (
            ("the whole batch", ragged, {}),
            ("a part of the batch", ragged, part),
            ("a row wholly masked", empty, part),
        )
    ]
    return (
        *every,
        _case("everything masked", losses, [[False] * 4] * 3, tokens=9, sequences=3, aggregation=MODES[4]),
        _case("no padding", losses, [[True] * 4] * 3, aggregation=MODES[4]),
        _case("one row", losses[:1], ragged[:1], tokens=3, sequences=2, ranks=4, aggregation=MODES[3], horizon=3.0),
        _case("holes", losses, [[True, False, True, False]] * 3, **part, aggregation=MODES[4]),
        _case("huge losses", [[x * 2.0**40 for x in row] for row in losses], ragged, **part),
        _case("a huge loss in a masked slot", [[1.0, 0.5, 2.0**40, 2.0**40]], ragged[:1], **part),
        _case("losses that cancel", [[1.0, -1.0, 3.0, 3.0]], ragged[:1], **part),
        _case(HIDDEN, [[1.0, 0.5, math.nan, math.nan]], ragged[:1], **part),
        _case("many ranks", losses, ragged, tokens=4096, sequences=512, ranks=64),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Losses are multiples of 1/8. The rest of the batch is drawn as counts alone: nothing else of it matters."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    rows, width = draw(st.sampled_from(((1, 4), (3, 4))))
    eighths = draw(hnp.arrays("int8", (rows, width), elements=st.integers(-32, 32)))
    mask = draw(hnp.arrays("bool", (rows, width)))
    ranks, steps = draw(st.sampled_from((1, 2, 3))), draw(st.integers(1, 3))
    return _case(
        "",
        eighths / 8,
        mask,
        tokens=max(int(mask.sum()) + draw(st.integers(0, 30)), 1),
        sequences=rows * ranks * steps,
        ranks=ranks,
        aggregation=draw(st.sampled_from(MODES)),
        horizon=draw(st.sampled_from((512.0, 8.0, 3.0))),
    )


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    token_losses: Any,
    response_mask: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    aggregation: str,
    horizon: float,
    mask: Callable[[Any], Any] = lambda mask: mask,
    counts: Callable[[Any], tuple[Any, Any]] | None = None,
    constant: Callable[[Any, float], Any] = lambda mask, horizon: horizon,
    ranks: Callable[[Any], Any] = lambda ranks: ranks,
    modes: Mapping[str, Callable[[Any, Any, Any], Any]] | None = None,
) -> Outputs:
    """The aggregation with one part replaced. A part left out is the right one, from the minimal version."""
    from minimal.post_training import aggregation_torch as right

    tokens, sequences = counts(response_mask) if counts else (batch_num_tokens, global_batch_size)
    whole = right.Whole(tokens, sequences, constant(response_mask, horizon))
    reduce = {**right.MODES, **(modes or {})}[aggregation]
    return {"loss": reduce(token_losses, mask(response_mask), whole) * ranks(dp_size)}


def _own_counts(mask: Any) -> tuple[Any, Any]:
    from minimal.post_training import aggregation_torch as right

    return tuple(count.clamp(min=1) for count in right.local_counts(mask))


def _as(mode: str) -> Callable[[Any, Any, Any], Any]:
    """The function of another mode."""

    def reduce(losses: Any, mask: Any, whole: Any) -> Any:
        from minimal.post_training import aggregation_torch as right

        return right.MODES[mode](losses, mask, whole)

    return reduce


def _rows(losses: Any, mask: Any) -> Any:
    from minimal.post_training import aggregation_torch as right

    return right.masked_sums(losses, mask)


def _by_column(losses: Any, mask: Any, whole: Any) -> Any:
    return (_rows(losses.T, mask.T) / mask.sum(dim=0).clamp(min=1)).sum() / whole.sequences


DEVIATIONS = (
    Deviation(
        name="own-length",
        wrong="token-mean divides each response by its own length first",
        right="every token of the batch weighs the same",
        call=functools.partial(_variant, modes={"token-mean": _as("seq-mean-token-mean")}),
        seen_in="TRL #3256",
        zoo=3,
    ),
    Deviation(
        name="batch-tokens",
        wrong="seq-mean-token-mean divides by the tokens of the batch",
        right="each response by its own length, then by the responses",
        call=functools.partial(_variant, modes={"seq-mean-token-mean": _as("token-mean")}),
        seen_in="TRL #2995",
        zoo=3,
    ),
    Deviation(
        name="micro-batch-mean",
        wrong="divided by the micro-batch's own tokens and responses: a mean of means",
        right="by those of the whole batch",
        call=functools.partial(_variant, counts=_own_counts),
        seen_in="open-instruct #1161",
        zoo=4,
    ),
    Deviation(
        name="padded-width",
        wrong="Dr. GRPO's constant is the padded width, another one in every batch",
        right="a stated constant",
        call=functools.partial(_variant, constant=lambda mask, _: mask.shape[-1]),
        seen_in="verl #3741",
        zoo=5,
    ),
    Deviation(
        name="ranks-forgotten",
        wrong="not multiplied by the ranks: their mean divides once more",
        right="times the data-parallel size",
        call=functools.partial(_variant, ranks=lambda ranks: 1),
        seen_in="verl #5366",
        zoo=5,
    ),
    Deviation(
        name="nan-times-zero",
        wrong="masked slots are multiplied by 0, which leaves NaN as it is",
        right="they are left out",
        call=functools.partial(
            _variant,
            modes={
                "token-mean": lambda losses, mask, whole: (losses * mask).sum() / whole.tokens,
                "token-sum": lambda losses, mask, whole: (losses * mask).sum(),
            },
        ),
        seen_in="OpenRLHF #1240",
        zoo=14,
    ),
    Deviation(
        name="ranks-divided",
        wrong="divided by the ranks",
        right="multiplied",
        call=functools.partial(_variant, ranks=lambda ranks: 1 / ranks),
    ),
    Deviation(
        name="mask-forgotten",
        wrong="padding takes part in the sums and lengths",
        right="masked",
        call=functools.partial(_variant, mask=lambda mask: mask | True),
    ),
    Deviation(
        name="mask-shifted",
        wrong="the mask of the next token",
        right="of the token itself",
        call=functools.partial(_variant, mask=lambda mask: mask.roll(-1, dims=-1)),
    ),
    Deviation(
        name="row-width",
        wrong="seq-mean-token-mean divides each row by the padded width",
        right="by its own tokens",
        call=functools.partial(
            _variant,
            modes={
                "seq-mean-token-mean": lambda losses, mask, whole: (
                    (_rows(losses, mask) / mask.shape[-1]).sum() / whole.sequences
                )
            },
        ),
    ),
    Deviation(
        name="by-column",
        wrong="seq-mean-token-mean averages each position over the batch",
        right="each response over its tokens",
        call=functools.partial(_variant, modes={"seq-mean-token-mean": _by_column}),
    ),
    Deviation(
        name="constant-forgotten",
        wrong="seq-mean-token-sum-norm does not divide by the constant",
        right="it does",
        call=functools.partial(_variant, modes={"seq-mean-token-sum-norm": _as("seq-mean-token-sum")}),
    ),
    Deviation(
        name="constant-for-responses",
        wrong="seq-mean-token-sum-norm divides by the constant alone",
        right="by the responses of the batch too",
        call=functools.partial(
            _variant,
            modes={
                "seq-mean-token-sum-norm": lambda losses, mask, whole: _rows(losses, mask).sum() / whole.horizon,
            },
        ),
    ),
    Deviation(
        name="sum-averaged",
        wrong="seq-mean-token-sum divides by the tokens of the batch",
        right="by its responses",
        call=functools.partial(_variant, modes={"seq-mean-token-sum": _as("token-mean")}),
    ),
    Deviation(
        name="sum-over-responses",
        wrong="seq-mean-token-sum is not divided at all",
        right="by the responses of the batch",
        call=functools.partial(_variant, modes={"seq-mean-token-sum": _as("token-sum")}),
    ),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _weighted(
    token_losses: Any,
    response_mask: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    aggregation: str,
    horizon: float,
) -> Outputs:
    """One weight a token, then one dot product."""
    import torch

    kept = response_mask.to(token_losses.dtype)
    lengths = kept.sum(dim=-1, keepdim=True).clamp(min=1)
    weights = {
        "token-mean": kept / batch_num_tokens,
        "token-sum": kept,
        "seq-mean-token-sum": kept / global_batch_size,
        "seq-mean-token-sum-norm": kept / (global_batch_size * horizon),
        "seq-mean-token-mean": kept / lengths / global_batch_size,
    }[aggregation]
    return {"loss": torch.einsum("bt,bt->", weights * dp_size, token_losses.masked_fill(~response_mask, 0))}


REWRITINGS = (Rewriting("weights", "a weight for every token, and one dot product", _weighted),)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("aggregation", "token-mean", MODES, "Who counts the same: tokens, or responses."),
    Knob("horizon", 512.0, (512.0, 8.0, 3.0), "The constant of seq-mean-token-sum-norm; the other modes ignore it."),
)

INPUTS = (
    Input("token_losses", ("B", "T"), "float", "Loss of each token; finite.", "loss", differentiable=True),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that count; holes are allowed."),
    Input("batch_num_tokens", (), "int", "Tokens that count in the whole batch: all micro-batches of all ranks.", "1"),
    Input("global_batch_size", (), "int", "Responses of the whole batch.", "1"),
    Input("dp_size", (), "int", "Data-parallel ranks, whose gradients are averaged.", "1"),
)

OUTPUTS = (Output("loss", (), "What a rank differentiates for this micro-batch.", "loss"),)

AXES = probes.axes_of(INPUTS, OUTPUTS)

COVERED = {"token_losses": "response_mask"}

PROBES = (
    probes.split(AXES, "B"),
    probes.padding(AXES, "T", {"token_losses": 3.0, "response_mask": False}),
    probes.permutation(AXES, "B"),
    probes.poison(COVERED),
    probes.poison(COVERED, value=1e6, name="fill"),
)


CONTRACT = Contract(
    name="loss-aggregation",
    kind="value",
    title="From token losses to one loss",
    doc=(
        "The sum over a micro-batch's unmasked tokens of loss times weight, so weighted that the micro-batches of a"
        " rank add up and the mean over ranks is the loss of the whole batch. The weight is dp/N (token-mean), dp"
        " (token-sum), dp/S (seq-mean-token-sum), dp/(S H) (seq-mean-token-sum-norm, Dr. GRPO) or dp/(S n_i)"
        " (seq-mean-token-mean), with N tokens and S responses in the whole batch, n_i tokens in response i, and a"
        " constant H. arXiv 2402.03300, 2503.14476, 2503.20783."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=PROBES,
    rewritings=REWRITINGS,
)
