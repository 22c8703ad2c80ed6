"""The contract ``orpo-loss``: likelihood of the chosen completion, and the odds ratio of chosen and rejected.

Bound to TRL, whose experimental trainer holds the method, and to Liger's fused layer. TRL's ``get_batch_loss_metrics``
runs whole on a real trainer: the forward pass over both sides, the shift and the masks of the labels, the average, the
odds and the cross entropy. Only the model is a stand-in, with a vocabulary of two words: one has the log-probability of
the case, the other the rest. Liger starts from such logits too, and takes log(1 - p) by ``log1p(-exp(x))``, which
cancels as much as what it stands for: where a model is nearly certain, its float32 is far off, and so is its bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from annotator import pins
from annotator.catalog import _trl
from annotator.catalog._third_party import quiet
from annotator.contracts import probes
from annotator.contracts.model import (
    Case,
    Contract,
    Deviation,
    Implementation,
    Input,
    Knob,
    Output,
    Rewriting,
    Stage,
)

if TYPE_CHECKING:
    import numpy as np
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

LOGPS = ("policy_chosen_logps", "policy_rejected_logps")
MASKS = ("chosen_attention", "chosen_mask", "rejected_mask")


# Implementations ------------------------------------------------------------------------------------------------------


@functools.cache
def _trainer() -> Any:
    """A real ``ORPOTrainer`` of the pin on the CPU. Built once; nothing of it is called that needs its columns."""
    with _trl._workshop() as arguments:
        from datasets import Dataset

        orpo = pins.load("trl:trl.experimental.orpo.orpo_trainer")
        config = pins.load("trl:trl.experimental.orpo.orpo_config").ORPOConfig
        return orpo.ORPOTrainer(
            model=_trl._model(),
            args=config(**arguments),
            train_dataset=Dataset.from_dict({"prompt": ["a"], "chosen": ["b"], "rejected": ["a"]}),
            processing_class=_trl._tokenizer(),
        )


class _Model:
    """Stands where the language model does: in each slot word 0 has the given log-probability, word 1 the rest."""

    def __init__(self, logps: Any) -> None:
        self.logps = logps  # [2B, T]

    def __call__(self, *_: Any, **__: Any) -> Any:
        import torch

        logits = _trl.two_words(self.logps)  # [2B, T, 2]
        return SimpleNamespace(logits=torch.nn.functional.pad(logits, (0, 0, 0, 1)))  # [2B, T+1, 2]


def _side(name: str, attention: Any, mask: Any) -> dict[str, Any]:
    """One side of a batch as TRL's collator lays it out; every token is word 0, and the first is not predicted."""
    import torch

    seen = torch.nn.functional.pad(attention.long(), (1, 0), value=1)  # [B, 1+T]
    labels = torch.nn.functional.pad(mask.long() - 1, (1, 0), value=-1) * 100  # [B, 1+T]; -100 where not of it
    return {f"{name}_input_ids": seen * 0, f"{name}_attention_mask": seen, f"{name}_labels": labels}


def _trl_loss(
    policy_chosen_logps: Any,
    policy_rejected_logps: Any,
    chosen_attention: Any,
    chosen_mask: Any,
    rejected_mask: Any,
    *,
    beta: float,
    nll_over: str,
) -> Outputs:
    """The gathered log-probabilities are given exactly: through a softmax, one near 0 would lose its digits.

    The rewards are read where the odds ratio's method returns them; only their means are logged.
    """
    from unittest import mock

    import torch

    trainer = _trainer()
    trainer.beta = beta
    logps = torch.cat((policy_chosen_logps, policy_rejected_logps))  # [2B, T]
    batch = _side("chosen", chosen_attention, chosen_mask) | _side("rejected", rejected_mask, rejected_mask)
    returned: list[Any] = []
    real = trainer.odds_ratio_loss

    def odds_ratio_loss(*arguments: Any) -> Any:
        returned.append(real(*arguments))
        return returned[-1]

    with (
        _trl.run_as(trainer, logps),
        mock.patch.object(_module(trainer), "selective_log_softmax", return_value=logps),
        mock.patch.object(trainer, "odds_ratio_loss", odds_ratio_loss),
    ):
        loss, _ = trainer.get_batch_loss_metrics(_Model(logps), batch)
    return _named((loss, *returned[0][1:3]))


