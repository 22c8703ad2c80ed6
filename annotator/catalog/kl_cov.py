"""The contract ``kl-cov``: the policy loss that holds back the tokens with the largest covariance.

Bound to verl's ``kl_cov`` loss. Its statistics are those of whatever it is called with, which this contract takes to be
the train batch. verl itself calls it once a micro-batch, so that there the choice of tokens depends on how the batch
was cut: the relation that micro-batches add up is broken by the method, and is no probe here (a test shows the break).
What can be asked instead: the order of rows does not matter, nor does it that a batch comes twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from annotator import pins
from annotator.catalog._third_party import CORE, default_dtype, pinned, quiet
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


# Implementations ------------------------------------------------------------------------------------------------------


def _loss_of_verl() -> Any:
    return pinned(CORE).compute_policy_loss_kl_cov


@functools.cache
def _verl_config(share: float, coef: float) -> Any:
    with quiet():
        actor = pins.load("verl:verl.workers.config.actor")
    chosen = actor.PolicyLossConfig(loss_mode="kl_cov", kl_cov_ratio=share, ppo_kl_coef=coef)
    return actor.ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, policy_loss=chosen)


def _verl(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    *,
    share: float,
    coef: float,
    loss_aggregation: str,
) -> Outputs:
    with default_dtype(log_prob):
        loss, _ = _loss_of_verl()(
            old_log_prob=old_log_prob,
            log_prob=log_prob,
            advantages=advantages,
            response_mask=response_mask,
            loss_agg_mode=loss_aggregation,
            config=_verl_config(share, coef),
        )
    return {"loss": loss}


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.post_training import cov_torch

    return {"loss": cov_torch.kl_cov_loss(**arguments)}


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.post_training import cov_jax

    return {"loss": cov_jax.kl_cov_loss(**arguments)}


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=(
            "verl:verl.trainer.ppo.core_algos.compute_policy_loss_kl_cov",
            "verl:verl.trainer.ppo.core_algos.agg_loss",
        ),
        requires=("verl",),
        breaks=("poison",),  # it computes with masked slots first and selects afterwards
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/cov_torch.py", "minimal/post_training/aggregation_torch.py"),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/cov_jax.py", "minimal/post_training/aggregation_jax.py"),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, arrays: Mapping[str, Any], mask: Any = None, **knobs: Any) -> Case:
    import numpy as np

    inputs: dict[str, np.ndarray] = {name: np.array(array, dtype=np.float64) for name, array in arrays.items()}
    shape = inputs["log_prob"].shape
    inputs["response_mask"] = np.ones(shape, dtype=bool) if mask is None else np.array(mask, dtype=bool)
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random(seed: int, shape: tuple[int, int], *, by_row: bool = False) -> dict[str, np.ndarray]:
    """No two covariances are equal, so that there is one right choice of tokens.

    ``by_row``: much the same advantage for all tokens of a row; were it the same, a row alone would have covariances 0.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    log_prob = -random.exponential(1.0, shape)
    advantages = random.normal(0, 1, shape) * (0.1 if by_row else 1.0)
    if by_row:
        advantages = advantages + random.normal(0, 1, (shape[0], 1))
    return {"old_log_prob": log_prob + random.normal(0, 0.3, shape), "log_prob": log_prob, "advantages": advantages}


def _edges() -> tuple[Case, ...]:
    whole, by_row = _random(0, (4, 3)), _random(1, (4, 3), by_row=True)
    ragged = [[True] * 3, [True, False, False], [True, True, False], [False, True, True]]
    empty = [[False] * 3, *ragged[1:]]
    extreme = {**whole, "log_prob": whole["log_prob"].copy()}
    extreme["log_prob"][0, 1] = -60.0
    ways = tuple((s, a) for s in SHARES for a in AGGREGATIONS)
    return (
        *(_case(f"share {s:g}, {a}", whole, ragged, share=s, loss_aggregation=a) for s, a in ways),
        _case("an advantage a response", by_row, ragged, share=0.5),
        _case("no padding", whole, share=0.25),
        _case("half the penalty", whole, ragged, share=0.5, coef=0.5),
        _case("a row wholly masked", whole, empty, share=0.5),
        _case("a row wholly masked, by response", whole, empty, share=0.5, loss_aggregation="seq-mean-token-sum"),
        _case("one token", {name: array[:1, :1] for name, array in whole.items()}),
        _case("a token next to impossible", extreme, share=0.5),
        _case("all tokens held back", whole, ragged, share=1.0),
    )


