"""The contract ``dpo-loss``: from the token log-probabilities of preference pairs to a loss and implicit rewards.

Bound to TRL, whose ``DPOTrainer._compute_loss`` holds fifteen losses in one method. The real method runs on a real
trainer; only its two models are stand-ins that answer with the log-probabilities of the case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog import _trl
from annotator.contracts import probes
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

if TYPE_CHECKING:
    import numpy as np
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

SCORED = ("sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft")
"""Losses that only see the margin of the scores, so that another divergence than the reverse KL makes sense."""

UNSCORED = ("nca_pair", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero", "apo_down")
"""Losses of log-ratios: each side by itself, or sorted."""

SMOOTHED = ("robust", "aot", "aot_unpaired")
"""Losses that read label smoothing and allow 0. ``exo_pair`` reads it too, and needs it."""

LOGPS = ("policy_chosen_logps", "policy_rejected_logps", "ref_chosen_logps", "ref_rejected_logps")


# Implementations ------------------------------------------------------------------------------------------------------


class _Model:
    """Stands where TRL's model with its fused head does: answers with given log-probabilities."""

    def __init__(self, logps: Any) -> None:
        self.logps = logps  # [2B, T]

    def __call__(self, *, labels: Any, **_: Any) -> Any:
        return _trl.fused_answer(self.logps, labels)


def _trl_batch(chosen_mask: Any, rejected_mask: Any) -> dict[str, Any]:
    """A batch as TRL's collator lays it out: chosen rows, then rejected rows, each after a prompt of one token."""
    import torch

    mask = torch.cat((chosen_mask, rejected_mask)).long()  # [2B, T]
    mask = torch.nn.functional.pad(mask, (1, 0))  # [2B, 1+T]
    return {"input_ids": torch.zeros_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask}


def _trl_loss(
    policy_chosen_logps: Any,
    policy_rejected_logps: Any,
    ref_chosen_logps: Any,
    ref_rejected_logps: Any,
    chosen_mask: Any,
    rejected_mask: Any,
    *,
    beta: float,
    loss_type: str,
    label_smoothing: float,
    f_divergence: str,
    ld_alpha: float,
    discopop_tau: float,
    sft_weight: float,
) -> Outputs:
    """The method returns the loss and only logs the rewards: they are read where it gathers them from all processes."""
    from unittest import mock

    import torch

    trainer = _trl.dpo_trainer()
    trainer.beta, trainer.label_smoothing, trainer.f_divergence_type = beta, label_smoothing, f_divergence
    weights = [(loss_type, 1.0), *([("sft", sft_weight)] if sft_weight else [])]
    trainer.loss_types, trainer.loss_weights = map(list, zip(*weights, strict=True))
    trainer.args.discopop_tau = discopop_tau
    trainer.ld_alpha = None if ld_alpha == 1.0 else ld_alpha
    trainer.ref_model = _Model(torch.cat((ref_chosen_logps, ref_rejected_logps)))
    policy = _Model(torch.cat((policy_chosen_logps, policy_rejected_logps)))
    gathered: list[Any] = []
    real = trainer.accelerator.gather

    def gather(tensor: Any) -> Any:
        gathered.append(tensor)
        return real(tensor)

    with _trl.run_as(trainer, policy.logps), mock.patch.object(trainer.accelerator, "gather", gather):
        loss = trainer._compute_loss(policy, _trl_batch(chosen_mask, rejected_mask), return_outputs=False)
    trainer._metrics["train"].clear()
    chosen_rewards, rejected_rewards = gathered[-6:-4]  # then: accuracies, margins, log-probabilities of both sides
    return {"loss": loss, "chosen_rewards": chosen_rewards, "rejected_rewards": rejected_rewards}


def _trl_accepts(case: Case) -> str | None:
    loss, knobs = case.knobs["loss_type"], case.knobs
    if loss in UNSCORED and knobs["f_divergence"] != "reverse_kl":
        return f"{loss} takes the reverse KL only"
    if loss == "exo_pair" and not knobs["label_smoothing"]:
        return "exo_pair asks for label smoothing"
    if loss == "robust" and not knobs["label_smoothing"] < 0.5:
        return "robust asks for label smoothing below 1/2"
    if (loss == "sft" or knobs["sft_weight"]) and not case.inputs["chosen_mask"].any():
        return "a mean over no token is not a number"
    return None


