"""The contract ``remax-advantage``: rewards to go less the reward of the greedy reply.

Bound to verl, which computes it from three tensors. That the second of them is there at all is the trainer's doing: it
has to ask for one more, greedy, generation a prompt.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog._third_party import CORE, pinned
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
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]


# Implementations ------------------------------------------------------------------------------------------------------


def _verl(token_level_rewards: Any, reward_baselines: Any, response_mask: Any, *, masked: str) -> Outputs:
    advantages, returns = pinned(CORE).compute_remax_outcome_advantage(
        token_level_rewards=token_level_rewards, reward_baselines=reward_baselines, response_mask=response_mask
    )
    return {"advantages": advantages, "returns": returns}


def _named(result: Any) -> Outputs:
    return dict(zip(("advantages", "returns"), result, strict=True))


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.post_training import remax_torch

    return _named(remax_torch.remax_advantages(**arguments))


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.post_training import remax_jax

    return _named(remax_jax.remax_advantages(**arguments))


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=("verl:verl.trainer.ppo.core_algos.compute_remax_outcome_advantage",),
        dialect={"masked": "carry"},
        requires=("verl",),
        differentiable=False,
        breaks=("poison",),  # rewards are multiplied by the mask: NaN times 0
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/remax_torch.py",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/remax_jax.py",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, rewards: Any, baselines: Any, mask: Any = None, **knobs: Any) -> Case:
    import numpy as np

    array = np.array(rewards, dtype=np.float64)
    inputs = {
        "token_level_rewards": array,
        "reward_baselines": np.array(baselines, dtype=np.float64),
        "response_mask": np.ones(array.shape, dtype=bool) if mask is None else np.array(mask, dtype=bool),
    }
    return Case(inputs, {"masked": "carry", **knobs}, label)


def _edges() -> tuple[Case, ...]:
    outcome = [[0.0, 0, 0, 1], [0, -0.5, 0, 0], [2, 0, 0, 0]]
    process = [[0.25, -1, 0.5, 1], [1, -0.5, 8, 8], [2, 8, 8, 8]]
    ragged = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    greedy = [0.5, 1.0, -0.25]

    def scaled(rows: Any, power: int) -> Any:
        return [[x * 2.0**power for x in row] for row in rows]

    return (
        _case("a reward at the last token", outcome, greedy, ragged),
        _case("a reward at every token, and under the mask", process, greedy, ragged),
        _case("no padding", process, greedy),
        _case("holes", process, greedy, [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]]),
        _case("an empty row", outcome, greedy, [[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]),
        _case("as good as the greedy reply", outcome, [1.0, -0.5, 2.0], ragged),
        _case("greedy replies without reward", outcome, [0.0, 0.0, 0.0], ragged),
        _case("one token", [[1.0]], [0.25]),
        _case("huge rewards", scaled(process, 40), [2.0**40, 1.0, 0.0], ragged),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Rewards and baselines in eighths, exact in float32 with all their sums."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shape = draw(st.sampled_from(((1, 1), (1, 3), (3, 2), (3, 4))))
    eighths = st.integers(-16, 16)
    rewards = draw(hnp.arrays("int8", shape, elements=eighths)) / 8
    baselines = draw(hnp.arrays("int8", shape[:1], elements=eighths)) / 8
    mask = draw(hnp.arrays("bool", shape))
    return _case("", rewards, baselines, mask, masked=draw(st.sampled_from(("carry", "zero"))))


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _right() -> Any:
    from minimal.post_training import remax_torch

    return remax_torch


def _variant(
    token_level_rewards: Any,
    reward_baselines: Any,
    response_mask: Any,
    *,
    masked: str,
    sums: Any = None,
    baseline: Any = None,
    subtract: Any = None,
    total: Any = None,
    scale: Any = None,
) -> Outputs:
    """The advantage with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    right = _right()
    returns = (sums or right.rewards_to_go)(token_level_rewards, response_mask)
    against = reward_baselines if baseline is None else baseline(reward_baselines, returns)
    advantages = (subtract or right.less_baseline)(returns, against, response_mask)
    returns = returns if total is None else total(returns, advantages)
    advantages = advantages if scale is None else scale(advantages, response_mask)
    if masked == "zero":
        advantages, returns = (torch.where(response_mask, item, 0.0) for item in (advantages, returns))
    return {"advantages": advantages, "returns": returns}


