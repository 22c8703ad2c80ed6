"""The contract ``kto-loss``: completions called good or bad, one by one, and a reference point from the batch.

Bound to TRL, whose ``KTOTrainer._compute_loss`` runs whole on a real trainer: the sums over tokens, the reference point
from a second forward pass over mismatched completions, both losses, the weights and what is logged. Only its two models
are stand-ins that answer with the log-probabilities of the case. Liger's fused layer starts from logits, here of two
words, and is handed the reference point: estimating it is left to its caller.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
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

LOGPS = {
    "policy_logps": "mask",
    "ref_logps": "mask",
    "policy_kl_logps": "kl_mask",
    "ref_kl_logps": "kl_mask",
}
"""Log-probabilities, and the mask of each."""

BEFORE_COUNTS = {"kto": 8, "apo_zero_unpaired": 7}
"""Values that TRL gathers from all processes before it gathers the numbers of good and bad completions."""


# Implementations ------------------------------------------------------------------------------------------------------


@functools.cache
def _trainer() -> Any:
    """A real ``KTOTrainer`` of the pin on the CPU, with a reference model. Built once."""
    with _trl._workshop() as arguments:
        from datasets import Dataset

        kto = pins.load("trl:trl.trainer.kto_trainer")
        rows = {"prompt": ["a", "b"], "completion": ["b", "a"], "label": [True, False]}
        return kto.KTOTrainer(
            model=_trl._model(),
            ref_model=_trl._model(),
            args=kto.KTOConfig(**arguments, per_device_train_batch_size=2),
            train_dataset=Dataset.from_dict(rows),
            processing_class=_trl._tokenizer(),
        )


class _Model:
    """Stands where TRL's model with its fused head does: answers with given log-probabilities.

    Which rows are asked for is told by their ids: 0 in the completions, 1 in the mismatched ones.
    """

    def __init__(self, own: Any, mismatched: Any) -> None:
        self.rows = (own, mismatched)  # [B, T] each

    def __call__(self, *, input_ids: Any, labels: Any, **_: Any) -> Any:
        return _trl.fused_answer(self.rows[int(input_ids[0, 0])], labels)


def _trl_batch(mask: Any, kl_mask: Any, desirable: Any) -> dict[str, Any]:
    """A batch as TRL's collator lays it out, each completion after a prompt of one token."""
    import torch

    own, other = (torch.nn.functional.pad(one.long(), (1, 0)) for one in (mask, kl_mask))  # [B, T] -> [B, 1+T]
    everything = torch.ones_like(own)
    return {
        "input_ids": everything * 0,
        "attention_mask": everything,
        "completion_mask": own,
        "KL_input_ids": everything,
        "KL_attention_mask": everything,
        "KL_completion_mask": other,
        "label": desirable,
    }


def _trl_loss(
    policy_logps: Any,
    ref_logps: Any,
    mask: Any,
    policy_kl_logps: Any,
    ref_kl_logps: Any,
    kl_mask: Any,
    desirable: Any,
    *,
    beta: float,
    loss_type: str,
    desirable_weight: float,
    undesirable_weight: float,
) -> Outputs:
    """The method returns the loss and only logs the rewards: they are read where it gathers them from all processes."""
    from unittest import mock

    import torch

    trainer = _trainer()
    trainer.beta, trainer.loss_type, trainer.calculate_KL = beta, loss_type, loss_type == "kto"
    trainer.desirable_weight, trainer.undesirable_weight = desirable_weight, undesirable_weight
    trainer.ref_model = _Model(ref_logps, ref_kl_logps)
    gathered: list[Any] = []

    def gather(tensor: Any) -> Any:
        gathered.append(tensor)
        return tensor

    with _trl.run_as(trainer, policy_logps), mock.patch.object(trainer.accelerator, "gather_for_metrics", gather):
        batch = _trl_batch(mask, kl_mask, desirable)
        loss = trainer._compute_loss(_Model(policy_logps, policy_kl_logps), batch, return_outputs=False)
    trainer._metrics["train"].clear()
    good, bad, *sums = gathered[BEFORE_COUNTS[loss_type] :]  # then, of each kind that is there: rewards, logps
    rewards = iter(sums[::2])
    chosen, rejected = (next(rewards) if count else torch.zeros_like(loss) for count in (good, bad))
    return _named((loss, chosen, rejected))


@functools.cache
def _liger() -> Any:
    with quiet():
        return pins.load("liger-kernel:liger_kernel.chunked_loss.kto_loss").LigerFusedLinearKTOLoss


