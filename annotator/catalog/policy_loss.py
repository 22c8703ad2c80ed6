"""The contract ``policy-loss``: PPO's and GRPO's clipped loss, from token log-probabilities to one number.

Bound to verl, TRL and Liger, which write the same minimum in three ways and differ around it: in what limits the ratio,
in whether a divergence from a reference policy is part of the loss, and in what the sum is divided by.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog import _policy
from annotator.catalog.loss_aggregation import MODES
from annotator.contracts import probes
from annotator.contracts.comparison import GRADIENT
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
from annotator.contracts.running import Result, normal

if TYPE_CHECKING:
    import numpy as np
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

TOKENS = ("log_probs", "old_log_probs", "advantages", "ref_log_probs", "rollout_weights")
SIZES = ("batch_num_tokens", "global_batch_size", "dp_size")

HIDDEN = "not a number under the mask"
"""The edge that only a library keeps which selects before it multiplies."""


# Implementations ------------------------------------------------------------------------------------------------------


def _verl(ref_log_probs: Any, max_log_ratio: float, kl_coef: float, kl_by_ratio: bool, **arguments: Any) -> Outputs:
    """The divergence is another function's business in verl, and +-20 is written in."""
    return _policy.verl_loss(**arguments)


def _trl(max_log_ratio: float, **arguments: Any) -> Outputs:
    return _policy.trl_loss(**arguments)


def _liger(max_log_ratio: float, **arguments: Any) -> Outputs:
    return _policy.liger_loss(**arguments)


def _named(result: Any) -> Outputs:
    return dict(zip(("loss", "clip_fraction"), result, strict=True))


def _minimal_torch(**inputs: Any) -> Outputs:
    from minimal.post_training import policy_torch

    return _named(policy_torch.policy_loss(**inputs))


def _minimal_jax(**inputs: Any) -> Outputs:
    from minimal.post_training import policy_jax

    return _named(policy_jax.policy_loss(**inputs))


def _trl_accepts(case: Case) -> str | None:
    if case.label == HIDDEN:
        return "TRL multiplies masked slots by 0"
    if case.knobs["aggregation"] == "token-sum":
        return "TRL has no plain sum"
    mask = case.inputs["response_mask"]
    if case.knobs["counts"] == "local":
        return None if mask.any(axis=1).all() else "TRL counts responses without tokens too"
    micro = len(mask) * int(case.inputs["dp_size"])
    return "TRL takes micro-batches of one size" if int(case.inputs["global_batch_size"]) % micro else None


def _liger_accepts(case: Case) -> str | None:
    if case.knobs["aggregation"] == "seq-mean-token-sum":
        return "Liger's luspo weighs by length besides"
    if case.label != HIDDEN and not _one_advantage_a_row(case):
        return "Liger takes one advantage a response"
    if int(case.inputs["batch_num_tokens"]) < int(case.inputs["dp_size"]):
        return "Liger divides by a token at least on each rank"
    refused = _trl_accepts(case)
    return refused.replace("TRL", "Liger") if refused else None