def _drawn_case(draw: DrawFn) -> Case:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shape = draw(st.sampled_from(((4, 3), (3, 4))))  # few, since JAX compiles once a shape
    mask = draw(hnp.arrays("bool", shape, elements=st.sampled_from((True, True, True, False))))
    mask[0] = True  # three tokens at least: of two, both covariances are equal
    arrays = _random(draw(st.integers(0, 2**20)), shape, by_row=draw(st.booleans()))
    choices = {"share": SHARES, "coef": (1.0, 0.5), "loss_aggregation": AGGREGATIONS}
    return _case("", arrays, mask, **{name: draw(st.sampled_from(values)) for name, values in choices.items()})


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Probes ---------------------------------------------------------------------------------------------------------------


def _twice(run: Runner, case: Case) -> float | None:
    """A batch that comes twice has the same mean loss, where twice the batch holds back twice as many tokens."""
    import numpy as np

    tokens, share = int(case.inputs["response_mask"].sum()), case.knobs["share"]
    once = max(1, int(tokens * share))
    if not tokens or case.knobs["loss_aggregation"] == "token-sum" or int(2 * tokens * share) != 2 * once:
        return None
    doubled = {name: np.concatenate([array, array]) for name, array in case.inputs.items()}
    before, after = run(case), run(Case(doubled, case.knobs))
    return error(after.outputs["loss"], before.outputs["loss"], condition=1.0)


def _on_policy(case: Case) -> Case | None:
    if not case.inputs["response_mask"].any() or case.knobs["loss_aggregation"] != "token-mean":
        return None
    return Case({**case.inputs, "old_log_prob": case.inputs["log_prob"]}, case.knobs)