@functools.cache
def _liger() -> Any:
    with quiet():
        return pins.load("liger-kernel:liger_kernel.chunked_loss.orpo_loss").LigerFusedLinearORPOLoss


def _liger_loss(
    policy_chosen_logps: Any,
    policy_rejected_logps: Any,
    chosen_attention: Any,
    chosen_mask: Any,
    rejected_mask: Any,
    *,
    beta: float,
    nll_over: str,
) -> Outputs:
    """The whole layer, uncompiled, with the identity for a head: its input then is the logits of the two words."""
    import torch

    logits = _Model(torch.cat((policy_chosen_logps, policy_rejected_logps)))().logits[:, :-1]  # [2B, T, 2]
    labels = (torch.cat((chosen_mask, rejected_mask)).long() - 1) * 100  # [2B, T]; -100 where not of it
    learned = (torch.cat((chosen_attention, rejected_mask)).long() - 1) * 100
    layer = _liger()(beta=beta, compiled=False)
    nll_target = learned if nll_over == "sequence" else None
    loss, logged = layer(torch.eye(2).to(logits), logits, labels, nll_target=nll_target)
    return _named((loss, *logged[5:7]))


def _module(trainer: Any) -> Any:
    import sys

    return sys.modules[type(trainer).__module__]


def _named(result: Any) -> Outputs:
    return dict(zip(("loss", "chosen_rewards", "rejected_rewards"), result, strict=True))


def _minimal_torch(**inputs: Any) -> Outputs:
    from minimal.post_training import orpo_torch

    return _named(orpo_torch.orpo_loss(**inputs))


def _minimal_jax(**inputs: Any) -> Outputs:
    from minimal.post_training import orpo_jax

    return _named(orpo_jax.orpo_loss(**inputs))


def oracle(
    policy_chosen_logps: np.ndarray,
    policy_rejected_logps: np.ndarray,
    chosen_attention: np.ndarray,
    chosen_mask: np.ndarray,
    rejected_mask: np.ndarray,
    *,
    beta: float,
    nll_over: str,
) -> Outputs:
    """The paper's equations 4, 6 and 7 in NumPy, pair by pair: TRL computes the odds in float32 always."""
    import numpy as np

    chosen = np.array([row[kept].mean() for row, kept in zip(policy_chosen_logps, chosen_mask, strict=True)])
    rejected = np.array([row[kept].mean() for row, kept in zip(policy_rejected_logps, rejected_mask, strict=True)])
    ratio = _log_odds(chosen) - _log_odds(rejected)
    learned = chosen_attention if nll_over == "sequence" else chosen_mask
    loss = -policy_chosen_logps[learned].mean() + beta * np.logaddexp(0.0, -ratio).mean()
    return _named((loss, beta * chosen, beta * rejected))


def _log_odds(log_p: np.ndarray) -> np.ndarray:
    """log p / (1 - p), by expm1 and log1p."""
    import numpy as np

    with np.errstate(divide="ignore"):
        near, far = np.log(-np.expm1(log_p)), np.log1p(-np.exp(log_p))
    odds: np.ndarray = log_p - np.where(log_p > -1, near, far)
    return odds