def _one_advantage_a_row(case: Case) -> bool:
    rows = zip(case.inputs["advantages"], case.inputs["response_mask"], strict=True)
    return all(len(set(row[kept].tolist())) <= 1 for row, kept in rows)


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=(
            "verl:verl.trainer.ppo.core_algos.compute_policy_loss_vanilla",
            "verl:verl.trainer.ppo.core_algos.agg_loss",
            "verl:verl.utils.torch_functional.masked_mean",
            "verl:verl.utils.torch_functional.masked_sum",
        ),
        dialect={"max_log_ratio": 20.0, "kl_coef": 0.0},
        requires=("verl",),
        breaks=("poison",),  # an advantage that is not a number, times 0
    ),
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl,
        symbols=("trl:trl.trainer.grpo_trainer.GRPOTrainer._compute_loss",),
        dialect={"max_log_ratio": math.inf},
        requires=("trl",),
        accepts=_trl_accepts,
        breaks=("poison",),
    ),
    Implementation(
        name="liger",
        role="reference",
        backend="torch",
        call=_liger,
        symbols=(
            "liger-kernel:liger_kernel.chunked_loss.grpo_loss.LigerFusedLinearGRPOFunction.ppo_loss_fn",
            "liger-kernel:liger_kernel.chunked_loss.grpo_loss.clip_coef_fn",
            "liger-kernel:liger_kernel.chunked_loss.grpo_loss.k3_loss_fn",
            "liger-kernel:liger_kernel.chunked_loss.fused_linear_ppo.LigerFusedLinearPPOBase._compute_dapo_normalizer",
        ),
        dialect={"max_log_ratio": math.inf},
        requires=("liger-kernel",),
        accepts=_liger_accepts,
        breaks=("poison",),
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/policy_torch.py", "minimal/post_training/aggregation_torch.py"),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/policy_jax.py", "minimal/post_training/aggregation_jax.py"),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(
    label: str, tokens: Mapping[str, Any], mask: Any, *, sizes: tuple[int, int, int] | None = None, **knobs: Any
) -> Case:
    import numpy as np

    inputs = {name: np.array(tokens[name], dtype=np.float64) for name in TOKENS}
    inputs["response_mask"] = np.array(mask, dtype=bool)
    inputs |= {name: np.array(size, dtype=np.int64) for name, size in zip(SIZES, sizes or PART, strict=True)}
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random_tokens(
    seed: int, shape: tuple[int, int], *, drift: float = 0.3, by_token: bool = False
) -> dict[str, np.ndarray]:
    """Log-probabilities like those of text, and an old policy from which the new one has drifted; masked slots too.

    Advantages are of either sign and mostly positive: a loss that cancels to nothing tells rounding errors apart.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    log_probs = -random.exponential(1.0, shape)
    return {
        "log_probs": log_probs,
        "old_log_probs": log_probs - drift * random.standard_normal(shape),
        "advantages": np.broadcast_to(1.5 + random.standard_normal((shape[0], shape[1] if by_token else 1)), shape),
        "ref_log_probs": log_probs + 0.5 * random.standard_normal(shape),
        "rollout_weights": np.exp(0.3 * random.standard_normal(shape)),
    }


def _drifted(log_ratios: Any, advantages: Any) -> dict[str, np.ndarray]:
    """Tokens of given log-ratios and advantages; the reference policy is the old one, the engine is right."""
    import numpy as np

    old = np.full(np.shape(log_ratios), -1.0)
    ones = np.ones_like(old)
    return {
        "log_probs": old + np.array(log_ratios),
        "old_log_probs": old,
        "advantages": np.array(advantages) * ones,
        "ref_log_probs": old,
        "rollout_weights": ones,
    }


RECIPES: tuple[dict[str, Any], ...] = (
    {"aggregation": MODES[0], "counts": "local", "weighted": False, "kl_by_ratio": False},
    {"aggregation": MODES[0], "counts": "global", "weighted": True, "kl_by_ratio": False},
    {"aggregation": MODES[1], "counts": "global", "weighted": False, "kl_by_ratio": False},
    {"aggregation": MODES[2], "counts": "global", "weighted": True, "kl_by_ratio": False},
    {"aggregation": MODES[3], "counts": "global", "weighted": False, "kl_by_ratio": True},
    {"aggregation": MODES[4], "counts": "global", "weighted": True, "kl_by_ratio": True},
    {"aggregation": MODES[4], "counts": "local", "weighted": True, "kl_by_ratio": False},
)
"""The settings that cases draw from: every choice of every switch, and few programs for JAX to compile."""

RAGGED = ((True, True, False, False), (True, True, True, True), (True, False, False, False))
FULL = ((True,) * 4,) * 3
PART = (40, 12, 2)


def _edges() -> tuple[Case, ...]:
    tokens = _random_tokens(0, (3, 4))
    full: dict[str, Any] = {"clip_low": 0.1, "clip_high": 0.28, "dual_clip": 1.5, "kl_coef": 0.5, "horizon": 8.0}
    every = tuple(
        _case(f"{knobs['counts']} {knobs['aggregation']}", tokens, RAGGED, **full, **knobs) for knobs in RECIPES
    )
    same = {**tokens, "old_log_probs": tokens["log_probs"]}
    empty = ((False,) * 4, *RAGGED[1:])
    by_token = _random_tokens(1, (3, 4), by_token=True)
    return (
        *every,
        _case("on policy", same, RAGGED),
        _case("on policy, weighted, with a divergence", same, RAGGED, **RECIPES[1], kl_coef=0.5),
        _case("the policy is the reference", {**tokens, "ref_log_probs": tokens["log_probs"]}, RAGGED, kl_coef=0.5),
        _case("one advantage a token", by_token, RAGGED, **RECIPES[1], dual_clip=3.0),
        _case("a row wholly masked", tokens, empty, **RECIPES[5], kl_coef=0.5),
        _case("everything masked", tokens, ((False,) * 4,) * 3, **RECIPES[1], kl_coef=0.5),
        _case("no padding", tokens, FULL, clip_high=0.28, kl_coef=0.04),
        *_ratio_edges(),
        _hidden(tokens),
    )


def _ratio_edges() -> tuple[Case, ...]:
    """Ratios on either side of the range, for advantages of either sign, and beyond every limit."""
    across, signs = [[-0.7, -0.05, 0.05, 0.7]] * 3, [[1.0], [-1.0], [0.0]]

    def far(log_ratio: float, advantage: float) -> dict[str, np.ndarray]:
        return _drifted([[log_ratio] * 4] * 3, [[advantage]])

    return (
        _case("all sides of the range", _drifted(across, signs), FULL),
        _case("bounds that differ", _drifted(across, signs), FULL, clip_low=0.1, clip_high=0.28),
        _case("negative advantages beyond c", far(2.0, -1.0), FULL, dual_clip=3.0),
        _case("positive advantages beyond c", far(2.0, 1.0), FULL, dual_clip=3.0),
        _case("ratios of nothing", far(-25.0, 1.0), FULL),
        _case("ratios of billions", far(25.0, -1.0), FULL),
        _case("huge advantages", _drifted(across, [[2.0**40]] * 3), FULL),
    )


def _hidden(tokens: Mapping[str, np.ndarray]) -> Case:
    import numpy as np

    mask = np.array(RAGGED)
    unknown = {name: np.where(mask, tokens[name], np.nan) for name in ("log_probs", "old_log_probs")}
    return _case(HIDDEN, {**tokens, **unknown}, mask, **RECIPES[1])


def _drawn_case(draw: DrawFn) -> Case:
    """Tokens come from a drawn seed, not entry by entry: ties at the ends of the range then have no chance."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shape = draw(st.sampled_from(((1, 4), (3, 4))))
    recipe = draw(st.sampled_from(RECIPES))
    mask = draw(hnp.arrays("bool", shape))
    mask[:, 0] |= recipe["counts"] == "local"  # no mean over nothing
    ranks, steps = draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, 3))
    drift, by_token = draw(st.sampled_from((0.2, 0.05, 1.0))), draw(st.booleans())
    tokens = _random_tokens(draw(st.integers(0, 2**16)), shape, drift=drift, by_token=by_token)
    return _case(
        "",
        tokens,
        mask,
        sizes=(max(int(mask.sum()), ranks) + draw(st.integers(0, 30)), shape[0] * ranks * steps, ranks),
        clip_low=draw(st.sampled_from((0.2, 0.1))),
        clip_high=draw(st.sampled_from((0.2, 0.28))),
        dual_clip=draw(st.sampled_from((math.inf, 3.0, 1.5))),
        kl_coef=draw(st.sampled_from((0.0, 0.04, 0.5))),
        horizon=draw(st.sampled_from((512.0, 8.0))),
        **recipe,
    )


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _same(value: Any, *_: Any) -> Any:
    return value


