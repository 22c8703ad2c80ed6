"""The contract ``gae``: from token rewards and a critic's values to advantages and returns.

Bound to verl, which skips masked slots, knows no episodes beside the response and whitens inside, and to
Stable-Baselines3, which knows no mask and cuts at episodes' ends, where it tells a time limit from an end. Each sees
half of the inputs; the minimal version has both halves.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog._third_party import CORE, default_dtype, pinned
from annotator.contracts import probes
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


def _verl(
    token_level_rewards: Any,
    values: Any,
    response_mask: Any,
    terminated: Any,
    truncated: Any,
    final_values: Any,
    last_values: Any,
    *,
    gamma: float,
    lam: float,
    **_: Any,
) -> Outputs:
    """verl's masks are integers: it subtracts them from 1."""
    with default_dtype(values):
        advantages, returns = pinned(CORE).compute_gae_advantage_return(
            token_level_rewards=token_level_rewards,
            values=values,
            response_mask=response_mask.long(),
            gamma=gamma,
            lam=lam,
        )
    return {"advantages": advantages, "returns": returns}


def _sb3(
    token_level_rewards: Any,
    values: Any,
    response_mask: Any,
    *,
    gamma: float,
    lam: float,
    whitened: bool,
    eps: float,
    count_eps: float,
    masked: str,
    **ends: Any,
) -> Outputs:
    import torch

    from annotator.catalog import _sb3

    script = {"rewards": token_level_rewards, "values": values, **ends}
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in script.items()}
    buffer = _sb3.rollout(arrays, gamma=gamma, lam=lam, dtype=values.dtype)
    found = {"advantages": buffer.advantages, "returns": buffer.returns}  # [T, B] each
    return {name: torch.from_numpy(array.T.copy()).to(values.device) for name, array in found.items()}


def _named(result: Any) -> Outputs:
    return dict(zip(("advantages", "returns"), result, strict=True))


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.post_training import gae_torch

    return _named(gae_torch.gae(**arguments))


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.post_training import gae_jax

    return _named(gae_jax.gae(**arguments))


def _verl_accepts(case: Case) -> str | None:
    import numpy as np

    if any(np.any(case.inputs[name]) for name in ("terminated", "truncated", "last_values")):
        return "verl knows no end but that of the response, after which nothing has a value"
    if np.count_nonzero(case.inputs["response_mask"]) < 2:
        return "verl whitens, which takes two tokens at least"
    return None


