"""The contract ``kl-penalty``: what a drawn token tells of the divergence from the reference policy, and its gradient.

Bound to verl's function, which has all estimators, and to TRL's k3, which stands inside of the loss method of its GRPO
trainer: that method runs on one token at a time, with advantages of 0, so that its loss is the token's penalty.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog import _trl
from annotator.catalog._third_party import CORE, pinned
from annotator.contracts import probes
from annotator.contracts.comparison import GRADIENT, error
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
from annotator.contracts.running import normal

if TYPE_CHECKING:
    import numpy as np
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]


# Implementations ------------------------------------------------------------------------------------------------------


def _verl(log_prob: Any, ref_log_prob: Any, *, estimator: str, gradient: str) -> Outputs:
    name = estimator + "+" * (gradient == "k2")
    return {"kl": pinned(CORE).kl_penalty(log_prob, ref_log_prob, kl_penalty=name)}


def _verl_accepts(case: Case) -> str | None:
    if case.knobs["gradient"] == "importance":
        return "verl does not weigh its estimators by the ratio"
    return "verl's k3 is clamped: low_var_kl" if case.knobs["estimator"] == "k3" else None


def _trl_token(trainer: Any, log_prob: Any, ref_log_prob: Any) -> Any:
    """The loss of a batch of one completion of one token, [1, 1] -> []; its policy term is 0."""
    from unittest import mock

    import torch

    one = torch.ones_like(log_prob, dtype=torch.long)
    inputs = {"prompt_ids": one, "prompt_mask": one, "completion_ids": one, "completion_mask": one}
    inputs |= {"advantages": log_prob.detach()[:, 0] * 0, "ref_per_token_logps": ref_log_prob}
    answer = log_prob, log_prob.detach() * 0, None
    with mock.patch.object(trainer, "_get_per_token_logps_and_entropies", return_value=answer):
        return trainer._compute_loss(trainer.model, inputs)


def _trl_k3(log_prob: Any, ref_log_prob: Any, *, estimator: str, gradient: str) -> Outputs:
    """TRL's loss is policy loss + beta k3; with advantages of 0 and beta 1 the second term is all of it."""
    from unittest import mock

    import torch

    trainer = _trl.grpo_trainer()
    rows, width = log_prob.shape
    options = mock.patch.multiple(trainer.args, use_bias_correction_kl=gradient == "importance")
    settings: dict[str, Any] = {"beta": 1.0, "loss_type": "bnpo", "current_gradient_accumulation_steps": 1}
    with _trl.run_as(trainer, log_prob), options, mock.patch.multiple(trainer, create=True, **settings):
        trainer.model.train()
        places = [(slice(b, b + 1), slice(t, t + 1)) for b in range(rows) for t in range(width)]
        tokens = [_trl_token(trainer, log_prob[place], ref_log_prob[place]) for place in places]
    for metrics in trainer._metrics.values():
        metrics.clear()
    return {"kl": torch.stack(tokens).reshape(rows, width)}


def _trl_accepts(case: Case) -> str | None:
    if case.knobs["gradient"] == "k2":
        return "TRL binds no other gradient to k3"
    return None