def _selected(values: Any, mask: Any) -> Any:
    from minimal.post_training import policy_torch as right

    return right.select(values, mask)


def _log_ratio(new: Any, old: Any) -> Any:
    return new - old


def _clipped(ratio: Any, advantages: Any, low: float, high: float, dual_clip: float) -> Any:
    from minimal.post_training import policy_torch as right

    return right.clipped_losses(ratio, advantages, clip_low=low, clip_high=high, dual_clip=dual_clip)


def _divergence(new: Any, ref: Any, old: Any) -> Any:
    from minimal.post_training import policy_torch as right

    return right.kl_estimates(new, ref)


def _joined(loss: Any, weights: Any, kl: Any) -> Any:
    return loss * weights + kl


def _reduced(losses: Any, mask: Any, advantages: Any, sizes: tuple[Any, Any, Any], **knobs: Any) -> Any:
    from minimal.post_training import policy_torch as right

    return right.reduce_losses(losses, mask, *sizes, **knobs)


def _fraction(ratio: Any, advantages: Any, mask: Any, low: float, high: float) -> Any:
    from minimal.post_training import policy_torch as right

    return right.clip_fractions(ratio, advantages, mask, clip_low=low, clip_high=high)


def _variant(
    log_probs: Any,
    old_log_probs: Any,
    advantages: Any,
    response_mask: Any,
    ref_log_probs: Any,
    rollout_weights: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    max_log_ratio: float,
    weighted: bool,
    kl_coef: float,
    kl_by_ratio: bool,
    aggregation: str,
    horizon: float,
    counts: str,
    mask: Callable[..., Any] = _same,
    select: Callable[..., Any] = _selected,
    sign: Callable[..., Any] = _same,
    log_ratio: Callable[..., Any] = _log_ratio,
    weigh: Callable[..., Any] = _same,
    clip: Callable[..., Any] = _clipped,
    divergence: Callable[..., Any] = _divergence,
    join: Callable[..., Any] = _joined,
    ranks: Callable[..., Any] = _same,
    divide_by: Callable[..., Any] = _same,
    reduce: Callable[..., Any] = _reduced,
    fraction: Callable[..., Any] = _fraction,
) -> Outputs:
    """The loss with one part replaced. A part left out is the right one, from the minimal version."""
    kept = mask(response_mask)
    new, old, gain, ref = (select(x, kept) for x in (log_probs, old_log_probs, advantages, ref_log_probs))
    weights = select(weigh(rollout_weights), kept) if weighted else 1.0
    apart = log_ratio(new, old)
    ratio = apart.clamp(-max_log_ratio, max_log_ratio).exp()
    losses = clip(ratio, sign(gain), clip_low, clip_high, dual_clip)
    kl = divergence(new, ref, old)
    losses = join(losses, weights, kl_coef * (kl * ratio if kl_by_ratio else kl))
    sizes = batch_num_tokens, global_batch_size, ranks(dp_size)
    knobs = {"aggregation": aggregation, "horizon": horizon, "counts": divide_by(counts)}
    return {
        "loss": reduce(losses, kept, advantages, sizes, **knobs),
        "clip_fraction": fraction(ratio, gain, kept, clip_low, clip_high),
    }