def _liger_loss(
    policy_logps: Any,
    ref_logps: Any,
    mask: Any,
    policy_kl_logps: Any,
    ref_kl_logps: Any,
    kl_mask: Any,
    desirable: Any,
    *,
    beta: float,
    loss_type: str,
    desirable_weight: float,
    undesirable_weight: float,
) -> Outputs:
    """The whole layer, uncompiled, with the identity for a head. The reference point is its caller's to estimate."""
    import torch

    from minimal.post_training import kto_torch

    head, labels = torch.eye(2).to(policy_logps), (mask.long() - 1) * 100  # [2, 2], [B, T]; -100 where not of it
    point = kto_torch.reference_point(kto_torch.log_ratios(policy_kl_logps, ref_kl_logps, kl_mask))
    layer = _liger()(beta=beta, compiled=False, use_ref_model=True)
    loss, logged = layer(
        _trl.two_words(policy_logps),
        head,
        labels,
        preference_labels=desirable,
        ref_input=_trl.two_words(ref_logps),
        ref_weight=head,
        kl=point,
    )
    return _named((loss, *logged[4:6]))


def _named(result: Any) -> Outputs:
    return dict(zip(("loss", "chosen_rewards", "rejected_rewards"), result, strict=True))


def _minimal_torch(**inputs: Any) -> Outputs:
    from minimal.post_training import kto_torch

    return _named(kto_torch.kto_loss(**inputs))


def _minimal_jax(**inputs: Any) -> Outputs:
    from minimal.post_training import kto_jax

    return _named(kto_jax.kto_loss(**inputs))


def oracle(
    policy_logps: np.ndarray,
    ref_logps: np.ndarray,
    mask: np.ndarray,
    policy_kl_logps: np.ndarray,
    ref_kl_logps: np.ndarray,
    kl_mask: np.ndarray,
    desirable: np.ndarray,
    *,
    beta: float,
    loss_type: str,
    desirable_weight: float,
    undesirable_weight: float,
) -> Outputs:
    """The paper's equation 7 in NumPy, completion by completion: Liger knows float32 only."""
    import numpy as np

    def ratio(policy: np.ndarray, ref: np.ndarray, kept: np.ndarray) -> float:
        return float(policy[kept].sum() - ref[kept].sum())

    mismatched = [ratio(*rows) for rows in zip(policy_kl_logps, ref_kl_logps, kl_mask, strict=True)]
    z0 = max(0.0, float(np.mean(mismatched))) if loss_type == "kto" else 0.0
    total, rewards = 0.0, {True: 0.0, False: 0.0}
    for *rows, good in zip(policy_logps, ref_logps, mask, desirable, strict=True):
        h = ratio(*rows)
        gain, weight = (h - z0, desirable_weight) if good else (z0 - h, undesirable_weight)
        total += weight * np.exp(-np.logaddexp(0.0, beta * gain))  # 1 - sigmoid
        rewards[bool(good)] += beta * h
    return _named((np.asarray(total / len(desirable)), np.asarray(rewards[True]), np.asarray(rewards[False])))