def _minus_advantage(case: Case) -> Mapping[str, Any]:
    """Every ratio is 1 and every penalty 0."""
    return {"loss": -case.inputs["advantages"][case.inputs["response_mask"]].mean()}


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    *,
    share: float,
    coef: float,
    loss_aggregation: str,
    covariance: Any = None,
    count: Any = None,
    hold: Any = None,
    penalty: Any = None,
    combine: Any = None,
) -> Outputs:
    """The loss with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    from minimal.post_training import aggregation_torch, cov_torch

    scored = (covariance or _covariance)(old_log_prob, log_prob, advantages, response_mask)
    held = (hold or _hold)(scored, response_mask, count or _count, share)
    log_ratio = torch.where(response_mask, log_prob - old_log_prob, 0)
    objective = -advantages * log_ratio.exp()
    held_back = coef * (penalty or (lambda d: d.abs()))(log_ratio)
    losses = (combine or (lambda o, p, h: o + torch.where(h, p, 0)))(objective, held_back, held)
    whole = aggregation_torch.Whole(*cov_torch.aggregation.local_counts(response_mask), float(response_mask.shape[1]))
    return {"loss": aggregation_torch.MODES[loss_aggregation](losses, response_mask, whole)}


def _covariance(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any) -> Any:
    from minimal.post_training import cov_torch

    return cov_torch.token_covariances(log_prob, advantages, response_mask)


def _count(tokens: int, share: float) -> int:
    return max(1, int(tokens * share))


def _hold(covariances: Any, response_mask: Any, count: Callable[[int, float], int], share: float) -> Any:
    """The largest covariances among the unmasked tokens."""
    return _top(covariances, response_mask, count(int(response_mask.sum()), share))


def _top(values: Any, among: Any, number: int) -> Any:
    import torch

    ranked = torch.where(among, values, -torch.inf).flatten()
    held = torch.zeros_like(ranked, dtype=torch.bool)
    held[ranked.topk(min(number, len(ranked))).indices] = True
    return held.reshape(among.shape) & among


def _parts(response_mask: Any) -> list[slice]:
    """Micro-batches of two rows."""
    return [slice(first, first + 2) for first in range(0, len(response_mask), 2)]


def _covariance_by_part(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any) -> Any:
    import torch

    pieces = (old_log_prob, log_prob, advantages, response_mask)
    return torch.cat([_covariance(*(piece[rows] for piece in pieces)) for rows in _parts(response_mask)])


def _hold_by_part(covariances: Any, response_mask: Any, count: Any, share: float) -> Any:
    import torch

    return torch.cat([_hold(covariances[rows], response_mask[rows], count, share) for rows in _parts(response_mask)])


def _hold_by_row(covariances: Any, response_mask: Any, count: Any, share: float) -> Any:
    import torch

    rows = zip(covariances.split(1), response_mask.split(1), strict=True)
    return torch.cat([_hold(values, mask, count, share) for values, mask in rows])


def _unmasked_covariance(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any) -> Any:
    return _covariance(old_log_prob, log_prob, advantages, response_mask.new_ones(response_mask.shape))


def _by_width(covariances: Any, response_mask: Any, count: Any, share: float) -> Any:
    return _top(covariances, response_mask, count(response_mask.numel(), share))


def _clipped(objective: Any, held_back: Any, held: Any) -> Any:
    import torch

    return torch.where(held, objective.detach(), objective)


def _replaced(objective: Any, held_back: Any, held: Any) -> Any:
    import torch

    return torch.where(held, held_back, objective)


def _k3(log_ratio: Any) -> Any:
    return (-log_ratio).exp() + log_ratio - 1


DEVIATIONS = (
    Deviation(
        name="share-of-micro-batch",
        wrong="means and top share per micro-batch",
        right="over the train batch",
        call=functools.partial(_variant, covariance=_covariance_by_part, hold=_hold_by_part),
        seen_in="Entropy-Mechanism #14",
        zoo=23,
        stage="covariances",
    ),
    Deviation(
        name="means-of-micro-batch",
        wrong="means per micro-batch, the top share over the train batch",
        right="both over the train batch",
        call=functools.partial(_variant, covariance=_covariance_by_part),
        stage="covariances",
    ),
    Deviation(
        name="share-of-response",
        wrong="the top share of each response",
        right="of the train batch",
        call=functools.partial(_variant, hold=_hold_by_row),
        stage="held",
    ),
    Deviation(
        name="uncentred",
        wrong="log-probability times advantage, neither centred",
        right="the product of what is left once the means are off",
        call=functools.partial(_variant, covariance=lambda old, log_prob, a, mask: (log_prob * a).detach()),
        stage="covariances",
    ),
    Deviation(
        name="masked-means",
        wrong="means over masked slots too",
        right="over unmasked tokens",
        call=functools.partial(_variant, covariance=_unmasked_covariance),
        stage="covariances",
    ),
    Deviation(
        name="old-policy",
        wrong="covariances of the old policy's log-probabilities",
        right="of the current one's",
        call=functools.partial(_variant, covariance=lambda old, log_prob, a, mask: _covariance(old, old, a, mask)),
        stage="covariances",
    ),
    Deviation(
        name="largest-magnitude",
        wrong="the largest |covariance|",
        right="the largest one, sign included",
        call=functools.partial(_variant, covariance=lambda *given: _covariance(*given).abs()),
        stage="held",
    ),
    Deviation(
        name="smallest-covariance",
        wrong="the smallest covariances",
        right="the largest ones",
        call=functools.partial(_variant, covariance=lambda *given: -_covariance(*given)),
        stage="held",
    ),
    Deviation(
        name="share-of-width",
        wrong="a share of all slots, padding included",
        right="of the unmasked tokens",
        call=functools.partial(_variant, hold=_by_width),
        stage="held",
    ),
    Deviation(
        name="share-may-be-none",
        wrong="no token held back where the share is less than one",
        right="one at least",
        call=functools.partial(_variant, count=lambda tokens, share: int(tokens * share)),
        stage="held",
    ),
    Deviation(
        name="share-rounded-up",
        wrong="the number of tokens rounded up",
        right="rounded down",
        call=functools.partial(_variant, count=lambda tokens, share: -int(-tokens * share // 1)),
        stage="held",
    ),
    Deviation(
        name="penalty-everywhere",
        wrong="the penalty on every token",
        right="on the top share",
        call=functools.partial(_variant, combine=lambda o, p, h: o + p),
        stage="token_losses",
    ),
    Deviation(
        name="penalty-subtracted",
        wrong="the penalty subtracted from the loss",
        right="added",
        call=functools.partial(_variant, penalty=lambda d: -d.abs()),
        stage="token_losses",
    ),
    Deviation(
        name="penalty-signed",
        wrong="log r as the penalty",
        right="|log r|",
        call=functools.partial(_variant, penalty=lambda d: d),
        stage="token_losses",
    ),
    Deviation(
        name="penalty-k3",
        wrong="exp(-log r) + log r - 1 as the penalty",
        right="|log r|",
        call=functools.partial(_variant, penalty=_k3),
        stage="token_losses",
    ),
    Deviation(
        name="clip-cov",
        wrong="the held tokens' gradient cut off: the other method of the paper",
        right="a penalty on them",
        call=functools.partial(_variant, combine=_clipped),
        stage="token_losses",
    ),
    Deviation(
        name="objective-replaced",
        wrong="the penalty in place of the objective",
        right="beside it",
        call=functools.partial(_variant, combine=_replaced),
        stage="token_losses",
    ),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _over_tokens(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    *,
    share: float,
    coef: float,
    loss_aggregation: str,
) -> Outputs:
    """On the unmasked tokens as one list, with a threshold for a choice."""
    import torch

    new, old, gain = log_prob[response_mask], old_log_prob[response_mask], advantages[response_mask]
    with torch.no_grad():
        covariance = (new - new.mean()) * (gain - gain.mean())
        held = torch.zeros_like(new)
        if len(new):
            kept = max(1, int(share * len(new)))
            held = (covariance >= covariance.sort(descending=True).values[kept - 1]).to(new.dtype)
    total = (coef * held * (new - old).abs() - gain * (new - old).exp()).sum()
    sizes = {"token-mean": len(new), "token-sum": 1, "seq-mean-token-sum": int(response_mask.any(dim=1).sum())}
    return {"loss": total / torch.tensor(sizes[loss_aggregation], dtype=total.dtype)}


REWRITINGS = (Rewriting("over-tokens", "unmasked tokens as one list, chosen by a threshold", _over_tokens),)


# Contract -------------------------------------------------------------------------------------------------------------

SHARES = (0.0002, 0.25, 0.5)

AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "token-sum")

KNOBS = (
    Knob("share", 0.0002, SHARES, "The share of tokens that is held back, of one token at least (kl_cov_ratio)."),
    Knob("coef", 1.0, (1.0, 0.5), "The weight of the penalty (ppo_kl_coef)."),
    Knob("loss_aggregation", "token-mean", AGGREGATIONS, "How token losses become one; see the contract of that."),
)

INPUTS = (
    Input("old_log_prob", ("B", "T"), "float", "Log-probability of each token when it was drawn; a constant.", "nat"),
    Input("log_prob", ("B", "T"), "float", "The same under the current policy.", "nat", True),
    Input("advantages", ("B", "T"), "float", "Weight of each token; a constant."),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that the policy wrote; holes are allowed."),
)

OUTPUTS = (Output("loss", (), "The loss of the train batch."),)

AXES = probes.axes_of(INPUTS, OUTPUTS)

FLOATS = ("old_log_prob", "log_prob", "advantages")


def _token_covariances(log_prob: Any, advantages: Any, response_mask: Any) -> Any:
    from minimal.post_training import cov_torch

    return cov_torch.token_covariances(log_prob, advantages, response_mask)


def _held(covariances: Any, response_mask: Any, *, share: float) -> Any:
    from minimal.post_training import cov_torch

    return cov_torch.largest_covariances(covariances, response_mask, share=share).to(covariances.dtype)


def _losses(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any, held: Any, *, coef: float) -> Any:
    from minimal.post_training import cov_torch

    chosen = held.bool()
    losses = cov_torch.kl_cov_losses(old_log_prob, log_prob, advantages, response_mask, chosen, coef=coef)
    return losses * response_mask


def _aggregated(token_losses: Any, response_mask: Any, *, loss_aggregation: str) -> Any:
    from minimal.post_training import aggregation_torch

    whole = aggregation_torch.Whole(*aggregation_torch.local_counts(response_mask), float(response_mask.shape[1]))
    return aggregation_torch.MODES[loss_aggregation](token_losses, response_mask, whole)


STAGES = (
    Stage("covariances", ("B", "T"), "centred log-probability times centred advantage", _token_covariances),
    Stage("held", ("B", "T"), "1 at the tokens with the largest ones", _held),
    Stage("token_losses", ("B", "T"), "-A r, and the penalty where held; 0 where masked", _losses),
    Stage("loss", (), "those, aggregated", _aggregated),
)

CONTRACT = Contract(
    name="kl-cov",
    kind="value",
    title="KL-Cov: a penalty on the tokens with the largest covariance",
    doc=(
        "loss_t = -A_t r_t + coef |log r_t| on the share of tokens with the largest (log pi - mean log pi)(A - mean A)"
        " over the train batch, -A_t r_t on all others; r_t = pi / pi_old. The choice carries no gradient; which of"
        " equal covariances is taken is left open, and no case has any. The Entropy Mechanism of Reinforcement"
        " Learning, arXiv 2505.22617, section 4."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=(
        probes.permutation(AXES, "B"),
        probes.permutation(AXES, "T", name="permutation of tokens"),
        probes.padding(AXES, "T", {**dict.fromkeys(FLOATS, 0.5), "response_mask": False}),
        probes.poison(dict.fromkeys(FLOATS, "response_mask")),
        probes.poison(dict.fromkeys(FLOATS, "response_mask"), value=3.0, name="finite poison"),
        probes.identity("on-policy", "on-policy the loss is minus the mean advantage", _on_policy, _minus_advantage),
        Probe("twice", "a batch that comes twice has the same mean loss", _twice),
    ),
    stages=STAGES,
    rewritings=REWRITINGS,
)