def _multiplied(
    losses: Any, weights: Any, sizes: tuple[Any, Any, Any], *, aggregation: str, horizon: float, counts: str
) -> Any:
    """Every mode by multiplication, of losses and what stands in the mask's place."""
    import torch

    tokens, sequences, ranks = sizes
    if counts == "local":
        tokens, sequences, ranks = weights.sum(), (weights != 0).any(dim=-1).sum(), 1
    rows = (losses * weights).sum(dim=-1)  # [B, T] -> [B]
    if aggregation == "seq-mean-token-mean":
        lengths = weights.sum(dim=-1)  # [B]
        rows = rows / torch.where(lengths == 0, 1, lengths)
    divisors = {"token-mean": tokens, "token-sum": 1, "seq-mean-token-sum-norm": sequences * horizon}
    return rows.sum() / divisors.get(aggregation, sequences) * ranks


def _bounded(ratio: Any, low: float, high: float) -> Any:
    return ratio.clamp(1 - low, 1 + high)


def _capped(ratio: Any, dual_clip: float) -> Any:
    return ratio.clamp(max=dual_clip)


def _maximum(a: Any, b: Any) -> Any:
    import torch

    return torch.maximum(a, b)


def _optimistic(ratio: Any, gain: Any, low: float, high: float, dual_clip: float) -> Any:
    import torch

    return torch.minimum(-gain * _capped(ratio, dual_clip), -gain * _bounded(ratio, low, high))


def _dual_clip_of_both_signs(ratio: Any, gain: Any, low: float, high: float, dual_clip: float) -> Any:
    import torch

    losses = _maximum(-gain * ratio, -gain * _bounded(ratio, low, high))
    return torch.minimum(losses, -gain * dual_clip) if math.isfinite(dual_clip) else losses


def _outside(ratio: Any, gain: Any, mask: Any, low: float, high: float) -> Any:
    out = ((ratio > 1 + high) | (ratio < 1 - low)) & mask
    return out.to(ratio.dtype).sum() / mask.sum().clamp(min=1)