IMPLEMENTATIONS = (
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl_loss,
        symbols=(
            "trl:trl.experimental.orpo.orpo_trainer.ORPOTrainer.get_batch_loss_metrics",
            "trl:trl.experimental.orpo.orpo_trainer.ORPOTrainer.concatenated_forward",
            "trl:trl.experimental.orpo.orpo_trainer.ORPOTrainer.get_batch_logps",
            "trl:trl.experimental.orpo.orpo_trainer.ORPOTrainer.odds_ratio_loss",
            "trl:trl.experimental.orpo.orpo_trainer.log1mexp",
        ),
        dialect={"nll_over": "sequence"},
        requires=("trl",),
        dtypes=("float32",),  # odds_ratio_loss casts to float32, whatever it is given
        breaks=("poison",),  # a masked log-probability is multiplied by 0
    ),
    Implementation(
        name="liger",
        role="reference",
        backend="torch",
        call=_liger_loss,
        symbols=(
            "liger-kernel:liger_kernel.chunked_loss.orpo_loss.LigerFusedLinearORPOFunction",
            "liger-kernel:liger_kernel.chunked_loss.fused_linear_preference.LigerFusedLinearPreferenceBase",
        ),
        requires=("liger-kernel",),
        dtypes=("float32",),  # its log-softmax casts
        # A masked log-probability is multiplied by 0; where float32 rounds p to 1, the odds are lost.
        breaks=("poison", "poison-finite", "even-odds"),
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/orpo_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/orpo_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(
    label: str, logps: tuple[Any, Any], prompt: list[int], lengths: tuple[list[int], list[int]], **knobs: Any
) -> Case:
    """Rows are a prompt, a completion and padding: ``prompt`` and ``lengths`` count the tokens of each row."""
    import numpy as np

    inputs: dict[str, np.ndarray] = {
        name: np.asarray(side, dtype=np.float64) for name, side in zip(LOGPS, logps, strict=True)
    }
    slots, start = np.arange(inputs[LOGPS[0]].shape[1]), np.array(prompt)[:, None]
    ends = [start + np.array(length)[:, None] for length in lengths]
    inputs["chosen_attention"] = slots < ends[0]  # [B, T]
    inputs["chosen_mask"] = (start <= slots) & (slots < ends[0])  # [B, T]
    inputs["rejected_mask"] = (start <= slots) & (slots < ends[1])  # [B, T]
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random_logps(seed: int, shape: tuple[int, int], scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Token log-probabilities below 0, masked slots too; a small ``scale`` makes the model nearly certain."""
    import numpy as np

    random = np.random.default_rng(seed)
    chosen, rejected = (-scale * (0.05 + random.exponential(1.0, shape)) for _ in range(2))
    return chosen, rejected


def _edges() -> tuple[Case, ...]:
    logps, prompt, lengths = _random_logps(0, (3, 6)), [2, 0, 1], ([3, 1, 4], [2, 4, 1])
    full = ([4, 6, 5], [4, 6, 5])
    alone = tuple(side[:1] for side in logps)
    long = _random_logps(1, (1, 256))
    one = ([[-1.0]], [[-2.0]])
    return (
        _case("no padding", logps, prompt, full),
        _case("ragged, prompts of several lengths", logps, prompt, lengths),
        _case("no prompt", logps, [0, 0, 0], lengths),
        _case("likelihood of the completion alone", logps, prompt, lengths, nll_over="completion"),
        _case("one pair", alone, [1], ([2], [3])),  # type: ignore[arg-type]
        _case("one pair of one token", one, [0], ([1], [1])),
        _case("both sides alike", (logps[0], logps[0]), prompt, (lengths[0], lengths[0])),
        _case("one token against two hundred", long, [0], ([1], [256])),
        _case("beta of 0: likelihood alone", logps, prompt, lengths, beta=0.0),
        *_certain(),
    )


CERTAIN = ([[-4.3e-8, -4.7e-8], [-5.1e-8, -1e-7]], [[-7.7e-8, -8.3e-8], [-6.1e-8, -9.7e-8]])
"""Just within TRL's reach: above -3e-8, exp rounds to 1 in float32 and the gradient is 0 times infinity."""


def _certain() -> tuple[Case, ...]:
    """Probabilities near 1, where 1 - p cancels, and near 0, where it is 1."""
    sizes = {"one in a thousand": 1e-3, "one in a million": 1e-6}
    prompt, lengths = [1, 0], ([2, 1], [1, 3])
    sure, lost = [[-1.0, -1e-5, -2e-5]], [[-1.0, -80.0, -90.0]]
    return (
        *(
            _case(f"all but {left} certain", _random_logps(2, (2, 4), size), prompt, lengths, beta=beta)
            for left, size in sizes.items()
            for beta in (0.1, 1.0)
        ),
        _case("all but one in ten million certain", CERTAIN, [0, 0], ([2, 1], [1, 2]), beta=1.0),
        _case("chosen certain, rejected hopeless", (sure, lost), [1], ([2], [2]), beta=1.0),
        _case("chosen hopeless, rejected certain", (lost, sure), [1], ([2], [2]), beta=1.0),
        _case("around one half", ([[-0.6875, -0.75]], [[-0.6875, -0.6875]]), [0], ([2], [2]), beta=1.0),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Log-probabilities come from a drawn seed, not entry by entry."""
    from hypothesis import strategies as st

    rows, width = draw(st.integers(1, 3)), draw(st.sampled_from((2, 4, 6)))
    prompt = draw(st.lists(st.integers(0, width - 1), min_size=rows, max_size=rows))
    lengths = tuple([draw(st.integers(1, width - start)) for start in prompt] for _ in range(2))
    scale = draw(st.sampled_from((1.0, 0.01, 1e-4)))
    return _case(
        "",
        _random_logps(draw(st.integers(0, 2**16)), (rows, width), scale),
        prompt,
        lengths,  # type: ignore[arg-type]
        beta=draw(st.sampled_from((0.1, 0.25, 1.0))),
        nll_over=draw(st.sampled_from(("sequence", "completion"))),
    )


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    *,
    tokens: Callable[[dict[str, Any]], dict[str, Any]] = lambda inputs: inputs,
    average: Callable[[Any, Any], Any] | None = None,
    graph: Callable[[Any, Any], tuple[Any, Any]] = lambda chosen, rejected: (chosen, rejected),
    rest: Callable[[Any], Any] | None = None,
    odds: Callable[[Any, Any, Any, Any], Any] = lambda w, r, rest_w, rest_r: w - r - (rest_w - rest_r),
    pair: Callable[[Any, float], Any] = lambda log_odds, beta: beta * _softplus(-log_odds),
    reduce: Callable[[Any], Any] = lambda losses: losses.mean(),
    likelihood: Callable[[dict[str, Any], Any], Any] | None = None,
    combine: Callable[[Any, Any, float], Any] = lambda nll, ratio, beta: nll + ratio,
    reward_scale: Callable[[float], float] = lambda beta: beta,
    **given: Any,
) -> Outputs:
    """The loss with one part replaced. A part left out is the right one, from the minimal version."""
    from minimal.post_training import orpo_torch as right

    beta, inputs = given["beta"], tokens({name: given[name] for name in (*LOGPS, *MASKS)})
    averages = average or right.average_logps
    chosen = averages(inputs[LOGPS[0]], inputs["chosen_mask"])  # [B]
    rejected = averages(inputs[LOGPS[1]], inputs["rejected_mask"])  # [B]
    w, r = graph(chosen, rejected)
    minus = rest or right.log_one_minus_exp
    ratio = reduce(pair(odds(w, r, minus(w), minus(r)), beta))
    learned = inputs["chosen_attention"] if given["nll_over"] == "sequence" else inputs["chosen_mask"]
    nll = (likelihood or _likelihood)(inputs, learned)
    scale = reward_scale(beta)
    return _named((combine(nll, ratio, beta), (scale * chosen).detach(), (scale * rejected).detach()))


def _softplus(x: Any) -> Any:
    """-log sigmoid(-x)."""
    import torch

    return -torch.nn.functional.logsigmoid(-x)


def _likelihood(inputs: dict[str, Any], learned: Any) -> Any:
    from minimal.post_training import orpo_torch as right

    return right.negative_log_likelihood(inputs[LOGPS[0]], learned)


def _summed(logps: Any, mask: Any) -> Any:
    return logps.masked_fill(~mask, 0).sum(dim=1)


def _over_everything(logps: Any, mask: Any) -> Any:
    return logps.mean(dim=1)


def _over_width(logps: Any, mask: Any) -> Any:
    return _summed(logps, mask) / mask.shape[1]


def _row_means(inputs: dict[str, Any], learned: Any) -> Any:
    """Each sequence's own mean first."""
    return -(_summed(inputs[LOGPS[0]], learned) / learned.sum(dim=1)).mean()


def _of_both_sides(inputs: dict[str, Any], learned: Any) -> Any:
    total = _summed(inputs[LOGPS[0]], learned).sum() + _summed(inputs[LOGPS[1]], inputs["rejected_mask"]).sum()
    return -total / (learned.sum() + inputs["rejected_mask"].sum())


DEVIATIONS = (
    Deviation(
        name="odds-outside-graph",
        wrong="the odds ratio is computed of detached log-probabilities: it is logged and trains nothing",
        right="gradients flow through both sides",
        call=functools.partial(_variant, graph=lambda w, r: (w.detach(), r.detach())),
        seen_in="mlx-lm-lora #65",
        zoo=21,
        stage="chosen_averages",
    ),
    Deviation(
        name="one-minus-p-cancels",
        wrong="log(1 - exp(x)), whose difference cancels where the model is nearly certain",
        right="log(-expm1(x)) near 0, log1p(-exp(x)) far from it",
        call=functools.partial(_variant, rest=lambda x: (1 - x.exp()).log()),
        seen_in="TRL #3237, #4763",
        zoo=21,
        stage="log_odds",
    ),
    Deviation(
        name="rejected-detached",
        wrong="no gradient through the rejected completion; every value is right",
        right="both sides carry gradients",
        call=functools.partial(_variant, graph=lambda w, r: (w, r.detach())),
        stage="rejected_averages",
    ),
    Deviation(
        name="summed-over-tokens",
        wrong="the odds of a whole completion's probability: log-probabilities summed over its tokens",
        right="averaged: p is the geometric mean over tokens",
        call=functools.partial(_variant, average=_summed),
        stage="chosen_averages",
    ),
    Deviation(
        name="padding-averaged",
        wrong="prompt and padding take part in the average",
        right="the completion's real tokens alone",
        call=functools.partial(_variant, average=_over_everything),
        stage="chosen_averages",
    ),
    Deviation(
        name="divided-by-width",
        wrong="the sum divided by the padded width",
        right="by the number of real tokens",
        call=functools.partial(_variant, average=_over_width),
        stage="chosen_averages",
    ),
    Deviation(
        name="probability-ratio",
        wrong="the ratio of probabilities",
        right="of odds: log(1 - p) belongs to it",
        call=functools.partial(_variant, odds=lambda w, r, rest_w, rest_r: w - r),
        stage="log_odds",
    ),
    Deviation(
        name="complement-added",
        wrong="log p + log(1 - p)",
        right="log p - log(1 - p)",
        call=functools.partial(_variant, odds=lambda w, r, rest_w, rest_r: w - r + (rest_w - rest_r)),
        stage="log_odds",
    ),
    Deviation(
        name="odds-interchanged",
        wrong="rejected over chosen",
        right="chosen over rejected",
        call=functools.partial(_variant, odds=lambda w, r, rest_w, rest_r: r - w - (rest_r - rest_w)),
        stage="log_odds",
    ),
    Deviation(
        name="odds-of-probabilities",
        wrong="the odds ratio itself in the sigmoid",
        right="its logarithm",
        call=functools.partial(_variant, odds=lambda w, r, rest_w, rest_r: (w - r - (rest_w - rest_r)).exp()),
        stage="log_odds",
    ),
    Deviation(
        name="beta-inside",
        wrong="log sigmoid(beta log OR), as in DPO",
        right="beta log sigmoid(log OR)",
        call=functools.partial(_variant, pair=lambda log_odds, beta: _softplus(-beta * log_odds)),
        stage="loss",
    ),
    Deviation(
        name="ratio-subtracted",
        wrong="the odds ratio's loss is subtracted: TRL's method returns it negative, and it is negated once more",
        right="it is added",
        call=functools.partial(_variant, combine=lambda nll, ratio, beta: nll - ratio),
        stage="loss",
    ),
    Deviation(
        name="beta-on-likelihood",
        wrong="beta times the likelihood term",
        right="beta times the odds ratio's",
        call=functools.partial(
            _variant,
            combine=lambda nll, ratio, beta: beta * nll + ratio,
            pair=lambda log_odds, beta: _softplus(-log_odds),
        ),
        stage="loss",
    ),
    Deviation(
        name="summed-over-pairs",
        wrong="the odds ratio's loss summed over the pairs",
        right="their mean",
        call=functools.partial(_variant, reduce=lambda losses: losses.sum()),
        stage="loss",
    ),
    Deviation(
        name="likelihood-by-sequence",
        wrong="the likelihood averaged over each sequence first",
        right="one mean over all tokens of the batch",
        call=functools.partial(_variant, likelihood=_row_means),
        stage="nll",
    ),
    Deviation(
        name="likelihood-of-both",
        wrong="the rejected completion is learned too",
        right="the chosen side alone",
        call=functools.partial(_variant, likelihood=_of_both_sides),
        stage="nll",
    ),
    Deviation(
        name="likelihood-summed",
        wrong="the likelihood summed over tokens",
        right="averaged",
        call=functools.partial(_variant, likelihood=lambda inputs, learned: -_summed(inputs[LOGPS[0]], learned).sum()),
        stage="nll",
    ),
    Deviation(
        name="rewards-without-beta",
        wrong="log-probabilities logged as rewards",
        right="beta times them",
        call=functools.partial(_variant, reward_scale=lambda beta: 1.0),
        stage="chosen_rewards",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _stage_chosen(policy_chosen_logps: Any, chosen_mask: Any) -> Any:
    from minimal.post_training import orpo_torch

    return orpo_torch.average_logps(policy_chosen_logps, chosen_mask)


def _stage_rejected(policy_rejected_logps: Any, rejected_mask: Any) -> Any:
    from minimal.post_training import orpo_torch

    return orpo_torch.average_logps(policy_rejected_logps, rejected_mask)


def _stage_odds(chosen_averages: Any, rejected_averages: Any) -> Any:
    from minimal.post_training import orpo_torch

    return orpo_torch.log_odds_ratios(chosen_averages, rejected_averages)


def _stage_nll(policy_chosen_logps: Any, chosen_attention: Any, chosen_mask: Any, nll_over: str) -> Any:
    from minimal.post_training import orpo_torch

    learned = chosen_attention if nll_over == "sequence" else chosen_mask
    return orpo_torch.negative_log_likelihood(policy_chosen_logps, learned)


def _stage_loss(nll: Any, log_odds: Any, beta: float) -> Any:
    from minimal.post_training import orpo_torch

    return nll + beta * orpo_torch.odds_ratio_loss(log_odds)


STAGES = (
    Stage("chosen_averages", ("B",), "average log-probability of the chosen completion", _stage_chosen, "nat"),
    Stage("rejected_averages", ("B",), "the same of the rejected one", _stage_rejected, "nat"),
    Stage("log_odds", ("B",), "log of the odds ratio, chosen over rejected", _stage_odds, "nat"),
    Stage("nll", (), "negative log-likelihood of a learned token", _stage_nll, "nat"),
    Stage("loss", (), "likelihood and odds ratio together", _stage_loss, "nat"),
)


def _one_quotient(
    policy_chosen_logps: Any,
    policy_rejected_logps: Any,
    chosen_attention: Any,
    chosen_mask: Any,
    rejected_mask: Any,
    *,
    beta: float,
    nll_over: str,
) -> Outputs:
    """log odds = -log(exp(-x) - 1) by ``expm1``, and -log sigmoid as a softplus."""
    import torch

    def mean(logps: Any, mask: Any) -> Any:
        return (logps.masked_fill(~mask, 0) / mask.sum(dim=-1, keepdim=True)).sum(dim=-1)

    def log_odds(x: Any) -> Any:
        near = x > -1.0
        close, far = x.masked_fill(~near, -1.0), x.masked_fill(near, -1.0)
        return torch.where(near, -torch.expm1(-close).log(), far - torch.log1p(-far.exp()))

    chosen, rejected = mean(policy_chosen_logps, chosen_mask), mean(policy_rejected_logps, rejected_mask)
    kept = policy_chosen_logps[chosen_attention if nll_over == "sequence" else chosen_mask]
    apart = log_odds(rejected) - log_odds(chosen)
    ratio = torch.logaddexp(apart, torch.zeros_like(apart)).mean()
    return _named((beta * ratio - kept.mean(), beta * chosen.detach(), beta * rejected.detach()))


REWRITINGS = (
    Rewriting(
        "one-quotient",
        "log odds as -log(exp(-x) - 1), -log sigmoid as a softplus, means of what is kept",
        _one_quotient,
    ),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("beta", 0.1, (0.1, 0.25, 1.0), "Weight of the odds ratio's term; lambda in the paper."),
    Knob(
        "nll_over",
        "sequence",
        ("sequence", "completion"),
        "Which tokens of the chosen side are learned: prompt and completion (TRL), or the completion alone.",
    ),
)

INPUTS = (
    Input(
        LOGPS[0],
        ("B", "T"),
        "float",
        "Log-probability of each token of prompt and chosen completion, below 0.",
        "nat",
        True,
    ),
    Input(LOGPS[1], ("B", "T"), "float", "The same with the rejected completion.", "nat", True),
    Input("chosen_attention", ("B", "T"), "bool", "True at real tokens of prompt and chosen completion."),
    Input("chosen_mask", ("B", "T"), "bool", "True at real tokens of the chosen completion; each row has one."),
    Input("rejected_mask", ("B", "T"), "bool", "True at real tokens of the rejected completion; each row has one."),
)

OUTPUTS = (
    Output("loss", (), "Negative log-likelihood plus beta times the odds ratio's loss.", "nat"),
    Output("chosen_rewards", ("B",), "beta times the average log-probability of the chosen; carries no gradient."),
    Output("rejected_rewards", ("B",), "The same of the rejected; carries no gradient."),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)
COVERED = {LOGPS[0]: "chosen_attention", LOGPS[1]: "rejected_mask"}


def _alike(case: Case) -> Case:
    """The rejected side made equal to the chosen one; without prompts, so that ``nll_over`` does not matter."""
    kept = case.inputs["chosen_mask"]
    sides = {LOGPS[1]: case.inputs[LOGPS[0]], "rejected_mask": kept, "chosen_attention": kept}
    return Case({**case.inputs, **sides}, case.knobs)


def _alike_loss(case: Case) -> dict[str, Any]:
    """The odds are even: the loss is the likelihood and beta log 2."""
    import numpy as np

    nll = -case.inputs[LOGPS[0]][case.inputs["chosen_mask"]].mean()
    return {"loss": nll + case.knobs["beta"] * np.log(2.0)}


PROBES = (
    probes.poison(COVERED),
    probes.poison(COVERED, value=-1e4, name="poison-finite"),
    probes.padding(AXES, "T", {**dict.fromkeys(LOGPS, -1.0), **dict.fromkeys(MASKS, False)}),
    probes.permutation(AXES, "B"),
    probes.identity("even-odds", "two equal sides have the loss NLL + beta log 2", _alike, _alike_loss),
)

CONTRACT = Contract(
    name="orpo-loss",
    kind="value",
    title="Odds ratio preference optimisation (ORPO)",
    doc=(
        "With log p the average log-probability of a completion's tokens and log odds = log p - log(1 - p), the loss is"
        " the negative log-likelihood of the chosen side, one mean over its tokens, plus beta times the mean over pairs"
        " of -log sigmoid(log odds_chosen - log odds_rejected). The rewards beta log p are logged, without gradient."
        " Sequences are right-padded, and the token that nothing predicts is left out. arXiv 2403.07691, eq. 4, 6, 7."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    oracle=oracle,
    probes=PROBES,
    stages=STAGES,
    rewritings=REWRITINGS,
)
