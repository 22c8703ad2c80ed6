"""The contract ``rloo-advantage``: each response against the mean of the others to its prompt.

Bound to verl (the loop and the vectorised estimator) and to TRL (the method of a real trainer). verl's two estimators
do not agree on a group of one: the loop leaves it its reward, the other gives it 0. Leaving the mean out where TRL
standardises is no deviation: these advantages add up to 0 in every group, so there is no mean to take off.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator import pins
from annotator.catalog import _trl
from annotator.catalog._third_party import CORE, default_dtype, pinned
from annotator.contracts import probes
from annotator.contracts.model import Case, Contract, Deviation, Implementation, Input, Knob, Output, Rewriting, Stage

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]


# Implementations ------------------------------------------------------------------------------------------------------


def _verl(estimator: str, token_level_rewards: Any, response_mask: Any, group: Any) -> Outputs:
    with default_dtype(token_level_rewards):
        advantages, _ = getattr(pinned(CORE), estimator)(
            token_level_rewards=token_level_rewards, response_mask=response_mask, index=group.cpu().numpy()
        )
    return {"advantages": advantages}


def _verl_loop(token_level_rewards: Any, response_mask: Any, group: Any, **_: Any) -> Outputs:
    return _verl("compute_rloo_outcome_advantage", token_level_rewards, response_mask, group)


def _verl_vectorized(token_level_rewards: Any, response_mask: Any, group: Any, **_: Any) -> Outputs:
    return _verl("compute_rloo_vectorized_outcome_advantage", token_level_rewards, response_mask, group)


@functools.cache
def _trainer() -> Any:
    """A real ``RLOOTrainer`` of the pin on the CPU, without a KL term. Built once."""
    with _trl._workshop() as arguments:
        from datasets import Dataset

        rloo = pins.load("trl:trl.trainer.rloo_trainer")
        return rloo.RLOOTrainer(
            model=_trl._model(),
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=rloo.RLOOConfig(**arguments, num_generations=2, per_device_train_batch_size=2, beta=0.0),
            train_dataset=Dataset.from_dict({"prompt": ["a"]}),
            processing_class=_trl._tokenizer(),
        )


def _trl_rloo(
    token_level_rewards: Any, response_mask: Any, group: Any, *, scale: str, eps: float, singleton: str
) -> Outputs:
    """TRL has one reward a completion and one advantage a row; rows of a group adjoin there."""
    from unittest import mock

    rewards = token_level_rewards.detach().sum(dim=-1)  # [B, T] -> [B]
    order = group.argsort(stable=True)  # [B]
    rows, width = response_mask.shape
    generations = int((group == group[0]).sum())
    seams: dict[str, Any] = {
        "_generate": lambda _: ([[_trl.WORDS["b"]]] * rows, [[_trl.WORDS["a"]] * width] * rows, ["a"] * rows),
        "_calculate_rewards": lambda *_: rewards[order][:, None],
        "_get_per_token_logps_and_entropies": lambda *_, **__: (rewards.new_zeros(rows, width), None, None),
        "num_generations": generations,
        "num_generations_eval": generations,
        "normalize_advantages": scale == "batch",
    }
    trainer = _trainer()
    with _trl.run_as(trainer, rewards), mock.patch.multiple(trainer, create=True, **seams):
        trainer.model.train(generations > 1)  # one generation a prompt is possible in evaluation alone
        scored = trainer._generate_and_score_completions([{"prompt": "b"}] * rows)
    for metrics in trainer._metrics.values():
        metrics.clear()
    return {"advantages": scored["advantages"][order.argsort()][:, None] * response_mask}  # [B, T]


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.post_training import rloo_torch

    return {"advantages": rloo_torch.rloo_advantages(**arguments)}


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.post_training import rloo_jax

    return {"advantages": rloo_jax.rloo_advantages(**arguments)}


def _trl_accepts(case: Case) -> str | None:
    import numpy as np

    sizes = set(np.unique(case.inputs["group"], return_counts=True)[1].tolist())
    if len(sizes) > 1:
        return "TRL takes the same number of completions for every prompt"
    if len(case.inputs["group"]) < 2 and case.knobs["scale"] == "batch":
        return "one response has no spread"
    return None


def _verl_accepts(case: Case) -> str | None:
    return None if case.knobs["scale"] == "none" else "verl does not scale here"


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl_loop,
        symbols=(f"{CORE}.compute_rloo_outcome_advantage",),
        dialect={"scale": "none", "singleton": "raw"},
        requires=("verl",),
        differentiable=False,
        accepts=_verl_accepts,
    ),
    Implementation(
        name="verl-vectorized",
        role="reference",
        backend="torch",
        call=_verl_vectorized,
        symbols=(f"{CORE}.compute_rloo_vectorized_outcome_advantage",),
        dialect={"scale": "none", "singleton": "zero"},
        requires=("verl",),
        differentiable=False,
        accepts=_verl_accepts,
    ),
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl_rloo,
        symbols=("trl:trl.trainer.rloo_trainer.RLOOTrainer._generate_and_score_completions",),
        dialect={"eps": 1e-4, "singleton": "zero"},
        requires=("trl",),
        differentiable=False,
        accepts=_trl_accepts,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/rloo_torch.py", "minimal/post_training/grpo_torch.py"),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/rloo_jax.py", "minimal/post_training/grpo_jax.py"),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, rewards: Any, group: Any, mask: Any = None, **knobs: Any) -> Case:
    import numpy as np

    array = np.array(rewards, dtype=np.float64)
    inputs = {
        "token_level_rewards": array,
        "response_mask": np.ones(array.shape, dtype=bool) if mask is None else np.array(mask, dtype=bool),
        "group": np.array(group, dtype=np.int64),
    }
    return Case(inputs, {**{knob.name: knob.default for knob in KNOBS}, **knobs}, label)


def _edges() -> tuple[Case, ...]:
    rewards = [[0, 0, 1.0], [0, 0.5, 0], [2.0, 0, 0], [0, 0, -1.0], [0, 0.25, 0], [0, 0, 1.5]]
    ragged = [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]]
    return (
        _case("two groups, ragged", rewards, [0, 0, 0, 5, 5, 5], ragged),
        _case("one group", rewards, [3] * 6),
        _case("pairs", rewards, [1, 1, 2, 2, 3, 3], ragged),
        _case("interleaved groups", rewards, [9, 4, 9, 4, 9, 4], ragged),
        _case("groups of two sizes, and of one", rewards, [0, 0, 0, 1, 1, 2], ragged),
        _case("only groups of one", rewards, [5, 4, 3, 2, 1, 0], ragged),
        _case("a reward in a masked slot", [[1.0, 2.0], [0.0, 4.0]], [0, 0], [[1, 0], [1, 1]]),
        _case("scaled by the batch", rewards, [0, 0, 0, 5, 5, 5], ragged, scale="batch"),
        _case("scaled, interleaved", rewards, [9, 4, 9, 4, 9, 4], scale="batch"),
        _case("scaled, rewards smaller than eps", [[1e-4], [0.0], [3e-4], [5e-4]], [0, 0, 1, 1], scale="batch"),
        _case("huge rewards", [[x * 2.0**40 for x in row] for row in rewards], [0, 0, 0, 5, 5, 5], ragged),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Rewards in eighths; groups of one size (all references) or of several (verl)."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    sizes = draw(st.sampled_from(((2, 2), (3, 3), (2,), (1, 3), (2, 1, 3), (1, 1, 1))))
    labels = draw(st.permutations([7, 0, 4]))
    group = draw(st.permutations([label for label, n in zip(labels, sizes, strict=False) for _ in range(n)]))
    shape = (sum(sizes), 2)
    rewards = draw(hnp.arrays("int8", shape, elements=st.integers(-16, 16))) / 8
    knobs = {knob.name: draw(st.sampled_from(knob.choices)) for knob in KNOBS}
    return _case("", rewards, list(group), draw(hnp.arrays("bool", shape)), **knobs)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _right() -> Any:
    from minimal.post_training import rloo_torch

    return rloo_torch


def _variant(
    token_level_rewards: Any,
    response_mask: Any,
    group: Any,
    *,
    scale: str,
    eps: float,
    singleton: str,
    score: Any = None,
    number: Any = None,
    baseline: Any = None,
    alone: Any = None,
    standardise: Any = None,
    divide: Any = None,
    keep: Any = None,
) -> Outputs:
    """The advantage with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    right = _right()
    scores = (score or (lambda rewards, mask: right.grpo.outcome_scores(rewards)))(token_level_rewards, response_mask)
    groups = (number or right.grpo.group_numbers)(group)
    advantages = scores - (baseline or right.others_means)(scores, groups)
    single = right.grpo.group_sums(torch.ones_like(scores), groups) == 1
    rule = singleton if alone is None else alone
    advantages = torch.where(single & (rule == "zero"), 0.0, torch.where(single, scores, advantages))
    if divide is not None:
        advantages = divide(advantages, scores, groups)
    if scale == "batch":
        advantages = (standardise or right.standardised)(advantages, eps=eps)
    mask = response_mask if keep is None else keep(response_mask)
    return {"advantages": advantages[:, None] * mask}