def _in_all_slots(ratio: Any, gain: Any, mask: Any, low: float, high: float) -> Any:
    from minimal.post_training import policy_torch as right

    return right.clip_fractions(ratio, gain, mask, clip_low=low, clip_high=high) * mask.sum() / mask.numel()


DEVIATIONS = (
    Deviation(
        name="kl-subtracted",
        wrong="the divergence is subtracted from the loss",
        right="added: it is a loss",
        call=functools.partial(_variant, join=lambda loss, weights, kl: loss * weights - kl),
        seen_in="verl #179",
        zoo=1,
        stage="token_loss",
    ),
    Deviation(
        name="weight-dropped",
        wrong="the weight for the engine's mismatch is taken and not used",
        right="it multiplies the policy's part",
        call=functools.partial(_variant, weigh=lambda weights: weights * 0 + 1),
        seen_in="Liger #1082",
        zoo=11,
        stage="token_loss",
    ),
    Deviation(
        name="local-normaliser",
        wrong="divided by the micro-batch's own counts, whatever counts are given",
        right="by those of the whole batch",
        call=functools.partial(_variant, divide_by=lambda counts: "local"),
        seen_in="Liger #1082",
        zoo=11,
        stage="loss",
    ),
    Deviation(
        name="advantages-as-mask",
        wrong="advantages stand where the response mask belongs",
        right="the mask",
        call=functools.partial(
            _variant,
            select=_same,
            reduce=lambda losses, mask, gain, sizes, **knobs: _multiplied(losses, gain, sizes, **knobs),
        ),
        seen_in="verl #2506",
        zoo=12,
        stage="loss",
    ),
    Deviation(
        name="nan-times-zero",
        wrong="masked slots are multiplied by 0, which leaves NaN as it is",
        right="they are left out before any arithmetic",
        call=functools.partial(
            _variant,
            select=_same,
            reduce=lambda losses, mask, gain, sizes, **knobs: _multiplied(losses, mask.to(losses), sizes, **knobs),
        ),
        seen_in="OpenRLHF #1240",
        stage="loss",
    ),
    Deviation(
        name="clip-from-low",
        wrong="clipped to [low, 1 + high]",
        right="to [1 - low, 1 + high]",
        call=functools.partial(
            _variant,
            clip=lambda ratio, gain, low, high, c: _maximum(
                -gain * _capped(ratio, c), -gain * ratio.clamp(low, 1 + high)
            ),
        ),
        seen_in="RL2 #21",
        zoo=17,
        stage="token_loss",
    ),
    Deviation(
        name="one-bound",
        wrong="the upper bound's width on both sides",
        right="a width a side",
        call=functools.partial(
            _variant,
            clip=lambda ratio, gain, low, high, c: _maximum(
                -gain * _capped(ratio, c), -gain * _bounded(ratio, high, high)
            ),
            fraction=lambda ratio, gain, mask, low, high: _fraction(ratio, gain, mask, high, high),
        ),
        stage="token_loss",
    ),
    Deviation(
        name="optimistic",
        wrong="the smaller of the two losses",
        right="the larger: the minimum is of gains",
        call=functools.partial(_variant, clip=_optimistic),
        stage="token_loss",
    ),
    Deviation(
        name="clipped-only",
        wrong="the clipped gain alone: a ratio that has to come back has no gradient",
        right="the minimum with the unclipped one",
        call=functools.partial(_variant, clip=lambda ratio, gain, low, high, c: -gain * _bounded(ratio, low, high)),
        stage="token_loss",
    ),
    Deviation(
        name="dual-clip-of-both-signs",
        wrong="c bounds the loss of positive advantages too",
        right="of negative ones",
        call=functools.partial(_variant, clip=_dual_clip_of_both_signs),
        stage="token_loss",
    ),
    Deviation(
        name="no-dual-clip",
        wrong="c is not applied",
        right="it bounds the loss of negative advantages",
        call=functools.partial(
            _variant, clip=lambda ratio, gain, low, high, c: _clipped(ratio, gain, low, high, math.inf)
        ),
        stage="token_loss",
    ),
    Deviation(
        name="ratio-inverted",
        wrong="old over new",
        right="new over old",
        call=functools.partial(_variant, log_ratio=lambda new, old: old - new),
        stage="log_ratio",
    ),
    Deviation(
        name="ratio-detached",
        wrong="no gradient through the ratio; every value is right",
        right="the ratio carries the policy's gradient",
        call=functools.partial(_variant, log_ratio=lambda new, old: (new - old).detach()),
        stage="ratio",
    ),
    Deviation(
        name="advantage-negated",
        wrong="the gain is minimised",
        right="its negative",
        call=functools.partial(_variant, sign=lambda gain: -gain),
        stage="token_loss",
    ),
    Deviation(
        name="kl-reversed",
        wrong="k3 with policy and reference interchanged",
        right="exp(log ref - log pi) - (log ref - log pi) - 1",
        call=functools.partial(_variant, divergence=lambda new, ref, old: _divergence(ref, new, old)),
        stage="token_loss",
    ),
    Deviation(
        name="kl-k1",
        wrong="log pi - log ref as the loss: its gradient does not know the reference",
        right="k3",
        call=functools.partial(_variant, divergence=lambda new, ref, old: new - ref),
        stage="token_loss",
    ),
    Deviation(
        name="kl-detached",
        wrong="the divergence carries no gradient; every value is right",
        right="it is differentiated",
        call=functools.partial(_variant, divergence=lambda new, ref, old: _divergence(new, ref, old).detach()),
        stage="token_loss",
    ),
    Deviation(
        name="kl-to-old",
        wrong="the divergence from the old policy",
        right="from the reference policy",
        call=functools.partial(_variant, divergence=lambda new, ref, old: _divergence(new, old, old)),
        stage="token_loss",
    ),
    Deviation(
        name="kl-weighted",
        wrong="the engine's weight multiplies the divergence too",
        right="the policy's part alone",
        call=functools.partial(_variant, join=lambda loss, weights, kl: (loss + kl) * weights),
        stage="token_loss",
    ),
    Deviation(
        name="mask-forgotten",
        wrong="padding takes part",
        right="masked",
        call=functools.partial(_variant, mask=lambda mask: mask | True),
        stage="loss",
    ),
    Deviation(
        name="ranks-forgotten",
        wrong="global counts without the number of ranks: their mean divides once more",
        right="times the data-parallel size",
        call=functools.partial(_variant, ranks=lambda ranks: 1),
        stage="loss",
    ),
    Deviation(
        name="fraction-of-either-sign",
        wrong="every ratio outside of the range is counted as clipped",
        right="those whose advantage pushes them further out",
        call=functools.partial(_variant, fraction=_outside),
        stage="clip_fraction",
    ),
    Deviation(
        name="fraction-of-all-slots",
        wrong="the clipped fraction is a mean over padding too",
        right="over tokens",
        call=functools.partial(_variant, fraction=_in_all_slots),
        stage="clip_fraction",
    ),
)