def _whole(rewards: Any, mask: Any) -> Any:
    return _right().rewards_to_go(rewards, mask)[:, :1].expand_as(rewards)


def _so_far(rewards: Any, mask: Any) -> Any:
    return (rewards * mask).cumsum(dim=-1)


def _later(rewards: Any, mask: Any) -> Any:
    return _right().rewards_to_go(rewards, mask) - rewards * mask


def _unmasked(rewards: Any, mask: Any) -> Any:
    return _right().rewards_to_go(rewards, mask | True)


def _averaged(rewards: Any, mask: Any) -> Any:
    return _right().rewards_to_go(rewards, mask) / mask.sum(dim=-1, keepdim=True).clamp(min=1)


def _per_token(returns: Any, baselines: Any, mask: Any) -> Any:
    return _right().less_baseline(returns, baselines / mask.sum(dim=-1).clamp(min=1), mask)


def _first_token(returns: Any, baselines: Any, mask: Any) -> Any:
    first = mask & (mask.long().cumsum(dim=-1) == 1)
    return _right().less_baseline(returns, baselines, first)


def _std(advantages: Any, mask: Any) -> Any:
    import torch

    n = mask.sum()
    mean = torch.where(mask, advantages, 0.0).sum() / n.clamp(min=1)
    squares = torch.where(mask, (advantages - mean) ** 2, 0.0).sum()
    return advantages / ((squares / (n - 1).clamp(min=1)).sqrt() + 1e-6)


DEVIATIONS = (
    Deviation(
        name="no-greedy-baseline",
        wrong="the reward alone: no greedy reply was asked for",
        right="less the reward of the greedy reply",
        call=functools.partial(_variant, baseline=lambda greedy, _: greedy * 0),
        seen_in="verl #3089",
        zoo=24,
        stage="advantages",
    ),
    Deviation(
        name="mean-baseline",
        wrong="less the mean reward of the sampled replies",
        right="of each prompt's greedy reply",
        call=functools.partial(_variant, baseline=lambda greedy, returns: greedy * 0 + returns[:, 0].mean()),
        stage="advantages",
    ),
    Deviation(
        name="batch-baseline",
        wrong="less the mean of the greedy rewards of the batch",
        right="of the row's own prompt",
        call=functools.partial(_variant, baseline=lambda greedy, _: greedy * 0 + greedy.mean()),
        stage="advantages",
    ),
    Deviation(
        name="baselines-shifted",
        wrong="the baseline of the row before",
        right="of the row's own prompt",
        call=functools.partial(_variant, baseline=lambda greedy, _: greedy.roll(1)),
        stage="advantages",
    ),
    Deviation(
        name="baseline-added",
        wrong="the baseline added",
        right="subtracted",
        call=functools.partial(_variant, baseline=lambda greedy, _: -greedy),
        stage="advantages",
    ),
    Deviation(
        name="baseline-unmasked",
        wrong="masked slots get minus the baseline",
        right="no baseline there",
        call=functools.partial(_variant, subtract=lambda returns, greedy, _: returns - greedy[:, None]),
        stage="advantages",
    ),
    Deviation(
        name="baseline-per-token",
        wrong="the baseline spread over the tokens",
        right="the whole of it at every token",
        call=functools.partial(_variant, subtract=_per_token),
        stage="advantages",
    ),
    Deviation(
        name="baseline-once",
        wrong="the baseline at the first token alone",
        right="at every token",
        call=functools.partial(_variant, subtract=_first_token),
        stage="advantages",
    ),
    Deviation(
        name="whole-reward",
        wrong="every token gets the reward of the whole reply",
        right="its own and what comes later",
        call=functools.partial(_variant, sums=_whole),
        stage="returns",
    ),
    Deviation(
        name="rewards-so-far",
        wrong="summed from the first token on",
        right="up to the last",
        call=functools.partial(_variant, sums=_so_far),
        stage="returns",
    ),
    Deviation(
        name="own-reward-left-out",
        wrong="later rewards alone",
        right="the token's own too",
        call=functools.partial(_variant, sums=_later),
        stage="returns",
    ),
    Deviation(
        name="masked-rewards-counted",
        wrong="rewards of masked slots count",
        right="they do not",
        call=functools.partial(_variant, sums=_unmasked),
        stage="returns",
    ),
    Deviation(
        name="mean-reward",
        wrong="divided by the length of the reply",
        right="a sum",
        call=functools.partial(_variant, sums=_averaged),
        stage="returns",
    ),
    Deviation(
        name="baseline-in-returns",
        wrong="the returns lose the baseline too",
        right="the advantages alone",
        call=functools.partial(_variant, total=lambda returns, advantages: advantages),
        stage="returns",
    ),
    Deviation(
        name="scaled",
        wrong="divided by the std over tokens",
        right="left in units of reward",
        call=functools.partial(_variant, scale=_std),
        stage="advantages",
    ),
)