def _group_sum(scores: Any, groups: Any) -> Any:
    return _right().grpo.group_sums(scores, groups) - scores


def _over_all(scores: Any, groups: Any) -> Any:
    import torch

    size = _right().grpo.group_sums(torch.ones_like(scores), groups)
    return (_right().grpo.group_sums(scores, groups) - scores) / size


def _population(advantages: Any, *, eps: float) -> Any:
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + eps)


def _inside(advantages: Any, *, eps: float) -> Any:
    return (advantages - advantages.mean()) / (_right().grpo.batch_std(advantages) ** 2 + eps).sqrt()


def _adjoining(group: Any) -> Any:
    """Rows numbered as if groups adjoined, each as large as the first one."""
    import torch

    return torch.arange(len(group), device=group.device) // int((group == group[0]).sum())


DEVIATIONS = (
    Deviation(
        name="group-mean",
        wrong="less the mean of the group, the response included",
        right="of the others",
        call=functools.partial(_variant, baseline=lambda scores, groups: _right().grpo.group_means(scores, groups)),
        stage="row_advantages",
    ),
    Deviation(
        name="others-over-all",
        wrong="the others' sum divided by the size of the group",
        right="by their number",
        call=functools.partial(_variant, baseline=_over_all),
        stage="row_advantages",
    ),
    Deviation(
        name="others-sum",
        wrong="less the others' sum",
        right="less their mean",
        call=functools.partial(_variant, baseline=_group_sum),
        stage="row_advantages",
    ),
    Deviation(
        name="batch-baseline",
        wrong="less the mean of all others of the batch",
        right="of those to the same prompt",
        call=functools.partial(_variant, number=lambda group: group * 0),
        stage="row_advantages",
    ),
    Deviation(
        name="groups-adjoin",
        wrong="groups taken to be equal runs of adjoining rows",
        right="rows of the same label, wherever they lie",
        call=functools.partial(_variant, number=_adjoining),
        stage="row_advantages",
    ),
    Deviation(
        name="no-baseline",
        wrong="the reward alone",
        right="less the others' mean",
        call=functools.partial(_variant, baseline=lambda scores, _: 0 * scores),
        stage="row_advantages",
    ),
    Deviation(
        name="divided-by-std",
        wrong="divided by the group's std, as in GRPO",
        right="left in units of reward",
        call=functools.partial(_variant, divide=lambda a, s, g: a / (_right().grpo.group_stds(s, g) + 1e-6)),
        stage="row_advantages",
    ),
    Deviation(
        name="token-mean",
        wrong="the score is the mean over token rewards",
        right="their sum",
        call=functools.partial(_variant, score=lambda rewards, _: rewards.mean(dim=-1)),
        stage="scores",
    ),
    Deviation(
        name="masked-rewards-dropped",
        wrong="rewards in masked slots are left out of the score",
        right="every slot is summed",
        call=functools.partial(_variant, score=lambda rewards, mask: (rewards * mask).sum(dim=-1)),
        stage="scores",
    ),
    Deviation(
        name="singleton-zeroed",
        wrong="a group of one gets 0 under the rule 'raw'",
        right="it keeps its reward",
        call=functools.partial(_variant, alone="zero"),
        stage="row_advantages",
    ),
    Deviation(
        name="singleton-kept",
        wrong="a group of one keeps its reward under the rule 'zero'",
        right="it gets 0",
        call=functools.partial(_variant, alone="raw"),
        stage="row_advantages",
    ),
    Deviation(
        name="population-std",
        wrong="scaled by the population's std",
        right="Bessel's correction",
        call=functools.partial(_variant, standardise=_population),
        stage="row_advantages",
    ),
    Deviation(
        name="eps-inside-root",
        wrong="sqrt(var + eps)",
        right="std + eps",
        call=functools.partial(_variant, standardise=_inside),
        stage="row_advantages",
    ),
    Deviation(
        name="mask-forgotten",
        wrong="masked slots get the advantage too",
        right="they get 0",
        call=functools.partial(_variant, keep=lambda mask: mask | True),
        stage="advantages",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _scores(token_level_rewards: Any) -> Any:
    return _right().grpo.outcome_scores(token_level_rewards)


def _left_out(scores: Any, group: Any, *, singleton: str) -> Any:
    return _right().leave_one_out(scores, group, singleton=singleton)


def _advantages(row_advantages: Any, response_mask: Any, *, scale: str, eps: float) -> Any:
    scaled = _right().standardised(row_advantages, eps=eps) if scale == "batch" else row_advantages
    return scaled[:, None] * response_mask


STAGES = (
    Stage("scores", ("B",), "The reward of each response.", _scores, "reward"),
    Stage("row_advantages", ("B",), "Less the mean of the others.", _left_out, "reward"),
    Stage("advantages", ("B", "T"), "On every token, scaled where asked for.", _advantages),
)


def _loops(
    token_level_rewards: Any, response_mask: Any, group: Any, *, scale: str, eps: float, singleton: str
) -> Outputs:
    """NumPy, row by row over the others."""
    import numpy as np

    scores = token_level_rewards.sum(axis=1)
    rows = np.zeros_like(scores)
    for i, score in enumerate(scores):
        others = [scores[j] for j in range(len(scores)) if j != i and group[j] == group[i]]
        rows[i] = score - np.mean(others) if others else score * (singleton == "raw")
    if scale == "batch":
        rows = (rows - rows.mean()) / (rows.std(ddof=min(1, len(rows) - 1)) + eps)
    return {"advantages": np.where(response_mask, rows[:, None], 0)}


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("scale", "none", ("none", "batch"), "Whether the batch is standardised afterwards: TRL can (off by default)."),
    Knob("eps", 1e-4, (1e-4, 1e-8), "Added to the std of the batch; 1e-4 in TRL."),
    Knob(
        "singleton",
        "raw",
        ("raw", "zero"),
        "A group of one: it keeps its reward (verl's loop), or gets 0 (verl's vectorised estimator, TRL).",
    ),
)

INPUTS = (
    Input("token_level_rewards", ("B", "T"), "float", "Reward of each token; finite in masked slots too.", "reward"),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that the policy wrote; holes are allowed."),
    Input("group", ("B",), "int", "Label of the prompt of each row, 0 or more; rows may lie anywhere."),
)

OUTPUTS = (
    Output(
        "advantages",
        ("B", "T"),
        "Weight of each token; 0 where the mask is off.",
        "reward or none",
        differentiable=False,
    ),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)

PROBES = (
    probes.padding(AXES, "T", {"token_level_rewards": 0.0, "response_mask": False}),
    probes.permutation(AXES, "B"),
)

CONTRACT = Contract(
    name="rloo-advantage",
    kind="value",
    title="Leave-one-out advantage (RLOO)",
    doc=(
        "The advantage of token t of response i is r_i less the mean of r over the other responses to the same prompt,"
        " and 0 where the mask is off. r_i is the sum of response i's token rewards, masked slots included. Advantages"
        " are weights: no gradient passes. Ahmadian et al., arXiv 2402.14740, section 3.3."
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
    rewritings=(Rewriting("loops", "NumPy, row by row over the others", _loops, backend="numpy"),),
)