# Probes ---------------------------------------------------------------------------------------------------------------


def _token_weights(case: Case) -> np.ndarray:
    """What each token's loss is multiplied by, [B, T]: an independent account of the aggregation."""
    import numpy as np

    mask, mode = np.asarray(case.inputs["response_mask"], dtype=bool), case.knobs["aggregation"]
    tokens, sequences, ranks = (int(case.inputs[name]) for name in SIZES)
    if case.knobs["counts"] == "local":
        tokens, sequences, ranks = int(mask.sum()), int(mask.any(axis=1).sum()), 1
    lengths = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    divisor: Any = {
        "token-mean": tokens,
        "token-sum": 1,
        "seq-mean-token-sum": sequences,
        "seq-mean-token-sum-norm": sequences * case.knobs["horizon"],
        "seq-mean-token-mean": sequences * lengths,
    }[mode]
    weights: np.ndarray = mask * (ranks / divisor)
    return weights


def _on_policy(case: Case) -> Case | None:
    """The same tokens, written by the policy itself, and no divergence asked for."""
    import numpy as np

    if case.label == HIDDEN or not np.asarray(case.inputs["response_mask"]).any():
        return None
    inputs = {**case.inputs, "old_log_probs": case.inputs["log_probs"]}
    return Case(inputs, {**case.knobs, "kl_coef": 0.0})


def _plain_gradient(case: Case) -> Mapping[str, Any]:
    """With a ratio of 1 the loss is minus the weighted advantages, and so is its gradient token by token."""
    gain = -_token_weights(case) * case.inputs["advantages"]
    gain = gain * case.inputs["rollout_weights"] if case.knobs["weighted"] else gain
    slope = normal("loss", ()) * gain
    return {"loss": gain.sum(), "clip_fraction": 0.0, GRADIENT + "log_probs": slope}