def _minimal_torch(log_prob: Any, ref_log_prob: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import kl_torch

    return {"kl": kl_torch.token_kl(log_prob, ref_log_prob, **knobs)}


def _minimal_jax(log_prob: Any, ref_log_prob: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import kl_jax

    return {"kl": kl_jax.token_kl(log_prob, ref_log_prob, **knobs)}


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=(
            "verl:verl.trainer.ppo.core_algos.kl_penalty",
            "verl:verl.trainer.ppo.core_algos.kl_penalty_forward",
        ),
        requires=("verl",),
        accepts=_verl_accepts,
    ),
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl_k3,
        symbols=("trl:trl.trainer.grpo_trainer.GRPOTrainer._compute_loss",),
        dialect={"estimator": "k3"},
        requires=("trl",),
        accepts=_trl_accepts,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/kl_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/kl_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, log_prob: Any, ref_log_prob: Any, **knobs: Any) -> Case:
    import numpy as np

    pair = {"log_prob": log_prob, "ref_log_prob": ref_log_prob}
    inputs = {name: np.array(array, dtype=np.float64) for name, array in pair.items()}
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random(seed: int, shape: tuple[int, int], scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Token log-probabilities like those of text, and the reference's near them; multiples of 1/1024."""
    import numpy as np

    random = np.random.default_rng(seed)
    log_prob = -np.round(random.exponential(1.0, shape) * 1024) / 1024
    return log_prob, log_prob - np.round(random.normal(0, scale, shape) * 1024) / 1024


def _edges() -> tuple[Case, ...]:
    log_prob, reference = _random(0, (2, 3), 0.5)
    ways = tuple((e, g) for e in ESTIMATORS for g in GRADIENTS)
    apart = ([[-30.0, -1.0, -2.5]], [[-1.0, -30.0, -2.0]])  # log-ratios at which only clamping tells
    # One of 100 overflows the exponential in float32, one of 800 in float64.
    huge = ([[-800.0, -1.0, -100.0]], [[-1.0, -800.0, -0.5]])
    return (
        *(_case(f"{e}, gradient {g}", log_prob, reference, estimator=e, gradient=g) for e, g in ways),
        *(_case(f"apart by tens: {e}", *apart, estimator=e) for e in ESTIMATORS),
        _case("apart by tens: low_var_kl, gradient of k2", *apart, estimator="low_var_kl", gradient="k2"),
        _case("apart by hundreds: low_var_kl", *huge, estimator="low_var_kl"),
        _case("apart by hundreds: low_var_kl, gradient of k2", *huge, estimator="low_var_kl", gradient="k2"),
        *(_case(f"policy is reference: {e}", log_prob, log_prob, estimator=e) for e in ESTIMATORS if e != "abs"),
        _case("policy is reference, gradient of k2", log_prob, log_prob, gradient="k2"),
        _case("policy is reference, weighed", log_prob, log_prob, gradient="importance"),
        _case("one token", [[-0.5]], [[-2.25]]),
    )


def _drawn_case(draw: DrawFn) -> Case:
    from hypothesis import strategies as st

    shape = 2, 3  # one, since JAX compiles once a shape, estimator and gradient; every token is a case of its own
    pair = _random(draw(st.integers(0, 2**20)), shape, draw(st.sampled_from((0.5, 1.0, 4.0))))
    choices = {"estimator": ESTIMATORS, "gradient": GRADIENTS}
    return _case("", *pair, **{name: draw(st.sampled_from(values)) for name, values in choices.items()})


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Probes ---------------------------------------------------------------------------------------------------------------


def _same(case: Case) -> Case:
    return Case({**case.inputs, "ref_log_prob": case.inputs["log_prob"]}, case.knobs)


def _at_reference(case: Case) -> Mapping[str, Any]:
    """All estimators are 0 there; k2 and k3 are flat there, k1 is not, and |d| has a corner."""
    flat = case.knobs["gradient"] == "k2" or case.knobs["estimator"] not in ("k1", "abs")
    return {"kl": 0.0, **({GRADIENT + "log_prob": 0.0} if flat else {})}


def _vocabulary(case: Case) -> Case:
    """Each row as a vocabulary: log-probabilities of its tokens under two policies that are no further apart than e."""
    import numpy as np

    def normalised(array: np.ndarray) -> np.ndarray:
        z = np.tanh(array) / 2
        whole: np.ndarray = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
        return whole

    return Case({name: normalised(array) for name, array in case.inputs.items()}, case.knobs)


def _expectation(run: Runner, case: Case) -> float | None:
    """sum_y p(y) k(y) = KL(p || q) for k1 and k3."""
    import numpy as np

    if case.knobs["estimator"] not in ("k1", "k3", "low_var_kl"):
        return None
    ready = _vocabulary(case)
    log_p, log_q = ready.inputs["log_prob"], ready.inputs["ref_log_prob"]
    p = np.exp(log_p)
    mean = (p * run(ready).outputs["kl"]).sum(axis=-1)
    return float(np.abs(mean - (p * (log_p - log_q)).sum(axis=-1)).max())  # in nats: both are of the order of 1


def _expected_gradient(run: Runner, case: Case) -> float | None:
    """The mean over the vocabulary of a token's gradient with respect to the logits, next to that of a divergence.

    With k' the derivative of the estimator, it is sum_y p(y) k'(y) (1[y] - p) = p (k' - mean k'). For k2, and for any
    estimator under either correction, it is the gradient of KL(p || q), p (d - mean d); for k1 it is 0; for k3 it is
    that of KL(q || p), p - q.
    """
    import numpy as np

    estimator, gradient = case.knobs["estimator"], case.knobs["gradient"]
    ready = _vocabulary(case)
    found = run(ready).gradients
    if not found or (estimator == "abs" and gradient != "k2") or (estimator == "k2" and gradient == "importance"):
        return None  # neither is the gradient of a divergence
    log_p, log_q = ready.inputs["log_prob"], ready.inputs["ref_log_prob"]
    p, d = np.exp(log_p), log_p - log_q
    slope = found["log_prob"] / normal("kl", log_p.shape)  # the engine weighs each output by such a number
    mean = p * (slope - (p * slope).sum(axis=-1, keepdims=True))
    divergence = p * (d - (p * d).sum(axis=-1, keepdims=True))
    if gradient == "own" and estimator != "k2":
        divergence = 0 * p if estimator == "k1" else p - np.exp(log_q)
    return float(np.abs(mean - divergence).max())


def _by_token(run: Runner, case: Case) -> float | None:
    """A token's estimate reads that token only: with all others changed it is the same."""
    kept = {name: array.copy() for name, array in case.inputs.items()}
    if kept["log_prob"].shape[1] < 2:
        return None
    for array in kept.values():
        array[:, 1:] = array[:, 1:] / 2 - 1
    before, after = run(case), run(Case(kept, case.knobs))
    return error(after.outputs["kl"][:, :1], before.outputs["kl"][:, :1], condition=1.0)


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    log_prob: Any,
    ref_log_prob: Any,
    *,
    estimator: str,
    gradient: str,
    ratio: Any = None,
    estimate: Mapping[str, Any] | None = None,
    bind: Mapping[str, Any] | None = None,
) -> Outputs:
    """The estimate with one part replaced. A part left out is the right one, from the minimal version.

    ``estimate`` has another formula for some estimators, ``bind`` another way to some gradients.
    """
    from minimal.post_training import kl_torch as right

    d = (ratio or right.log_ratio)(log_prob, ref_log_prob)
    formulas, ways = estimate or {}, bind or {}

    def k(name: str) -> Any:
        return formulas[name](d, name == "low_var_kl") if name in formulas else right.kl_estimate(d, estimator=name)

    value = k(estimator)
    if gradient in ways:
        return {"kl": ways[gradient](value, k, log_prob)}
    if gradient == "k2":
        return {"kl": right.straight_through(value, k("k2"))}
    return {"kl": right.importance_weighted(value, log_prob) if gradient == "importance" else value}