# Probes, stages and rewritings ----------------------------------------------------------------------------------------


def _greedy(run: Runner, case: Case) -> float | None:
    """A reply that earns what the greedy one did has advantage 0 at its first token."""
    import dataclasses

    import numpy as np

    mask = np.asarray(case.inputs["response_mask"], dtype=bool)
    earned = np.where(mask, case.inputs["token_level_rewards"], 0.0).sum(axis=1)
    equal = dataclasses.replace(case, inputs={**case.inputs, "reward_baselines": earned}, label="")
    first = mask & (mask.cumsum(axis=1) == 1)
    found = run(equal)
    kept = dataclasses.replace(found, outputs={"advantages": np.where(first, found.outputs["advantages"], 0.0)})
    nothing = dataclasses.replace(found, outputs={"advantages": np.zeros(mask.shape)})
    return probes.apart(kept, nothing, equal, gradient=False)


def _returns(token_level_rewards: Any, response_mask: Any) -> Any:
    return _right().rewards_to_go(token_level_rewards, response_mask)


def _advantages(returns: Any, reward_baselines: Any, response_mask: Any, *, masked: str) -> Any:
    import torch

    found = _right().less_baseline(returns, reward_baselines, response_mask)
    return torch.where(response_mask, found, 0.0) if masked == "zero" else found


STAGES = (
    Stage("returns", ("B", "T"), "The rewards of this and later tokens.", _returns, "reward"),
    Stage("advantages", ("B", "T"), "Less the greedy reply's reward.", _advantages, "reward"),
)


def _loops(token_level_rewards: Any, reward_baselines: Any, response_mask: Any, *, masked: str) -> Outputs:
    """NumPy, token by token."""
    import numpy as np

    advantages, returns = np.zeros_like(token_level_rewards), np.zeros_like(token_level_rewards)
    for i, row in enumerate(token_level_rewards):
        for t in range(len(row)):
            real, ahead = bool(response_mask[i, t]), row[t:][response_mask[i, t:]].sum()
            returns[i, t] = ahead if real or masked == "carry" else 0
            advantages[i, t] = returns[i, t] - (reward_baselines[i] if real else 0)
    return {"advantages": advantages, "returns": returns}


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob(
        "masked",
        "carry",
        ("carry", "zero"),
        "What masked slots between tokens hold: the rewards yet to come (verl), or 0.",
    ),
)

INPUTS = (
    Input("token_level_rewards", ("B", "T"), "float", "Reward of each token; masked slots do not count.", "reward"),
    Input("reward_baselines", ("B",), "float", "Reward of the greedy reply to the same prompt.", "reward"),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that the policy wrote; holes are allowed."),
)

OUTPUTS = (
    Output("advantages", ("B", "T"), "Weight of each token.", "reward", differentiable=False),
    Output("returns", ("B", "T"), "Rewards to go, without the baseline.", "reward", differentiable=False),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)

PROBES = (
    probes.poison({"token_level_rewards": "response_mask"}),
    probes.poison({"token_level_rewards": "response_mask"}, value=1e6, name="fill"),
    probes.padding(AXES, "T", {"token_level_rewards": 3.0, "response_mask": False}),
    probes.permutation(AXES, "B"),
    probes.split(AXES, "B"),
    Probe("greedy", "what earns as much as the greedy reply has advantage 0 at its first token", _greedy),
)

CONTRACT = Contract(
    name="remax-advantage",
    kind="value",
    title="Advantage against the greedy reply (ReMax)",
    doc=(
        "The advantage of token t is the sum of the rewards of t and all later tokens, less the reward of the greedy"
        " reply to the same prompt. Rewards of masked slots do not count. Advantages are weights: no gradient passes."
        " ReMax, arXiv 2310.10505, section 3."
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
    rewritings=(Rewriting("loops", "NumPy, token by token", _loops, backend="numpy"),),
)