def _sb3_accepts(case: Case) -> str | None:
    import numpy as np

    return None if np.all(case.inputs["response_mask"]) else "a rollout buffer has no masked slots"


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=(
            "verl:verl.trainer.ppo.core_algos.compute_gae_advantage_return",
            "verl:verl.utils.torch_functional.masked_whiten",
            "verl:verl.utils.torch_functional.masked_var",
            "verl:verl.utils.torch_functional.masked_mean",
            "verl:verl.utils.torch_functional.masked_sum",
        ),
        dialect={"whitened": True, "eps": 1e-8, "count_eps": 1e-8, "masked": "carry"},
        requires=("verl",),
        differentiable=False,
        accepts=_verl_accepts,
        breaks=("poison",),
    ),
    Implementation(
        name="sb3",
        role="reference",
        backend="torch",
        call=_sb3,
        symbols=(
            "stable-baselines3:stable_baselines3.common.buffers.RolloutBuffer.compute_returns_and_advantage",
            "stable-baselines3:stable_baselines3.common.on_policy_algorithm.OnPolicyAlgorithm.collect_rollouts",
            "stable-baselines3:stable_baselines3.common.vec_env.dummy_vec_env.DummyVecEnv.step_wait",
            "stable-baselines3:stable_baselines3.common.buffers.RolloutBuffer.add",
        ),
        dialect={"whitened": False},
        requires=("stable-baselines3", "gymnasium"),
        differentiable=False,
        accepts=_sb3_accepts,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/gae_torch.py",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/gae_jax.py",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------

VERL: Mapping[str, Any] = {"whitened": True, "eps": 1e-8, "count_eps": 1e-8, "masked": "carry"}
PLAIN: Mapping[str, Any] = {**VERL, "whitened": False}


def _case(
    label: str,
    rewards: Any,
    values: Any,
    mask: Any = None,
    *,
    terminated: Any = None,
    truncated: Any = None,
    final_values: Any = None,
    last_values: Any = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    **knobs: Any,
) -> Case:
    """A case at verl's dialect unless knobs are given; no ends, a full mask and no value after the last column."""
    import numpy as np

    array = np.array(rewards, dtype=np.float64)
    shape = array.shape

    def flags(given: Any) -> np.ndarray:
        return np.zeros(shape, dtype=bool) if given is None else np.array(given, dtype=bool)

    inputs = {
        "token_level_rewards": array,
        "values": np.array(values, dtype=np.float64),
        "response_mask": np.ones(shape, dtype=bool) if mask is None else np.array(mask, dtype=bool),
        "terminated": flags(terminated),
        "truncated": flags(truncated),
        "final_values": np.zeros(shape) if final_values is None else np.array(final_values, dtype=np.float64),
        "last_values": np.zeros(shape[0]) if last_values is None else np.array(last_values, dtype=np.float64),
    }
    return Case(inputs, {**VERL, "gamma": gamma, "lam": lam, **knobs}, label)


def _edges() -> tuple[Case, ...]:
    rewards = [[0.0, 0, 0, 1], [0, 0.5, 0, -1], [2, 0, 0, 0]]
    values = [[0.5, 0.25, -0.5, 0.75], [1, -1, 0.5, 0.25], [-0.25, 2, 1, 0.5]]
    ragged = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    holes = [[1, 0, 0, 1], [0, 1, 0, 1], [1, 1, 0, 0]]
    limit = [[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]
    end = [[0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 0, 0]]
    last, final = [1.0, -2.0, 0.5], [[3.0, 3, 3, 3], [-3, -3, -3, -3], [4, 4, 4, 4]]

    def scaled(rows: Any, power: int) -> list[list[float]]:
        return [[x * 2.0**power for x in row] for row in rows]

    return (
        _case("full rows", rewards, values),
        _case("full rows, Monte Carlo", rewards, values, gamma=1.0, lam=1.0),
        _case("full rows, one step", rewards, values, lam=0.0),
        _case("ragged rows", rewards, values, ragged),
        _case("holes: words of a tool", rewards, values, holes),
        _case("an empty row", rewards, values, [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]]),
        _case("two tokens in all", [[1.0, 0]], [[0.5, 0.25]]),
        _case("tiny rewards", scaled(rewards, -14), scaled(values, -14), ragged),
        _case("huge rewards", scaled(rewards, 20), values, ragged),
        _case("a rollout that goes on", rewards, values, last_values=last, **PLAIN),
        _case("truncated", rewards, values, truncated=limit, final_values=final, last_values=last, **PLAIN),
        _case("terminated", rewards, values, terminated=end, final_values=final, last_values=last, **PLAIN),
        _case(
            "terminated at its time limit",
            rewards,
            values,
            terminated=end,
            truncated=end,
            final_values=final,
            last_values=last,
            **PLAIN,
        ),
        _case(
            "all kinds of ends",
            rewards,
            values,
            terminated=end,
            truncated=limit,
            final_values=final,
            last_values=last,
            **PLAIN,
        ),
        _case("one step, truncated", [[1.0]], [[0.5]], truncated=[[1]], final_values=[[2.0]], **PLAIN),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Responses with a mask, or rollouts of environments with ends; eighths throughout.

    Which of both is read off the drawn numbers, odd or even: each reference sees one kind, and few draws must do.
    """
    from hypothesis import assume
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shape = draw(st.sampled_from(((1, 2), (2, 3), (3, 4))))

    def drawn(size: tuple[int, ...]) -> Any:
        return draw(hnp.arrays("int8", size, elements=st.integers(-16, 16)))

    rewards, values = drawn(shape), drawn(shape)
    knobs: dict[str, Any] = {
        name: draw(st.sampled_from(knob.choices)) for name, knob in KNOBS_BY_NAME.items() if name != "whitened"
    }
    if (rewards.sum() + values.sum()) % 2:
        made = _case("", rewards / 8, values / 8, draw(_masks(shape)), whitened=True, **knobs)
        assume(_spread_out(made))
        return made
    ends: dict[str, Any] = {name: draw(hnp.arrays("bool", shape)) for name in ("terminated", "truncated")}
    seen = {"final_values": drawn(shape) / 8, "last_values": drawn(shape[:1]) / 8}
    return _case("", rewards / 8, values / 8, **ends, **seen, whitened=False, **knobs)


def _masks(shape: tuple[int, int]) -> SearchStrategy[np.ndarray]:
    """Masks of all kinds, with holes or right-padded, with two steps at least."""
    import numpy as np
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    lengths = hnp.arrays("int8", shape[:1], elements=st.integers(0, shape[1]))
    padded = lengths.map(lambda n: np.arange(shape[1]) < n[:, None])
    return st.one_of(padded, hnp.arrays("bool", shape)).filter(lambda mask: mask.sum() > 1)


def _spread_out(case: Case) -> bool:
    """Whether the advantages' spread is not what rounding left of it: whitening would make it as large as any."""
    arguments: dict[str, Any] = {**case.inputs, **case.knobs, "whitened": False}
    real = _loops(**arguments)["advantages"][case.inputs["response_mask"]]
    return bool(real.size < 2 or not real.any() or real.std() > abs(real).max() / 64)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    token_level_rewards: Any,
    values: Any,
    response_mask: Any,
    terminated: Any,
    truncated: Any,
    final_values: Any,
    last_values: Any,
    *,
    gamma: float,
    lam: float,
    whitened: bool,
    eps: float,
    count_eps: float,
    masked: str,
    follow: Any = None,
    over: Any = None,
    difference: Any = None,
    sums: Any = None,
    decay: Any = None,
    total: Any = None,
    white: Any = None,
) -> Outputs:
    """GAE with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    from minimal.post_training import gae_torch as right

    mask, kept = response_mask, values
    next_values = (follow or right.following_values)(values, mask, terminated, truncated, final_values, last_values)
    deltas = (difference or right.td_errors)(token_level_rewards, kept, next_values, gamma=gamma)
    ended, limited = (over or (lambda ended, limited: (ended, limited)))(terminated, truncated)
    rates = (decay or (lambda gamma, lam: {"gamma": gamma, "lam": lam}))(gamma, lam)
    raw = (sums or right.discounted_sums)(deltas, mask, ended, limited, **rates)
    returns = raw + kept if total is None else total(raw, kept, token_level_rewards, mask, ended | limited, gamma)
    advantages = raw
    if whitened:
        advantages = (white or right.whiten)(raw, mask, eps=eps, count_eps=count_eps)
    if masked == "zero":
        advantages, returns = torch.where(mask, advantages, 0.0), torch.where(mask, returns, 0.0)
    return {"advantages": advantages, "returns": returns}


def _right() -> Any:
    from minimal.post_training import gae_torch

    return gae_torch


def _over_kills(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    """Nothing follows a truncated episode either."""
    return _right().following_values(values, mask, terminated | truncated, truncated, final, last)


def _next_episode(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    """After a truncation the value of the next column is taken, the first of another episode."""
    return _right().following_values(values, mask, terminated, truncated & False, final, last)


def _limit_first(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    return _right().following_values(values, mask, terminated & ~truncated, truncated, final, last)


def _end_lives(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    return _right().following_values(values, mask, terminated & False, truncated | terminated, final, last)


def _nothing_last(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    return _right().following_values(values, mask, terminated, truncated, final, last * 0)


def _adjoining(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    """The next column's value, be it masked or not."""
    return _right().following_values(values, mask | True, terminated, truncated, final, last)


def _masked_are_zero(values: Any, mask: Any, terminated: Any, truncated: Any, final: Any, last: Any) -> Any:
    """Masked slots are steps of value 0."""
    return _right().following_values(values * mask, mask | True, terminated, truncated, final, last)


def _reset(deltas: Any, mask: Any, terminated: Any, truncated: Any, *, gamma: float, lam: float) -> Any:
    """The sum starts anew after a masked slot."""
    return _right().discounted_sums(deltas, mask, terminated | ~mask, truncated, gamma=gamma, lam=lam) * mask


def _counted(deltas: Any, mask: Any, terminated: Any, truncated: Any, *, gamma: float, lam: float) -> Any:
    """A masked slot holds no error, and discounts."""
    return _right().discounted_sums(deltas * mask, mask | True, terminated, truncated, gamma=gamma, lam=lam)


def _forward(deltas: Any, mask: Any, terminated: Any, truncated: Any, *, gamma: float, lam: float) -> Any:
    flipped = [item.flip(1) for item in (deltas, mask, terminated, truncated)]
    return _right().discounted_sums(*flipped, gamma=gamma, lam=lam).flip(1)


def _rewards_to_go(raw: Any, values: Any, rewards: Any, mask: Any, over: Any, gamma: float) -> Any:
    return _right().discounted_sums(rewards, mask, over, over & False, gamma=gamma, lam=1.0)


def _shifted(ended: Any, limited: Any) -> Any:
    """Flags read as "an episode starts here": the cut comes a column late."""
    import torch

    def late(flags: Any) -> Any:
        return torch.cat((flags[:, :1] & False, flags[:, :-1]), dim=1)

    return late(ended), late(limited)


def _whiten(advantages: Any, mask: Any, *, eps: float, count_eps: float, how: str) -> Any:
    import torch

    count = mask.sum().to(advantages.dtype)
    mean = torch.where(mask, advantages, 0.0).sum() / (count + count_eps)
    squares = torch.where(mask, (advantages - mean) ** 2, 0.0).sum() / (count + count_eps)
    bessel = count / (count - 1)
    if how == "population":
        return (advantages - mean) * torch.rsqrt(squares + eps)
    if how == "outside":
        return (advantages - mean) / ((squares * bessel).sqrt() + eps)
    if how == "uncentred":
        return advantages * torch.rsqrt(squares * bessel + eps)
    return advantages - mean


def _unmasked_statistics(advantages: Any, mask: Any, *, eps: float, count_eps: float) -> Any:
    return _right().whiten(advantages, mask | True, eps=eps, count_eps=count_eps)


def _padded_with_zeros(advantages: Any, mask: Any, *, eps: float, count_eps: float) -> Any:
    return _right().whiten(advantages * mask, mask | True, eps=eps, count_eps=count_eps)


def _by_row(advantages: Any, mask: Any, *, eps: float, count_eps: float) -> Any:
    import torch

    count = mask.sum(dim=1, keepdim=True).to(advantages.dtype)
    mean = torch.where(mask, advantages, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    squares = torch.where(mask, (advantages - mean) ** 2, 0.0).sum(dim=1, keepdim=True)
    return (advantages - mean) * torch.rsqrt(squares / (count - 1).clamp(min=1) + eps)


DEVIATIONS = (
    Deviation(
        name="truncation-is-termination",
        wrong="nothing follows an episode that a time limit cut",
        right="the value of the observation that was seen last",
        call=functools.partial(_variant, follow=_over_kills),
        seen_in="CleanRL #198, #457; skrl #449",
        zoo=15,
        stage="next_values",
    ),
    Deviation(
        name="bootstrap-from-next-episode",
        wrong="after a truncation the value of the next column, the first of another episode",
        right="the value of the observation that was seen last",
        call=functools.partial(_variant, follow=_next_episode),
        stage="next_values",
    ),
    Deviation(
        name="limit-beats-end",
        wrong="an episode that ends at its time limit counts as truncated",
        right="as terminated",
        call=functools.partial(_variant, follow=_limit_first),
        stage="next_values",
    ),
    Deviation(
        name="termination-bootstraps",
        wrong="the value of the last observation follows a terminated episode",
        right="nothing follows",
        call=functools.partial(_variant, follow=_end_lives),
        stage="next_values",
    ),
    Deviation(
        name="no-last-value",
        wrong="nothing follows the last column",
        right="the value of what was seen after it",
        call=functools.partial(_variant, follow=_nothing_last),
        stage="next_values",
    ),
    Deviation(
        name="masked-value-follows",
        wrong="the value of the next column, masked or not",
        right="of the next real one",
        call=functools.partial(_variant, follow=_adjoining),
        stage="next_values",
    ),
    Deviation(
        name="masked-value-zero",
        wrong="masked slots are steps of value 0",
        right="they are skipped",
        call=functools.partial(_variant, follow=_masked_are_zero),
        stage="next_values",
    ),
    Deviation(
        name="sum-across-episodes",
        wrong="the sum runs on into the next episode after a truncation",
        right="it is cut after every end",
        call=functools.partial(_variant, over=lambda ended, limited: (ended, limited & False)),
        stage="raw_advantages",
    ),
    Deviation(
        name="cut-a-step-late",
        wrong="the flags cut the sum a column late",
        right="after the step that carries them",
        call=functools.partial(_variant, over=_shifted),
        stage="raw_advantages",
    ),
    Deviation(
        name="sum-stops-at-holes",
        wrong="the sum starts anew after a masked slot",
        right="it is passed on",
        call=functools.partial(_variant, sums=_reset),
        stage="raw_advantages",
    ),
    Deviation(
        name="holes-discount",
        wrong="a masked slot discounts as a step does",
        right="it is skipped",
        call=functools.partial(_variant, sums=_counted),
        stage="raw_advantages",
    ),
    Deviation(
        name="forward",
        wrong="the sum runs from the first step to the last",
        right="from the last to the first",
        call=functools.partial(_variant, sums=_forward),
        stage="raw_advantages",
    ),
    Deviation(
        name="decay-lambda-only",
        wrong="errors ahead are weighed by lambda",
        right="by gamma lambda",
        call=functools.partial(_variant, decay=lambda gamma, lam: {"gamma": 1.0, "lam": lam}),
        stage="raw_advantages",
    ),
    Deviation(
        name="undiscounted-values",
        wrong="r + V' - V",
        right="r + gamma V' - V",
        call=functools.partial(_variant, difference=lambda r, v, n, *, gamma: r + n - v),
        stage="deltas",
    ),
    Deviation(
        name="monte-carlo-returns",
        wrong="returns are discounted sums of rewards",
        right="advantages plus values",
        call=functools.partial(_variant, total=_rewards_to_go),
        stage="returns",
    ),
    Deviation(
        name="population-variance",
        wrong="the population's variance",
        right="Bessel's correction",
        call=functools.partial(_variant, white=functools.partial(_whiten, how="population")),
        stage="advantages",
    ),
    Deviation(
        name="eps-outside-root",
        wrong="std + eps",
        right="sqrt(var + eps)",
        call=functools.partial(_variant, white=functools.partial(_whiten, how="outside")),
        stage="advantages",
    ),
    Deviation(
        name="scaled-not-centred",
        wrong="divided by the std, the mean left in",
        right="the mean taken off",
        call=functools.partial(_variant, white=functools.partial(_whiten, how="uncentred")),
        stage="advantages",
    ),
    Deviation(
        name="padding-in-statistics",
        wrong="mean and variance over all slots",
        right="over the real ones",
        call=functools.partial(_variant, white=_unmasked_statistics),
        stage="advantages",
    ),
    Deviation(
        name="zeros-in-statistics",
        wrong="masked slots count as zeros in mean and variance",
        right="real slots only",
        call=functools.partial(_variant, white=_padded_with_zeros),
        stage="advantages",
    ),
    Deviation(
        name="whitened-by-row",
        wrong="mean and variance of each response",
        right="of the batch",
        call=functools.partial(_variant, white=_by_row),
        stage="advantages",
    ),
)


# Probes ---------------------------------------------------------------------------------------------------------------


def _unread(name: str, value: float, doc: str) -> Probe:
    """What masked slots hold does not reach the real ones. (What leaves at masked slots is nobody's business.)"""

    def relation(run: Runner, case: Case) -> float | None:
        import dataclasses

        import numpy as np

        mask = np.asarray(case.inputs["response_mask"], dtype=bool)
        if mask.all():
            return None
        covered = {n: np.where(mask, case.inputs[n], value) for n in ("token_level_rewards", "values", "final_values")}
        before, after = run(case), run(dataclasses.replace(case, inputs={**case.inputs, **covered}, label=""))

        def seen(result: Any) -> Any:
            outputs = {key: np.where(mask, array, 0.0) for key, array in result.outputs.items()}
            return dataclasses.replace(result, outputs=outputs)

        return probes.apart(seen(after), seen(before), case, gradient=False)

    return Probe(name, doc, relation)


def _telescopes(run: Runner, case: Case) -> float | None:
    """With gamma = lambda = 1 and no ends, returns minus what follows are sums of rewards: values cancel."""
    import dataclasses

    import numpy as np

    mask = np.asarray(case.inputs["response_mask"], dtype=bool)
    if np.any(case.inputs["terminated"]) or np.any(case.inputs["truncated"]) or not mask.any():
        return None
    other = np.where(mask, np.cos(np.arange(mask.size)).reshape(mask.shape), case.inputs["values"])
    flat = dataclasses.replace(case, knobs={**case.knobs, "gamma": 1.0, "lam": 1.0}, label="")
    moved = dataclasses.replace(flat, inputs={**flat.inputs, "values": other})
    first, second = (
        dataclasses.replace(result, outputs={"returns": np.where(mask, result.outputs["returns"], 0.0)})
        for result in (run(flat), run(moved))
    )
    return probes.apart(second, first, moved, gradient=False)


INPUTS = (
    Input("token_level_rewards", ("B", "T"), "float", "Reward of each step; finite in masked slots too.", "reward"),
    Input("values", ("B", "T"), "float", "V: what the critic expected before each step, at rollout.", "reward"),
    Input("response_mask", ("B", "T"), "bool", "True at steps; other slots are skipped. Holes are allowed."),
    Input("terminated", ("B", "T"), "bool", "The episode ended with this step: nothing follows."),
    Input("truncated", ("B", "T"), "bool", "A limit cut the episode after this step; terminated overrules it."),
    Input("final_values", ("B", "T"), "float", "V of the last observation of a truncated episode.", "reward"),
    Input("last_values", ("B",), "float", "V of what comes after the last column; 0 if nothing does.", "reward"),
)

OUTPUTS = (
    Output("advantages", ("B", "T"), "Weight of each step.", "reward, or none once whitened", differentiable=False),
    Output("returns", ("B", "T"), "What the critic is taught.", "reward", differentiable=False),
)

_AXES = probes.axes_of(INPUTS, OUTPUTS)

PROBES = (
    _unread("poison", float("nan"), "not-a-number in masked slots does not reach the real ones"),
    _unread("stale", 1024.0, "what masked slots hold does not reach the real ones"),
    probes.poison({"final_values": "truncated"}, name="final-values"),
    probes.permutation(_AXES, "B"),
    Probe("telescope", "at gamma = lambda = 1 without ends returns do not depend on values", _telescopes),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("gamma", 0.99, (0.99, 1.0, 0.9), "Discount. An argument everywhere; verl's default configuration has 1."),
    Knob("lam", 0.95, (0.95, 1.0, 0.5, 0.0), "Lambda: 1 is Monte Carlo, 0 is TD(0)."),
    Knob(
        "whitened",
        True,
        (True, False),
        "Whether advantages are whitened here. verl does; Stable-Baselines3 leaves it to the minibatch.",
    ),
    Knob("eps", 1e-8, (1e-8, 1e-5), "Added to the variance under the root."),
    Knob("count_eps", 1e-8, (1e-8, 0.0), "Added to the number of tokens where it divides. verl: 1e-8; most: nothing."),
    Knob(
        "masked",
        "carry",
        ("carry", "zero"),
        "What masked slots hold: what they passed on (verl, which does not mask its result again), or 0.",
    ),
)

KNOBS_BY_NAME = {knob.name: knob for knob in KNOBS}


def _next_values(
    values: Any, response_mask: Any, terminated: Any, truncated: Any, final_values: Any, last_values: Any
) -> Any:
    return _right().following_values(values, response_mask, terminated, truncated, final_values, last_values)


def _deltas(token_level_rewards: Any, values: Any, next_values: Any, *, gamma: float) -> Any:
    return _right().td_errors(token_level_rewards, values, next_values, gamma=gamma)


def _raw_advantages(
    deltas: Any, response_mask: Any, terminated: Any, truncated: Any, *, gamma: float, lam: float
) -> Any:
    return _right().discounted_sums(deltas, response_mask, terminated, truncated, gamma=gamma, lam=lam)


def _returns(raw_advantages: Any, values: Any, response_mask: Any, *, masked: str) -> Any:
    return _right().lambda_returns(raw_advantages, values, response_mask, masked=masked)


def _advantages(
    raw_advantages: Any, response_mask: Any, *, whitened: bool, eps: float, count_eps: float, masked: str
) -> Any:
    return _right().finished_advantages(
        raw_advantages, response_mask, whitened=whitened, eps=eps, count_eps=count_eps, masked=masked
    )


STAGES = (
    Stage("next_values", ("B", "T"), "V', the value of what follows each step.", _next_values, "reward"),
    Stage("deltas", ("B", "T"), "The one-step errors r + gamma V' - V.", _deltas, "reward"),
    Stage("raw_advantages", ("B", "T"), "Their discounted sums, before whitening.", _raw_advantages, "reward"),
    Stage("returns", ("B", "T"), "Advantages plus values.", _returns, "reward"),
    Stage("advantages", ("B", "T"), "The advantages, whitened where asked for.", _advantages),
)


def _loops(
    token_level_rewards: Any,
    values: Any,
    response_mask: Any,
    terminated: Any,
    truncated: Any,
    final_values: Any,
    last_values: Any,
    *,
    gamma: float,
    lam: float,
    whitened: bool,
    eps: float,
    count_eps: float,
    masked: str,
) -> Outputs:
    """NumPy, row by row over the real steps alone; afterwards masked slots copy what lies to their right."""
    import numpy as np

    raw = np.zeros_like(values)
    for i, row in enumerate(values):
        follows, ahead, before = last_values[i], values.dtype.type(0), values.shape[1]
        for t in [int(t) for t in np.flatnonzero(response_mask[i])][::-1]:
            raw[i, t + 1 : before] = ahead
            if terminated[i, t]:
                follows, ahead = follows * 0, ahead * 0
            elif truncated[i, t]:
                follows, ahead = final_values[i, t], ahead * 0
            ahead = token_level_rewards[i, t] + gamma * follows - row[t] + gamma * lam * ahead
            raw[i, t], follows, before = ahead, row[t], t
        raw[i, :before] = ahead
    returns, advantages = raw + values, raw
    if whitened:
        real = raw[response_mask]
        mean = real.sum() / (real.size + count_eps)
        variance = ((real - mean) ** 2).sum() / (real.size + count_eps) * real.size / (real.size - 1)
        advantages = (raw - mean) / np.sqrt(variance + eps)
    if masked == "zero":
        advantages, returns = advantages * response_mask, returns * response_mask
    return {"advantages": advantages, "returns": returns}


CONTRACT = Contract(
    name="gae",
    kind="value",
    title="Generalised advantage estimation (GAE)",
    doc=(
        "delta_t = r_t + gamma V'_t - V_t; the advantage is the sum of gamma lambda to the power of k times delta at"
        " the k-th step from here, up to the end of the episode; the return is the advantage plus V. V' is the value of"
        " the next real step, 0 after a termination, and the value of the last observation after a truncation. Masked"
        " slots are no steps. Schulman et al., arXiv 1506.02438, section 3."
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
    rewritings=(Rewriting("loops", "NumPy, row by row over the real steps alone", _loops, backend="numpy"),),
)