def _named(result: Any) -> Outputs:
    return dict(zip(("loss", "chosen_rewards", "rejected_rewards"), result, strict=True))


def _minimal_torch(**inputs: Any) -> Outputs:
    from minimal.post_training import dpo_torch

    return _named(dpo_torch.dpo_loss(**inputs))


def _minimal_jax(**inputs: Any) -> Outputs:
    from minimal.post_training import dpo_jax

    return _named(dpo_jax.dpo_loss(**inputs))


IMPLEMENTATIONS = (
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl_loss,
        symbols=("trl:trl.trainer.dpo_trainer.DPOTrainer._compute_loss",),
        requires=("trl",),
        accepts=_trl_accepts,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/dpo_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/dpo_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, logps: Mapping[str, Any], lengths: tuple[list[int], list[int]], **knobs: Any) -> Case:
    import numpy as np

    width = np.asarray(logps[LOGPS[0]]).shape[1]
    inputs: dict[str, np.ndarray] = {name: np.asarray(logps[name], dtype=np.float64) for name in LOGPS}
    sides = zip(("chosen_mask", "rejected_mask"), lengths, strict=True)
    inputs |= {name: np.arange(width) < np.array(side)[:, None] for name, side in sides}  # [B, T]
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random_logps(seed: int, shape: tuple[int, int], scale: float = 1.0) -> dict[str, np.ndarray]:
    """Token log-probabilities like those of text: mostly near 0, with a long tail. Masked slots are filled as well."""
    import numpy as np

    random = np.random.default_rng(seed)
    policy = {name: -random.exponential(scale, shape) for name in LOGPS[:2]}
    near = {
        f"ref{name.removeprefix('policy')}": logps - random.exponential(0.3, shape) for name, logps in policy.items()
    }
    return {**policy, **near}


def _valid_knobs(loss: str) -> dict[str, Any]:
    return {"loss_type": loss, "label_smoothing": 0.1 if loss in ("exo_pair", *SMOOTHED) else 0.0}


def _edges() -> tuple[Case, ...]:
    ragged, full = ([3, 1, 4], [2, 4, 1]), ([4, 4, 4], [4, 4, 4])
    logps = _random_logps(0, (3, 4))
    equal = {**logps, "ref_chosen_logps": logps[LOGPS[0]], "ref_rejected_logps": logps[LOGPS[1]]}
    every = tuple(_case(f"every loss: {loss}", logps, ragged, **_valid_knobs(loss)) for loss in (*SCORED, *UNSCORED))
    unsorted = [loss for loss in (*SCORED, *UNSCORED) if not loss.startswith("aot")]  # ties have no one gradient
    same = tuple(_case(f"policy is reference: {loss}", equal, ragged, **_valid_knobs(loss)) for loss in unsorted)
    scored = tuple(
        _case(f"{divergence}: {loss}", logps, ragged, **_valid_knobs(loss), f_divergence=divergence)
        for divergence in ("forward_kl", "js_divergence")
        for loss in ("sigmoid", "ipo")
    )
    single = (
        _case("no padding", logps, full),
        _case("label smoothing that the loss does not read", logps, ragged, label_smoothing=0.1),
        _case("hinge on either side of its corner", logps, ragged, loss_type="hinge", beta=0.5),
        *(_case(f"with likelihood: {x}", logps, ragged, **_valid_knobs(x), sft_weight=0.5) for x in ("sigmoid", "ipo")),
        _case("likelihood of a chosen side that is empty in a row", logps, ([0, 1, 4], [2, 4, 1]), sft_weight=1.0),
    )
    return (*every, *same, *scored, *single, *_length_edges(logps), *_margin_edges())