IMPLEMENTATIONS = (
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl_loss,
        symbols=(
            "trl:trl.trainer.kto_trainer.KTOTrainer._compute_loss",
            "trl:trl.trainer.kto_trainer.KTOTrainer._compute_kl_logps",
        ),
        requires=("trl",),
    ),
    Implementation(
        name="liger",
        role="reference",
        backend="torch",
        call=_liger_loss,
        symbols=(
            "liger-kernel:liger_kernel.chunked_loss.kto_loss.LigerFusedLinearKTOFunction",
            "liger-kernel:liger_kernel.chunked_loss.fused_linear_unpaired_preference."
            "LigerFusedLinearUnpairedPreferenceBase",
        ),
        dialect={"loss_type": "kto", "desirable_weight": 1.0, "undesirable_weight": 1.0},
        requires=("liger-kernel",),
        dtypes=("float32",),  # its log-softmax casts
        breaks=("poison",),  # a masked log-probability is multiplied by 0
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/kto_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/kto_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(
    label: str, logps: Mapping[str, Any], lengths: tuple[list[int], list[int]], good: list[bool], **knobs: Any
) -> Case:
    """``lengths`` count the tokens of the completions and of the mismatched ones."""
    import numpy as np

    inputs: dict[str, np.ndarray] = {name: np.asarray(logps[name], dtype=np.float64) for name in LOGPS}
    slots = np.arange(inputs["policy_logps"].shape[1])
    inputs |= {
        name: slots < np.array(length)[:, None] for name, length in zip(("mask", "kl_mask"), lengths, strict=True)
    }
    inputs["desirable"] = np.array(good)
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random_logps(seed: int, shape: tuple[int, int], drift: float = 0.3) -> dict[str, np.ndarray]:
    """Token log-probabilities below 0, masked slots too. The policy has moved from the reference by about ``drift`` a
    token; mismatched completions have mostly become likelier, or less likely if ``drift`` is negative."""
    import numpy as np

    random = np.random.default_rng(seed)
    ref, ref_kl = (-0.5 - random.exponential(1.0, shape) for _ in range(2))
    moved = np.minimum(ref + random.normal(0.0, abs(drift), shape), -0.01)
    moved_kl = np.minimum(ref_kl + drift * random.normal(0.4, 0.6, shape), -0.01)
    return {"policy_logps": moved, "ref_logps": ref, "policy_kl_logps": moved_kl, "ref_kl_logps": ref_kl}


def _edges() -> tuple[Case, ...]:
    logps, lengths, good = _random_logps(0, (4, 5)), ([3, 1, 5, 2], [1, 5, 2, 3]), [True, False, True, False]
    back = _random_logps(1, (4, 5), drift=-0.3)
    full = ([5] * 4, [5] * 4)
    equal = {**logps, "ref_logps": logps["policy_logps"], "ref_kl_logps": logps["policy_kl_logps"]}
    alone = {name: array[:1] for name, array in logps.items()}
    weights = {"desirable_weight": 1.33, "undesirable_weight": 0.75}
    return (
        _case("no padding", logps, full, good),
        _case("ragged", logps, lengths, good),
        _case("estimate below 0: counted from 0", back, lengths, good),
        _case("all desirable", logps, lengths, [True] * 4),
        _case("none desirable", logps, lengths, [False] * 4),
        _case("unequal weights", logps, lengths, good, **weights),
        _case("a weight of 0", logps, lengths, good, undesirable_weight=0.0),
        _case("policy is reference", equal, lengths, good, **weights),
        _case("one completion", alone, ([3], [5]), [False], beta=1.0),
        _case("a completion wholly masked", logps, ([0, 1, 5, 2], [1, 0, 2, 3]), good),
        _case("no reference point", logps, lengths, good, loss_type="apo_zero_unpaired", **weights),
        _case("no reference point, none desirable", logps, lengths, [False] * 4, loss_type="apo_zero_unpaired"),
        *_far(),
    )


def _far() -> tuple[Case, ...]:
    """Log-ratios of thousands: the loss saturates at 0 or 1, and the gradient is 0 in either case."""
    near = {name: [[-1.0, -1.0]] * 2 for name in LOGPS}
    return tuple(
        _case(f"a log-ratio of {how} thousands", {**near, name: [[-2000.0, -1.0]] * 2}, ([2, 2], [2, 2]), [True, False])
        for how, name in (("minus", "policy_logps"), ("plus", "ref_logps"))
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Log-probabilities come from a drawn seed, not entry by entry: an estimate of exactly 0 then has no chance."""
    from hypothesis import strategies as st

    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    lengths = st.lists(st.integers(1, width), min_size=rows, max_size=rows)
    return _case(
        "",
        _random_logps(draw(st.integers(0, 2**16)), (rows, width), draw(st.sampled_from((0.3, -0.3, 1.0)))),
        (draw(lengths), draw(lengths)),
        draw(st.lists(st.booleans(), min_size=rows, max_size=rows)),
        beta=draw(st.sampled_from((0.1, 0.5, 1.0))),
        loss_type=draw(st.sampled_from(("kto", "kto", "apo_zero_unpaired"))),
        desirable_weight=draw(st.sampled_from((1.0, 1.33))),
        undesirable_weight=draw(st.sampled_from((1.0, 0.75))),
    )


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    *,
    ratios: Callable[[Any, Any, Any], Any] | None = None,
    kl_ratios: Callable[[dict[str, Any]], Any] | None = None,
    point: Callable[[Any], Any] | None = None,
    losses: Callable[..., Any] | None = None,
    reduce: Callable[[Any, Any], Any] = lambda losses, weights: (weights * losses).mean(),
    flip: bool = False,
    rewards: Callable[[Any, Any, float], Any] = lambda h, z0, beta: beta * h,
    **given: Any,
) -> Outputs:
    """The loss with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    from minimal.post_training import kto_torch as right

    over, desirable, beta = ratios or right.log_ratios, given["desirable"], given["beta"]
    h = over(given["policy_logps"], given["ref_logps"], given["mask"])  # [B]
    mismatched = over(given["policy_kl_logps"], given["ref_kl_logps"], given["kl_mask"])
    z0 = (point or right.reference_point)(kl_ratios(given) if kl_ratios else mismatched)
    kinds = given["desirable_weight"], given["undesirable_weight"]
    weights = torch.where(desirable, *(h.new_tensor(w) for w in (kinds[::-1] if flip else kinds)))  # [B]
    found = (losses or right.kto_losses)(h, z0, desirable, beta=beta, loss_type=given["loss_type"])
    logged = rewards(h, z0, beta).detach()
    sums = [torch.where(kind, logged, 0.0).sum() for kind in (desirable, ~desirable)]
    return _named((reduce(found, weights), *sums))


def _point_of(h: Any, z0: Any, loss_type: str) -> Any:
    return h - z0 if loss_type == "kto" else h


def _everywhere(policy: Any, ref: Any, mask: Any) -> Any:
    return (policy - ref).sum(dim=1)


def _averaged(policy: Any, ref: Any, mask: Any) -> Any:
    return (policy - ref).masked_fill(~mask, 0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def _without_reference(policy: Any, ref: Any, mask: Any) -> Any:
    return policy.masked_fill(~mask, 0).sum(dim=1)


def _of_its_own(given: dict[str, Any]) -> Any:
    from minimal.post_training import kto_torch as right

    return right.log_ratios(given["policy_logps"], given["ref_logps"], given["mask"])


def _of_tokens(given: dict[str, Any]) -> Any:
    """One number, the mean of the mismatched tokens' log-ratios."""
    kept = given["kl_mask"]
    total = (given["policy_kl_logps"] - given["ref_kl_logps"]).masked_fill(~kept, 0).sum()
    return (total / kept.sum().clamp(min=1)).reshape(1)


def _signed(h: Any, z0: Any, desirable: Any, *, beta: float, loss_type: str) -> Any:
    import torch

    return torch.sigmoid(-beta * _point_of(h, z0, loss_type))


def _unscaled_point(h: Any, z0: Any, desirable: Any, *, beta: float, loss_type: str) -> Any:
    import torch

    gain = _point_of(beta * h, z0, loss_type)
    return torch.sigmoid(torch.where(desirable, -gain, gain))


def _as_dpo(h: Any, z0: Any, desirable: Any, *, beta: float, loss_type: str) -> Any:
    import torch

    gain = beta * _point_of(h, z0, loss_type)
    return -torch.nn.functional.logsigmoid(torch.where(desirable, gain, -gain))


def _utility(h: Any, z0: Any, desirable: Any, *, beta: float, loss_type: str) -> Any:
    import torch

    gain = beta * _point_of(h, z0, loss_type)
    return torch.sigmoid(torch.where(desirable, gain, -gain))


DEVIATIONS = (
    Deviation(
        name="point-carries-gradient",
        wrong="the gradient flows through the reference point",
        right="it is detached: a constant that gains and losses are counted from",
        call=functools.partial(_variant, point=lambda mismatched: mismatched.mean().clamp(min=0)),
        stage="point",
    ),
    Deviation(
        name="point-below-zero",
        wrong="the estimate of the KL divergence may be negative",
        right="it is clamped at 0, as a divergence is",
        call=functools.partial(_variant, point=lambda mismatched: mismatched.mean().detach()),
        stage="point",
    ),
    Deviation(
        name="clamped-by-row",
        wrong="each row's log-ratio is clamped at 0, then averaged",
        right="averaged, then clamped",
        call=functools.partial(_variant, point=lambda mismatched: mismatched.clamp(min=0).mean().detach()),
        stage="point",
    ),
    Deviation(
        name="point-by-row",
        wrong="each completion is counted from its own mismatched log-ratio",
        right="all from the mean of the batch",
        call=functools.partial(_variant, point=lambda mismatched: mismatched.clamp(min=0).detach()),
        stage="point",
    ),
    Deviation(
        name="point-summed",
        wrong="the mismatched log-ratios are summed over the batch",
        right="their mean",
        call=functools.partial(_variant, point=lambda mismatched: mismatched.sum().clamp(min=0).detach()),
        stage="point",
    ),
    Deviation(
        name="point-by-token",
        wrong="the divergence is averaged over tokens",
        right="summed over a completion's tokens, averaged over completions",
        call=functools.partial(_variant, kl_ratios=_of_tokens),
        stage="point",
    ),
    Deviation(
        name="point-of-its-own",
        wrong="the reference point comes from the very completions that are trained on",
        right="from mismatched ones: the next prompts' completions",
        call=functools.partial(_variant, kl_ratios=_of_its_own),
        stage="point",
    ),
    Deviation(
        name="point-unscaled",
        wrong="beta h - z0",
        right="beta (h - z0)",
        call=functools.partial(_variant, losses=_unscaled_point),
        stage="losses",
    ),
    Deviation(
        name="one-sign",
        wrong="bad completions are pulled up like good ones",
        right="the sign turns with the label",
        call=functools.partial(_variant, losses=_signed),
        stage="losses",
    ),
    Deviation(
        name="log-sigmoid",
        wrong="-log sigmoid, as in DPO: a hopeless completion keeps pulling",
        right="1 - sigmoid, whose gradient vanishes on both ends",
        call=functools.partial(_variant, losses=_as_dpo),
        stage="losses",
    ),
    Deviation(
        name="utility-minimised",
        wrong="the value itself is minimised",
        right="1 minus it",
        call=functools.partial(_variant, losses=_utility),
        stage="losses",
    ),
    Deviation(
        name="weights-interchanged",
        wrong="the weight of bad completions on good ones",
        right="each on its own kind",
        call=functools.partial(_variant, flip=True),
        stage="loss",
    ),
    Deviation(
        name="weights-normalised",
        wrong="divided by the sum of the weights",
        right="by the number of completions",
        call=functools.partial(_variant, reduce=lambda x, weights: (weights * x).sum() / weights.sum()),
        stage="loss",
    ),
    Deviation(
        name="summed-over-rows",
        wrong="the losses summed over the batch",
        right="their mean",
        call=functools.partial(_variant, reduce=lambda x, weights: (weights * x).sum()),
        stage="loss",
    ),
    Deviation(
        name="averaged-over-tokens",
        wrong="log-ratios averaged over a completion's tokens",
        right="summed",
        call=functools.partial(_variant, ratios=_averaged),
        stage="log_ratios",
    ),
    Deviation(
        name="padding-counted",
        wrong="masked slots take part in the sum",
        right="real tokens alone",
        call=functools.partial(_variant, ratios=_everywhere),
        stage="log_ratios",
    ),
    Deviation(
        name="reference-forgotten",
        wrong="the policy's log-probability for the log-ratio",
        right="minus the reference's",
        call=functools.partial(_variant, ratios=_without_reference),
        stage="log_ratios",
    ),
    Deviation(
        name="rewards-from-point",
        wrong="rewards counted from the reference point are logged",
        right="beta h",
        call=functools.partial(_variant, rewards=lambda h, z0, beta: beta * (h - z0)),
        stage="loss",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _stage_ratios(policy_logps: Any, ref_logps: Any, mask: Any) -> Any:
    from minimal.post_training import kto_torch

    return kto_torch.log_ratios(policy_logps, ref_logps, mask)


def _stage_point(policy_kl_logps: Any, ref_kl_logps: Any, kl_mask: Any) -> Any:
    from minimal.post_training import kto_torch

    return kto_torch.reference_point(kto_torch.log_ratios(policy_kl_logps, ref_kl_logps, kl_mask))


def _stage_losses(log_ratios: Any, point: Any, desirable: Any, beta: float, loss_type: str) -> Any:
    from minimal.post_training import kto_torch

    return kto_torch.kto_losses(log_ratios, point, desirable, beta=beta, loss_type=loss_type)


def _stage_loss(losses: Any, desirable: Any, desirable_weight: float, undesirable_weight: float) -> Any:
    import torch

    return torch.where(desirable, desirable_weight * losses, undesirable_weight * losses).mean()


STAGES = (
    Stage("log_ratios", ("B",), "log-ratio of policy and reference, of each completion", _stage_ratios, "nat"),
    Stage("point", (), "what gains and losses are counted from", _stage_point, "nat"),
    Stage("losses", ("B",), "loss of each completion before its weight", _stage_losses),
    Stage("loss", (), "mean of the weighted losses", _stage_loss),
)


def _by_kind(
    policy_logps: Any,
    ref_logps: Any,
    mask: Any,
    policy_kl_logps: Any,
    ref_kl_logps: Any,
    kl_mask: Any,
    desirable: Any,
    *,
    beta: float,
    loss_type: str,
    desirable_weight: float,
    undesirable_weight: float,
) -> Outputs:
    """Good and bad completions apart, as TRL has them; the sigmoid as a tanh."""
    import torch

    def summed(logps: Any, kept: Any) -> Any:
        return logps.masked_fill(~kept, 0).sum(dim=-1)

    with torch.no_grad():
        mean = (summed(policy_kl_logps, kl_mask) - summed(ref_kl_logps, kl_mask)).sum() / len(desirable)
        start = torch.relu(mean) if loss_type == "kto" else torch.zeros_like(mean)
    h = summed(policy_logps, mask) - summed(ref_logps, mask)
    good, bad = h[desirable], h[~desirable]
    total = desirable_weight * (1 - torch.tanh(beta * (good - start) / 2)).sum()
    total = total + undesirable_weight * (1 - torch.tanh(beta * (start - bad) / 2)).sum()
    return _named((total / (2 * len(h)), beta * good.detach().sum(), beta * bad.detach().sum()))


REWRITINGS = (Rewriting("by-kind", "good and bad completions apart, the sigmoid as a tanh", _by_kind),)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("beta", 0.1, (0.1, 0.5, 1.0), "How fast a gain or a loss saturates; tie to the reference."),
    Knob(
        "loss_type",
        "kto",
        ("kto", "apo_zero_unpaired"),
        "What gains and losses are counted from: the batch's divergence, or 0.",
    ),
    Knob("desirable_weight", 1.0, (1.0, 1.33), "Weight of good completions, lambda_D in the paper."),
    Knob("undesirable_weight", 1.0, (1.0, 0.75), "Weight of bad ones, lambda_U."),
)


def _tokens(name: str, doc: str, *, differentiable: bool = False) -> Input:
    return Input(name, ("B", "T"), "float", doc, "nat", differentiable)


INPUTS = (
    _tokens("policy_logps", "Log-probability of each token of a completion, below 0.", differentiable=True),
    _tokens("ref_logps", "The reference model's."),
    Input("mask", ("B", "T"), "bool", "True at real tokens of a completion."),
    _tokens(
        "policy_kl_logps",
        "Of the mismatched completion of each row: another row's, after this row's prompt.",
        differentiable=True,
    ),
    _tokens("ref_kl_logps", "The reference model's, of the mismatched completion."),
    Input("kl_mask", ("B", "T"), "bool", "True at real tokens of the mismatched completion."),
    Input("desirable", ("B",), "bool", "True where the completion is called good."),
)

OUTPUTS = (
    Output("loss", (), "Mean of the weighted losses; each lies in [0, 1] before its weight."),
    Output("chosen_rewards", (), "Sum of beta h over the good completions; carries no gradient."),
    Output("rejected_rewards", (), "The same over the bad ones; carries no gradient."),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)


def _unmoved(case: Case) -> Case:
    """The reference made equal to the policy."""
    given = case.inputs
    return Case({**given, "ref_logps": given["policy_logps"], "ref_kl_logps": given["policy_kl_logps"]}, case.knobs)


def _unmoved_loss(case: Case) -> dict[str, Any]:
    """Every log-ratio is 0 and so is the reference point: half of each weight."""
    import numpy as np

    weights = np.where(case.inputs["desirable"], case.knobs["desirable_weight"], case.knobs["undesirable_weight"])
    return {"loss": weights.mean() / 2, "chosen_rewards": 0.0, "rejected_rewards": 0.0}


PROBES = (
    probes.poison(LOGPS),
    probes.padding(AXES, "T", {**dict.fromkeys(LOGPS, -1.0), "mask": False, "kl_mask": False}),
    probes.permutation(AXES, "B"),
    probes.identity("unmoved", "a policy that is its reference: half the mean weight", _unmoved, _unmoved_loss),
)

CONTRACT = Contract(
    name="kto-loss",
    kind="value",
    title="Kahneman-Tversky optimisation (KTO)",
    doc=(
        "With h = log pi(y) - log pi_ref(y), summed over the real tokens of a completion, and z0 the mean of the same"
        " over mismatched completions, at least 0 and without gradient, the loss is the mean of"
        " w_D (1 - sigmoid(beta (h - z0))) over good and w_U (1 - sigmoid(beta (z0 - h))) over bad completions, all in"
        " one mean. APO-zero counts from 0. The rewards beta h are logged, without gradient. arXiv 2402.01306, eq. 7;"
        " APO 2408.06266."
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