def _estimate(**formulas: Any) -> Any:
    return functools.partial(_variant, estimate=formulas)


def _bind(**ways: Any) -> Any:
    return functools.partial(_variant, bind=ways)


def _late_clamp(d: Any, clamp: bool) -> Any:
    k3 = (-d).exp() + d - 1
    return k3.clamp(-10, 10) if clamp else k3


def _ratio_clamp_only(d: Any, clamp: bool) -> Any:
    backwards = (-d).clamp(-20, 20) if clamp else -d
    return backwards.exp() - backwards - 1


def _score_only(value: Any, _: Any, log_prob: Any) -> Any:
    return value.detach() * (log_prob - log_prob.detach()).exp()


DEVIATIONS = (
    Deviation(
        name="k1-for-k2",
        wrong="k1 as the loss: its value may be negative and its gradient ignores the reference",
        right="k2 as the loss",
        call=_estimate(k2=lambda d, _: d),
        seen_in="open-instruct #534, verl #2953",
        zoo=2,
        stage="estimate",
    ),
    Deviation(
        name="own-gradient",
        wrong="the estimator's own gradient, which is biased, where that of k2 is asked for",
        right="the value of the estimator with the gradient of k2",
        call=_bind(k2=lambda value, *_: value),
        seen_in="verl #2953",
        zoo=2,
        stage="kl",
    ),
    Deviation(
        name="both-gradients",
        wrong="the value not detached: its own gradient and that of k2 add up",
        right="that of k2 alone",
        call=_bind(k2=lambda value, k, _: value + k("k2") - k("k2").detach()),
        stage="kl",
    ),
    Deviation(
        name="gradient-of-k1",
        wrong="the straight-through gradient is that of k1",
        right="that of k2",
        call=_bind(k2=lambda value, k, _: value.detach() + (k("k1") - k("k1").detach())),
        stage="kl",
    ),
    Deviation(
        name="importance-forgotten",
        wrong="no ratio, so that the gradient is biased",
        right="weighed by a ratio that is 1 and has a gradient",
        call=_bind(importance=lambda value, *_: value),
        stage="kl",
    ),
    Deviation(
        name="score-only",
        wrong="the ratio times a detached estimate: the estimate's own gradient is lost",
        right="the product rule in full",
        call=_bind(importance=_score_only),
        stage="kl",
    ),
    Deviation(
        name="ratio-detached",
        wrong="the ratio without a gradient",
        right="with it",
        call=_bind(importance=lambda value, _, log_prob: value * (log_prob.detach() - log_prob.detach()).exp()),
        stage="kl",
    ),
    Deviation(
        name="policies-swapped",
        wrong="log ref - log pi as the log-ratio: another divergence",
        right="log pi - log ref",
        call=functools.partial(_variant, ratio=lambda log_prob, ref: ref - log_prob),
        stage="log_ratio",
    ),
    Deviation(
        name="policy-detached",
        wrong="the policy's log-probability without a gradient",
        right="with it",
        call=functools.partial(_variant, ratio=lambda log_prob, ref: log_prob.detach() + 0 * log_prob - ref),
        stage="log_ratio",
    ),
    Deviation(
        name="bfloat16-ratio",
        wrong="the log-ratio rounded to bfloat16",
        right="kept in the dtype of the run",
        call=functools.partial(_variant, ratio=lambda log_prob, ref: (log_prob - ref).bfloat16().to(ref.dtype)),
        stage="log_ratio",
    ),
    Deviation(
        name="ratio-of-probabilities",
        wrong="pi - ref",
        right="log pi - log ref",
        call=functools.partial(_variant, ratio=lambda log_prob, ref: log_prob.exp() - ref.exp()),
        stage="log_ratio",
    ),
    Deviation(
        name="k2-without-half",
        wrong="d^2: twice the penalty and twice the gradient",
        right="d^2 / 2",
        call=_estimate(k2=lambda d, _: d**2),
        stage="estimate",
    ),
    Deviation(
        name="k3-without-one",
        wrong="exp(-d) + d, 1 where the policies are equal",
        right="exp(-d) + d - 1",
        call=_estimate(**dict.fromkeys(("k3", "low_var_kl"), lambda d, clamp: _late_clamp(d, clamp) + 1)),
        stage="estimate",
    ),
    Deviation(
        name="k3-backwards",
        wrong="exp(d) - d - 1: never negative either, but its mean is no divergence",
        right="exp(-d) + d - 1",
        call=_estimate(**dict.fromkeys(("k3", "low_var_kl"), lambda d, clamp: _late_clamp(-d, clamp))),
        stage="estimate",
    ),
    Deviation(
        name="k3-clamped-late",
        wrong="only the result is clamped: infinite before, NaN in the gradient",
        right="the exponent as well",
        call=_estimate(low_var_kl=_late_clamp),
        stage="estimate",
    ),
    Deviation(
        name="k3-unbounded",
        wrong="only the exponent is clamped, so that k3 goes up to e^20",
        right="the result as well",
        call=_estimate(low_var_kl=_ratio_clamp_only),
        stage="estimate",
    ),
    Deviation(name="absolute-forgotten", wrong="d", right="|d|", call=_estimate(abs=lambda d, _: d), stage="estimate"),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _by_function(log_prob: Any, ref_log_prob: Any, *, estimator: str, gradient: str) -> Outputs:
    """An autograd function that states value and derivative apart."""
    import torch

    d = log_prob - ref_log_prob
    held = (-d).clamp(-20, 20)
    k3, low = (-d).exp() + d - 1, held.exp() - held - 1
    inside = (low <= 10) & (held == -d)
    values = {"k1": d, "abs": d.abs(), "k2": d * d / 2, "k3": k3, "low_var_kl": low.clamp(max=10)}
    slopes = {"k1": torch.ones_like(d), "abs": d.sign(), "k2": d, "k3": 1 - (-d).exp()}
    slopes["low_var_kl"] = torch.where(inside, 1 - held.exp(), 0.0)
    slope = slopes["k2" if gradient == "k2" else estimator] + (values[estimator] if gradient == "importance" else 0)

    class Bound(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, moved: Any) -> Any:
            return values[estimator].detach().clone()

        @staticmethod
        def backward(context: Any, outer: Any) -> Any:
            return outer * slope.detach()

    return {"kl": Bound.apply(log_prob)}


REWRITINGS = (Rewriting("stated-derivative", "value and derivative written down apart", _by_function),)


# Contract -------------------------------------------------------------------------------------------------------------

ESTIMATORS = ("k3", "low_var_kl", "k1", "k2", "abs")

GRADIENTS = ("own", "k2", "importance")

KNOBS = (
    Knob(
        "estimator",
        "k3",
        ESTIMATORS,
        "With d = log pi - log ref: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d, abs = |d|; low_var_kl is k3 with its"
        " exponent held within 20 and itself within 10. TRL's GRPO has k3; verl has all others, by other names too: kl"
        " is k1, mse is k2, and what it calls k3 is low_var_kl.",
    ),
    Knob(
        "gradient",
        "own",
        GRADIENTS,
        "Whose gradient: the estimator's own; that of k2 (verl's names ending in '+'); or the estimator's times the"
        " importance ratio, which is 1 (TRL's use_bias_correction_kl).",
    ),
)

INPUTS = (
    Input("log_prob", ("B", "T"), "float", "Log-probability of each drawn token under the policy.", "nat", True),
    Input("ref_log_prob", ("B", "T"), "float", "The same under the reference policy; a constant.", "nat"),
)

OUTPUTS = (Output("kl", ("B", "T"), "The estimate at each token.", "nat"),)

AXES = probes.axes_of(INPUTS, OUTPUTS)


def _log_ratio(log_prob: Any, ref_log_prob: Any) -> Any:
    from minimal.post_training import kl_torch

    return kl_torch.log_ratio(log_prob, ref_log_prob)


def _estimator_value(log_ratio: Any, *, estimator: str) -> Any:
    from minimal.post_training import kl_torch

    return kl_torch.kl_estimate(log_ratio, estimator=estimator)


def _with_gradient(estimate: Any, log_ratio: Any, log_prob: Any, *, gradient: str) -> Any:
    from minimal.post_training import kl_torch

    if gradient == "k2":
        return kl_torch.straight_through(estimate, kl_torch.kl_estimate(log_ratio, estimator="k2"))
    return kl_torch.importance_weighted(estimate, log_prob) if gradient == "importance" else estimate


STAGES = (
    Stage("log_ratio", ("B", "T"), "log pi - log ref", _log_ratio, "nat"),
    Stage("estimate", ("B", "T"), "the estimator of that", _estimator_value, "nat"),
    Stage("kl", ("B", "T"), "the same value, with the gradient that is asked for", _with_gradient, "nat"),
)

CONTRACT = Contract(
    name="kl-penalty",
    kind="value",
    title="KL penalty of a token, and its gradient",
    doc=(
        "Estimators of KL(pi || ref) from the drawn token. k1 and k3 have the divergence as their mean. Of their own"
        " gradients only that of k2 has the divergence's as its mean; that of k1 has 0, and that of k3 the gradient of"
        " KL(ref || pi). J. Schulman, Approximating KL divergence, 2020; DeepSeekMath, arXiv 2402.03300, equation 4."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=(
        probes.identity("at-reference", "equal policies: the estimate is 0", _same, _at_reference),
        Probe("expectation", "over a vocabulary, the mean of k1 and of k3 is the divergence", _expectation),
        Probe("expected-gradient", "over a vocabulary, the mean gradient is the one stated", _expected_gradient),
        Probe("token-by-token", "other tokens do not matter", _by_token),
        probes.permutation(AXES, "B"),
        probes.permutation(AXES, "T", name="permutation of tokens"),
        probes.padding(AXES, "T", {"log_prob": 0.0, "ref_log_prob": 0.0}),
    ),
    stages=STAGES,
    rewritings=REWRITINGS,
)