def _length_edges(logps: Mapping[str, Any]) -> tuple[Case, ...]:
    empty = ([0, 2, 3], [2, 0, 3])
    alone = {name: array[:1] for name, array in logps.items()}
    long = _random_logps(1, (1, 512))
    return (
        *(
            _case(f"a completion wholly masked: {loss}", logps, empty, **_valid_knobs(loss))
            for loss in ("sigmoid", "sigmoid_norm", "ipo", "sft", "bco_pair")
        ),
        _case("both completions wholly masked", alone, ([0], [0])),
        _case("one pair of one token", {name: array[:, :1] for name, array in alone.items()}, ([1], [1])),
        _case("one token against five hundred", long, ([1], [512]), beta=0.5),
        _case("one token against five hundred, averaged", long, ([1], [512]), loss_type="ipo"),
        _case("no weight beyond the shared length", logps, ([4, 1, 3], [1, 4, 3]), ld_alpha=0.0),
        _case("half weight beyond the shared length", logps, ([4, 1, 3], [1, 4, 3]), ld_alpha=0.5, loss_type="ipo"),
    )


def _margin_edges() -> tuple[Case, ...]:
    """Margins at which exp overflows and log(sigmoid) is minus infinity; the reference stays finite."""
    sides = {"lost": (-2000.0, -1.0), "won": (-1.0, -2000.0)}
    zeros = {name: [[-1.0, -1.0]] for name in LOGPS}
    return tuple(
        _case(
            f"margin of {how} thousands: {loss}",
            {**zeros, LOGPS[0]: [[chosen, -1.0]], LOGPS[1]: [[rejected, -1.0]]},
            ([2], [2]),
            **{**_valid_knobs(loss), "beta": 1.0},
        )
        for how, (chosen, rejected) in sides.items()
        for loss in ("sigmoid", "hinge", "ipo", "robust", "bco_pair", "nca_pair", "apo_zero")
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Log-probabilities come from a drawn seed, not entry by entry: ties, kinks and jumps then have no chance."""
    from hypothesis import strategies as st

    loss = draw(st.sampled_from((*SCORED, *UNSCORED)))
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    weight = draw(st.sampled_from((0.0, 0.0, 1.0, 0.5)))
    alone = loss == "sft" or weight > 0
    shortest = 1 if alone or loss.startswith("aot") else 0  # a mean over no token; ties of empty completions
    lengths = st.lists(st.integers(shortest, width), min_size=rows, max_size=rows)
    divergences = ("reverse_kl", "forward_kl", "js_divergence") if loss in SCORED else ("reverse_kl",)
    smoothing = {"exo_pair": (0.001, 0.1), "sigmoid": (0.0, 0.1), **dict.fromkeys(SMOOTHED, (0.0, 0.1))}.get(
        loss, (0.0,)
    )
    return _case(
        "",
        _random_logps(draw(st.integers(0, 2**16)), (rows, width)),
        (draw(lengths), draw(lengths)),
        beta=draw(st.sampled_from((0.1, 0.01, 0.5, 1.0))),
        loss_type=loss,
        label_smoothing=draw(st.sampled_from(smoothing)),
        f_divergence=draw(st.sampled_from(divergences)),
        ld_alpha=draw(st.sampled_from((1.0, 0.5, 0.0))),
        discopop_tau=draw(st.sampled_from((0.05, 1.0) if loss == "discopop" else (0.05,))),
        sft_weight=weight,
    )


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------

PAIR_INPUTS = (*LOGPS, "chosen_mask", "rejected_mask")


def _variant(
    *,
    tokens: Callable[[dict[str, Any]], dict[str, Any]] = lambda inputs: inputs,
    pairs: Callable[[Any], Any] = lambda pairs: pairs,
    loss: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    reduce: Callable[[Any], Any] = lambda losses: losses.mean(),
    likelihood: Callable[[Any], Any] | None = None,
    combine: Callable[[Any, Any, float], Any] = lambda preference, nll, weight: preference + weight * nll,
    reward_scale: Callable[[float], float] = lambda beta: beta,
    **given: Any,
) -> Outputs:
    """The loss with one part replaced. A part left out is the right one, from the minimal version."""
    from minimal.post_training import dpo_torch as right

    inputs = tokens({name: given[name] for name in PAIR_INPUTS})
    found = right.collect_pairs(**inputs, f_divergence=given["f_divergence"], ld_alpha=given["ld_alpha"])
    seen = pairs(found)
    options = right.Options(given["beta"], given["label_smoothing"], given["discopop_tau"])
    losses = {**right.LOSSES, **(loss or {})}[given["loss_type"]](seen, options)
    total = combine(reduce(losses), (likelihood or right.chosen_nll)(seen), given["sft_weight"])
    scale = reward_scale(given["beta"])
    return _named((total, (scale * seen.h_w).detach(), (scale * seen.h_l).detach()))


def _logsigmoid(x: Any) -> Any:
    import torch

    return torch.nn.functional.logsigmoid(x)


def _everywhere(inputs: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {**inputs, **{name: torch.ones_like(inputs[name]) for name in ("chosen_mask", "rejected_mask")}}


def _interchanged(pairs: Any) -> Any:
    return pairs._replace(
        w=pairs.l, l=pairs.w, ref_w=pairs.ref_l, ref_l=pairs.ref_w, score_w=pairs.score_l, score_l=pairs.score_w
    )


def _averaged(pairs: Any) -> Any:
    """Every log-probability divided by its completion's length."""
    n_w, n_l = pairs.length_w.clamp(min=1), pairs.length_l.clamp(min=1)
    return pairs._replace(
        w=pairs.w / n_w,
        l=pairs.l / n_l,
        ref_w=pairs.ref_w / n_w,
        ref_l=pairs.ref_l / n_l,
        score_w=pairs.score_w / n_w,
        score_l=pairs.score_l / n_l,
    )


def _without_reference(inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, **{name: inputs[name] * 0 for name in LOGPS[2:]}}


def _rejected_detached(inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, LOGPS[1]: inputs[LOGPS[1]].detach()}


def _weight_on_preference(preference: Any, nll: Any, weight: float) -> Any:
    return weight * preference + nll if weight else preference


DEVIATIONS = (
    Deviation(
        name="weight-on-preference",
        wrong="RPO's weight multiplies the preference term",
        right="the likelihood of the chosen",
        call=functools.partial(_variant, combine=_weight_on_preference),
        seen_in="TRL #1868, #1904",
        zoo=20,
        stage="loss",
    ),
    Deviation(
        name="likelihood-by-completion",
        wrong="the likelihood averaged over each chosen completion first",
        right="one mean over all chosen tokens of the batch",
        call=functools.partial(_variant, likelihood=lambda p: (p.nll_w / p.length_w.clamp(min=1)).mean()),
        stage="loss",
    ),
    Deviation(
        name="likelihood-summed",
        wrong="the likelihood of a whole completion, summed over its tokens",
        right="averaged over tokens",
        call=functools.partial(_variant, likelihood=lambda p: p.nll_w.mean()),
        stage="loss",
    ),
    Deviation(
        name="likelihood-subtracted",
        wrong="the chosen log-likelihood with its own sign: the chosen is made unlikely",
        right="its negative",
        call=functools.partial(_variant, combine=lambda preference, nll, weight: preference - weight * nll),
        stage="loss",
    ),
    Deviation(
        name="ipo-sums-tokens",
        wrong="IPO on log-ratios summed over tokens",
        right="on their average",
        call=functools.partial(_variant, loss={"ipo": lambda p, o: (p.margin - 1 / (2 * o.beta)) ** 2}),
        seen_in="TRL #1265",
        zoo=19,
        stage="pair_losses",
    ),
    Deviation(
        name="ipo-target",
        wrong="IPO's target is 1/tau",
        right="1/(2 tau)",
        call=functools.partial(_variant, loss={"ipo": lambda p, o: (p.margin_per_token - 1 / o.beta) ** 2}),
        stage="pair_losses",
    ),
    Deviation(
        name="sides-interchanged",
        wrong="chosen and rejected interchanged: the margin has the wrong sign",
        right="chosen minus rejected",
        call=functools.partial(_variant, pairs=_interchanged),
        stage="margin",
    ),
    Deviation(
        name="pads-summed",
        wrong="padding takes part in the sums",
        right="masked",
        call=functools.partial(_variant, tokens=_everywhere),
        seen_in="axolotl #1616",
        zoo=22,
        stage="chosen_logratios",
    ),
    Deviation(
        name="rejected-mask-of-chosen",
        wrong="the rejected completion under the chosen one's mask",
        right="each under its own",
        call=functools.partial(_variant, tokens=lambda x: {**x, "rejected_mask": x["chosen_mask"]}),
        stage="rejected_logratios",
    ),
    Deviation(
        name="no-reference",
        wrong="log-probabilities of the policy alone",
        right="log-ratios to the reference model",
        call=functools.partial(_variant, tokens=_without_reference),
        stage="chosen_logratios",
    ),
    Deviation(
        name="rejected-detached",
        wrong="no gradient through the rejected completion; every value is right",
        right="both sides carry gradients",
        call=functools.partial(_variant, tokens=_rejected_detached),
        stage="rejected_logratios",
    ),
    Deviation(
        name="averaged-over-tokens",
        wrong="log-probabilities averaged over tokens for every loss",
        right="summed, unless the loss says otherwise",
        call=functools.partial(_variant, pairs=_averaged),
        stage="chosen_logratios",
    ),
    Deviation(
        name="beta-outside",
        wrong="beta times the loss of the bare margin",
        right="beta inside the sigmoid",
        call=functools.partial(_variant, loss={"sigmoid": lambda p, o: -o.beta * _logsigmoid(p.margin)}),
        stage="pair_losses",
    ),
    Deviation(
        name="hinge-without-beta",
        wrong="max(0, 1 - margin)",
        right="max(0, 1 - beta margin)",
        call=functools.partial(_variant, loss={"hinge": lambda p, o: (1 - p.margin).relu()}),
        stage="pair_losses",
    ),
    Deviation(
        name="unstable-log-sigmoid",
        wrong="log(sigmoid(x)), minus infinity at large negative x",
        right="a stable log-sigmoid",
        call=functools.partial(_variant, loss={"sigmoid": lambda p, o: -(o.beta * p.margin).sigmoid().log()}),
        stage="pair_losses",
    ),
    Deviation(
        name="smoothed-sigmoid",
        wrong="label smoothing read by the plain sigmoid loss",
        right="by robust, exo_pair and aot only",
        call=functools.partial(
            _variant,
            loss={
                "sigmoid": lambda p, o: (
                    -(1 - o.label_smoothing) * _logsigmoid(o.beta * p.margin)
                    - o.label_smoothing * _logsigmoid(-o.beta * p.margin)
                )
            },
        ),
        stage="pair_losses",
    ),
    Deviation(
        name="loss-halved",
        wrong="mean over 2B completions",
        right="over B pairs",
        call=functools.partial(_variant, reduce=lambda losses: losses.mean() / 2),
        stage="loss",
    ),
    Deviation(
        name="loss-summed",
        wrong="sum over the pairs",
        right="mean",
        call=functools.partial(_variant, reduce=lambda losses: losses.sum()),
        stage="loss",
    ),
    Deviation(
        name="rewards-without-beta",
        wrong="log-ratios logged as rewards",
        right="beta times the log-ratio",
        call=functools.partial(_variant, reward_scale=lambda beta: 1.0),
        stage="chosen_rewards",
    ),
    Deviation(
        name="bco-of-margin",
        wrong="both sides of BCO classified by the margin",
        right="each by its own log-ratio",
        call=functools.partial(_variant, loss={"bco_pair": lambda p, o: -2 * _logsigmoid(o.beta * p.margin)}),
        stage="pair_losses",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _logratios(policy: Any, ref: Any, mask: Any, other: Any, ld_alpha: float) -> Any:
    from minimal.post_training import dpo_torch as right

    shared = right.shared_length(mask, other)
    return right.sequence_logps(policy, mask, shared, ld_alpha) - right.sequence_logps(ref, mask, shared, ld_alpha)


def _stage_chosen(
    policy_chosen_logps: Any, ref_chosen_logps: Any, chosen_mask: Any, rejected_mask: Any, ld_alpha: float
) -> Any:
    return _logratios(policy_chosen_logps, ref_chosen_logps, chosen_mask, rejected_mask, ld_alpha)


def _stage_rejected(
    policy_rejected_logps: Any, ref_rejected_logps: Any, rejected_mask: Any, chosen_mask: Any, ld_alpha: float
) -> Any:
    return _logratios(policy_rejected_logps, ref_rejected_logps, rejected_mask, chosen_mask, ld_alpha)


def _stage_margin(chosen_logratios: Any, rejected_logratios: Any, f_divergence: str) -> Any:
    from minimal.post_training import dpo_torch as right

    return right.divergence_scores(chosen_logratios, f_divergence) - right.divergence_scores(
        rejected_logratios, f_divergence
    )


def _stage_pair_losses(
    chosen_logratios: Any,
    rejected_logratios: Any,
    policy_chosen_logps: Any,
    policy_rejected_logps: Any,
    ref_chosen_logps: Any,
    ref_rejected_logps: Any,
    chosen_mask: Any,
    rejected_mask: Any,
    beta: float,
    loss_type: str,
    label_smoothing: float,
    f_divergence: str,
    ld_alpha: float,
    discopop_tau: float,
) -> Any:
    """The pairs are put together from the log-ratios given: those of the policy are what is above the reference's."""
    from minimal.post_training import dpo_torch as right

    given = (policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps)
    pairs = right.collect_pairs(*given, chosen_mask, rejected_mask, f_divergence=f_divergence, ld_alpha=ld_alpha)
    pairs = pairs._replace(
        w=chosen_logratios + pairs.ref_w,
        l=rejected_logratios + pairs.ref_l,
        score_w=right.divergence_scores(chosen_logratios, f_divergence),
        score_l=right.divergence_scores(rejected_logratios, f_divergence),
    )
    return right.LOSSES[loss_type](pairs, right.Options(beta, label_smoothing, discopop_tau))


def _stage_loss(pair_losses: Any, policy_chosen_logps: Any, chosen_mask: Any, sft_weight: float) -> Any:
    tokens = policy_chosen_logps.masked_fill(~chosen_mask, 0)
    return pair_losses.mean() - sft_weight * tokens.sum() / chosen_mask.sum().clamp(min=1)


STAGES = (
    Stage("chosen_logratios", ("B",), "log-ratio of the chosen completion, policy to reference", _stage_chosen, "nat"),
    Stage("rejected_logratios", ("B",), "the same of the rejected one", _stage_rejected, "nat"),
    Stage("margin", ("B",), "difference of the scores, before beta", _stage_margin, "nat"),
    Stage("pair_losses", ("B",), "loss of each pair", _stage_pair_losses, "nat"),
    Stage("loss", (), "their mean, and the likelihood term", _stage_loss, "nat"),
)


def _ratios_by_token(**given: Any) -> Outputs:
    """Both sides stacked, as a forward pass sees them; log-ratios token by token, weighted, then summed."""
    import torch

    from minimal.post_training import dpo_torch as right

    policy, ref = torch.cat([given[name] for name in LOGPS[:2]]), torch.cat([given[name] for name in LOGPS[2:]])
    mask = torch.cat((given["chosen_mask"], given["rejected_mask"]))  # [2B, T]
    length = mask.sum(dim=1)
    shared = torch.stack(length.chunk(2)).amin(dim=0).repeat(2)[:, None]
    weight = torch.where(mask.cumsum(dim=1) > shared, given["ld_alpha"], 1.0).to(policy)
    h = ((policy - ref).masked_fill(~mask, 0) * weight).sum(dim=1)
    base = (ref.masked_fill(~mask, 0) * weight).sum(dim=1)
    score = right.divergence_scores(h, given["f_divergence"])
    nll = -policy.masked_fill(~mask, 0).sum(dim=1).chunk(2)[0]
    two = [part for vector in (h + base, base, score, length.to(h)) for part in vector.chunk(2)]
    pairs = right.Pairs(*two[:6], nll, *two[6:])
    options = right.Options(given["beta"], given["label_smoothing"], given["discopop_tau"])
    loss = right.LOSSES[given["loss_type"]](pairs, options).sum() / len(nll)
    loss = loss + given["sft_weight"] * nll.sum() / pairs.length_w.sum().clamp(min=1)
    rewards = (given["beta"] * h.detach()).chunk(2)
    return _named((loss, *rewards))


REWRITINGS = (
    Rewriting(
        "ratios-by-token", "both sides stacked, log-ratios taken token by token and then summed", _ratios_by_token
    ),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("beta", 0.1, (0.1, 0.01, 0.5, 1.0), "Strength of the tie to the reference model; tau in IPO."),
    Knob("loss_type", "sigmoid", (*SCORED, *UNSCORED), "Which loss of the family."),
    Knob("label_smoothing", 0.0, (0.0, 0.001, 0.1), "Share of flipped labels; read by robust, exo_pair and aot only."),
    Knob("f_divergence", "reverse_kl", ("reverse_kl", "forward_kl", "js_divergence"), "Divergence behind the scores."),
    Knob("ld_alpha", 1.0, (1.0, 0.5, 0.0), "Weight of tokens beyond the length that both completions reach (LD-DPO)."),
    Knob("discopop_tau", 0.05, (0.05, 1.0), "Temperature of DiscoPOP's gate."),
    Knob(
        "sft_weight",
        0.0,
        (0.0, 1.0, 0.5),
        "Weight of the chosen tokens' negative log-likelihood beside the loss (RPO).",
    ),
)


def _logps(name: str, doc: str, *, differentiable: bool = False) -> Input:
    return Input(name, ("B", "T"), "float", doc, "nat", differentiable)


INPUTS = (
    _logps("policy_chosen_logps", "Log-probability of each token of the chosen completion.", differentiable=True),
    _logps("policy_rejected_logps", "The same of the rejected completion.", differentiable=True),
    _logps("ref_chosen_logps", "The reference model's, of the chosen completion."),
    _logps("ref_rejected_logps", "The reference model's, of the rejected completion."),
    Input("chosen_mask", ("B", "T"), "bool", "True at real tokens of the chosen completion."),
    Input("rejected_mask", ("B", "T"), "bool", "True at real tokens of the rejected completion."),
)

OUTPUTS = (
    Output("loss", (), "Mean loss of the pairs, and the likelihood term if it has a weight.", "nat"),
    Output("chosen_rewards", ("B",), "Implicit reward of the chosen completion, beta h; carries no gradient."),
    Output("rejected_rewards", ("B",), "Implicit reward of the rejected completion, beta h; carries no gradient."),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)
SIDES = ("chosen_mask", "rejected_mask")
OF_THE_BATCH = ("sft", "aot", "aot_unpaired")
"""Losses of the batch, not of its pairs: a mean over its tokens, an order of its rows."""


def _micro_batches(run: Runner, case: Case) -> float | None:
    """The loss of the batch against those of its first pair and of the rest, each weighted by its number of pairs."""
    import numpy as np

    size = len(case.inputs["chosen_mask"])
    if size < 2 or case.knobs["loss_type"] in OF_THE_BATCH or case.knobs["sft_weight"]:
        return None
    whole = run(case)
    cut = [run(Case({n: a[rows] for n, a in case.inputs.items()}, case.knobs)) for rows in (slice(1), slice(1, None))]
    share = (1 / size, 1 - 1 / size)
    loss = sum(weight * part.outputs["loss"] for weight, part in zip(share, cut, strict=True))
    worst = error(np.asarray(loss), whole.outputs["loss"])
    for name, array in whole.gradients.items():
        joined = np.concatenate([weight * part.gradients[name] for weight, part in zip(share, cut, strict=True)])
        worst = max(worst, error(joined, array))
    return worst


PROBES = (
    probes.poison({name: f"{name.split('_')[1]}_mask" for name in LOGPS}),
    probes.padding(AXES, "T", {**dict.fromkeys(LOGPS, -1.0), **dict.fromkeys(SIDES, False)}),
    probes.permutation(AXES, "B"),
    Probe("split", "the loss of the batch is the mean over its micro-batches, weighted by pairs", _micro_batches),
)

CONTRACT = Contract(
    name="dpo-loss",
    kind="value",
    title="Direct preference optimisation and its relatives",
    doc=(
        "With h = log pi(y) - log pi_ref(y), summed over the real tokens of a completion, DPO's loss is the mean over"
        " pairs of -log sigmoid(beta (h_chosen - h_rejected)); its relatives ask something else of the same h. The"
        " rewards beta h are logged, without gradient. Completions are right-padded; masked slots may hold anything"
        " finite. With sft_weight, the mean negative log-likelihood of the chosen tokens is added (RPO)."
        " arXiv 2305.18290; IPO 2310.12036; RPO 2404.19733."
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
    rewritings=REWRITINGS,
)