def _equal_parts(case: Case) -> list[np.ndarray]:
    """Two halves, or single rows where there are no halves: some libraries take micro-batches of one size only."""
    import numpy as np

    rows = len(case.inputs["response_mask"])
    return np.split(np.arange(rows), 2 if rows % 2 == 0 else rows)


def _of_the_loss(probe: Probe) -> Probe:
    """A probe that looks at the loss under global counts only: a fraction of a micro-batch does not add up."""

    def relation(run: Runner, case: Case) -> float | None:
        def loss(case: Case, **options: Any) -> Result:
            found = run(case, **options)
            return Result({"loss": found.outputs["loss"]}, found.gradients, found.carried)

        return probe.relation(loss, case) if case.knobs["counts"] == "global" else None

    return Probe(probe.name, probe.doc, relation)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _by_sign(
    log_probs: Any,
    old_log_probs: Any,
    advantages: Any,
    response_mask: Any,
    ref_log_probs: Any,
    rollout_weights: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    max_log_ratio: float,
    weighted: bool,
    kl_coef: float,
    kl_by_ratio: bool,
    aggregation: str,
    horizon: float,
    counts: str,
) -> Outputs:
    """Only unmasked tokens are looked at, and the bound of each follows from the sign of its advantage."""
    import torch

    from minimal.post_training import aggregation_torch

    row, slot = response_mask.nonzero(as_tuple=True)
    new, old, gain, ref, weight = (
        x[row, slot] for x in (log_probs, old_log_probs, advantages, ref_log_probs, rollout_weights)
    )
    ratio = (new - old).clamp(-max_log_ratio, max_log_ratio).exp()
    above = ratio.clamp(max=1 + clip_high)
    below = ratio.clamp(1 - clip_low, dual_clip)
    losses = -gain * torch.where(gain > 0, above, below) * (weight if weighted else 1)
    kl = torch.expm1(ref - new) - (ref - new)
    losses = losses + kl_coef * (ratio * kl if kl_by_ratio else kl)
    table = torch.zeros_like(log_probs).index_put((row, slot), losses)
    sizes = (batch_num_tokens, global_batch_size, dp_size)
    if counts == "local":
        sizes = (*aggregation_torch.local_counts(response_mask), 1)
    loss = aggregation_torch.aggregate(table, response_mask, *sizes, aggregation=aggregation, horizon=horizon)
    bound = torch.where(gain > 0, ratio > 1 + clip_high, (ratio < 1 - clip_low) & (gain < 0))
    return {"loss": loss, "clip_fraction": bound.to(ratio).sum() / max(len(ratio), 1)}


# Stages ---------------------------------------------------------------------------------------------------------------


def _log_ratio_stage(log_probs: Any, old_log_probs: Any, response_mask: Any, max_log_ratio: float) -> Any:
    from minimal.post_training import policy_torch

    return policy_torch.log_ratios(log_probs, old_log_probs, response_mask, max_log_ratio=max_log_ratio)


def _ratio_stage(log_ratio: Any) -> Any:
    from minimal.post_training import policy_torch

    return policy_torch.ratios(log_ratio)


def _token_loss_stage(
    log_probs: Any,
    ratio: Any,
    advantages: Any,
    response_mask: Any,
    ref_log_probs: Any,
    rollout_weights: Any,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    weighted: bool,
    kl_coef: float,
    kl_by_ratio: bool,
) -> Any:
    from minimal.post_training import policy_torch

    return policy_torch.token_losses(
        log_probs,
        ratio,
        advantages,
        response_mask,
        ref_log_probs,
        rollout_weights,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        weighted=weighted,
        kl_coef=kl_coef,
        kl_by_ratio=kl_by_ratio,
    )


def _loss_stage(
    token_loss: Any,
    response_mask: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    aggregation: str,
    horizon: float,
    counts: str,
) -> Any:
    from minimal.post_training import policy_torch

    sizes = batch_num_tokens, global_batch_size, dp_size
    return policy_torch.reduce_losses(
        token_loss, response_mask, *sizes, aggregation=aggregation, horizon=horizon, counts=counts
    )


STAGES = (
    Stage("log_ratio", ("B", "T"), "log pi - log pi_old, 0 where masked.", _log_ratio_stage, "nat"),
    Stage("ratio", ("B", "T"), "pi / pi_old, 1 where masked.", _ratio_stage),
    Stage("token_loss", ("B", "T"), "Loss of each token, divergence included; 0 where masked.", _token_loss_stage),
    Stage("loss", (), "The aggregated loss.", _loss_stage),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("clip_low", 0.2, (0.2, 0.1), "The range reaches down to 1 - clip_low."),
    Knob("clip_high", 0.2, (0.2, 0.28), "The range reaches up to 1 + clip_high; more than clip_low in DAPO."),
    Knob(
        "dual_clip",
        math.inf,
        (math.inf, 3.0, 1.5),
        "Bound of the ratio under a negative advantage, above 1 + clip_high: clip_ratio_c in verl, delta in TRL.",
    ),
    Knob(
        "max_log_ratio",
        math.inf,
        (math.inf, 20.0),
        "The log-ratio is kept within this: 20 in verl, no limit elsewhere.",
    ),
    Knob("weighted", False, (False, True), "Whether rollout_weights multiply the policy's part."),
    Knob("kl_coef", 0.0, (0.0, 0.04, 0.5), "Coefficient of the divergence; verl adds it elsewhere."),
    Knob("kl_by_ratio", False, (False, True), "Whether the divergence of a token is multiplied by its ratio."),
    Knob("aggregation", "token-mean", MODES, "Who counts the same; see loss-aggregation."),
    Knob("horizon", 512.0, (512.0, 8.0), "The constant of seq-mean-token-sum-norm."),
    Knob(
        "counts",
        "local",
        ("local", "global"),
        "Divided by the micro-batch's own tokens and responses, so that its gradients do not add up to the batch's, or"
        " by the counts that are given, times the ranks.",
    ),
)

INPUTS = (
    Input("log_probs", ("B", "T"), "float", "Log-probability of each token.", "nat", differentiable=True),
    Input("old_log_probs", ("B", "T"), "float", "That of the policy which wrote it, as the trainer sees it.", "nat"),
    Input("advantages", ("B", "T"), "float", "Advantage of each token; one a row in GRPO.", "reward or none"),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that count; masked slots may hold anything."),
    Input("ref_log_probs", ("B", "T"), "float", "That of the reference policy; read if kl_coef is not 0.", "nat"),
    Input("rollout_weights", ("B", "T"), "float", "Trainer's over engine's probability; read if weighted."),
    Input("batch_num_tokens", (), "int", "Tokens of the whole batch; read where counts are global.", "1"),
    Input("global_batch_size", (), "int", "Responses of the whole batch; likewise.", "1"),
    Input("dp_size", (), "int", "Data-parallel ranks; likewise.", "1"),
)

OUTPUTS = (
    Output("loss", (), "What a rank differentiates for this micro-batch."),
    Output("clip_fraction", (), "Share of the micro-batch's tokens that the range binds.", differentiable=False),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)

COVERED = dict.fromkeys(TOKENS, "response_mask")

PADS: dict[str, Any] = {**dict.fromkeys(TOKENS, -2.0), "response_mask": False}

PROBES = (
    probes.identity(
        "on-policy", "written by the policy itself: ratio 1, the plain policy gradient", _on_policy, _plain_gradient
    ),
    _of_the_loss(probes.split(AXES, "B", parts=_equal_parts)),
    probes.padding(AXES, "T", PADS),
    probes.permutation(AXES, "B"),
    probes.poison(COVERED),
    probes.poison(COVERED, value=3.0, name="fill"),
)

CONTRACT = Contract(
    name="policy-loss",
    kind="value",
    title="The clipped policy loss (PPO, GRPO)",
    doc=(
        "With r = pi / pi_old the loss of a token is -min(min(r, c) A, clip(r, 1 - low, 1 + high) A) w + beta k3, where"
        " w is the engine's importance weight and k3 = exp(d) - d - 1 with d = log ref - log pi estimates the"
        " divergence from a reference policy; c only matters for A < 0. Token losses are aggregated as in"
        " loss-aggregation. arXiv 1707.06347, 1912.09729, 2402.03300, 2503.14476."
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
    rewritings=(Rewriting("by-sign", "unmasked tokens only, each bounded by its advantage's sign", _by_sign),),
)
