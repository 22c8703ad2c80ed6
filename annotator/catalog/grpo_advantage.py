"""The contract ``grpo-advantage``: how the rewards of one prompt's responses become the weights of their tokens.

Bound to verl (the loop and the vectorised estimator) and to TRL (the method of a real trainer). They agree on Bessel's
correction and on what to do with equal rewards; they differ in eps, in the rule for a group of one, and in what a batch
may look like.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator.catalog import _trl
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


def _verl_call(
    estimator: str, token_level_rewards: Any, response_mask: Any, group: Any, *, eps: float, scale: str
) -> Outputs:
    with default_dtype(token_level_rewards):
        advantages, _ = getattr(pinned(CORE), estimator)(
            token_level_rewards=token_level_rewards,
            response_mask=response_mask,
            index=group.cpu().numpy(),
            epsilon=eps,
            norm_adv_by_std_in_grpo=scale == "group",
        )
    return {"advantages": advantages}


def _verl(
    token_level_rewards: Any, response_mask: Any, group: Any, *, eps: float, scale: str, singleton: str
) -> Outputs:
    return _verl_call("compute_grpo_outcome_advantage", token_level_rewards, response_mask, group, eps=eps, scale=scale)


def _verl_vectorized(
    token_level_rewards: Any, response_mask: Any, group: Any, *, eps: float, scale: str, singleton: str
) -> Outputs:
    return _verl_call(
        "compute_grpo_vectorized_outcome_advantage", token_level_rewards, response_mask, group, eps=eps, scale=scale
    )


def _trl_score(trainer: Any, rewards: Any, mask: list[list[int]], generations: int, scale: str) -> Mapping[str, Any]:
    """Run the trainer's own method on given completions and rewards: rows of one group adjoin, as TRL lays them out."""
    rows = len(mask)
    completions = [[_trl.WORDS["a"]] * len(row) for row in mask]
    prompts = [[_trl.WORDS["b"]]] * rows
    trainer._generate = lambda _: (prompts, completions, mask, ["a"] * rows, None, {}, None, [])
    trainer._calculate_rewards = lambda *_: rewards[:, None]
    trainer.num_generations = trainer.num_generations_eval = generations
    trainer.scale_rewards = scale
    trainer.model.train(generations > 1)  # one generation a prompt is refused in training, and possible in evaluation
    with _trl.run_as(trainer, rewards):
        scored: Mapping[str, Any] = trainer._generate_and_score_completions([{"prompt": "b"}] * rows)
    for metrics in trainer._metrics.values():
        metrics.clear()
    return scored


def _trl_advantages(
    token_level_rewards: Any, response_mask: Any, group: Any, *, eps: float, scale: str, singleton: str
) -> Outputs:
    """TRL has one reward a completion and one advantage a row; its loss puts the row's on every unmasked token."""
    rewards = token_level_rewards.detach().sum(dim=-1)  # [B, T] -> [B]
    order = group.argsort(stable=True)  # [B], rows of one group adjoin
    generations = int((group == group[0]).sum())
    mask = response_mask[order].long().tolist()
    scored = _trl_score(_trl.grpo_trainer(), rewards[order], mask, generations, scale)
    advantages = scored["advantages"][order.argsort()]  # [B], in the order of the case
    loss_mask = (scored["completion_mask"] * scored["tool_mask"])[order.argsort()]  # [B, T]
    return {"advantages": advantages[:, None] * loss_mask}  # [B, T]


def _minimal_torch(token_level_rewards: Any, response_mask: Any, group: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import grpo_torch

    return {"advantages": grpo_torch.grpo_advantages(token_level_rewards, response_mask, group, **knobs)}


def _minimal_jax(token_level_rewards: Any, response_mask: Any, group: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import grpo_jax

    return {"advantages": grpo_jax.grpo_advantages(token_level_rewards, response_mask, group, **knobs)}


def _sizes(case: Case) -> set[int]:
    """The sizes of the groups of a case."""
    import numpy as np

    return {int(n) for n in np.unique(case.inputs["group"], return_counts=True)[1]}


def _verl_accepts(case: Case) -> str | None:
    return "verl has no scale 'batch' in its GRPO estimators" if case.knobs["scale"] == "batch" else None


def _trl_accepts(case: Case) -> str | None:
    return "TRL takes the same number of completions for every prompt" if len(_sizes(case)) > 1 else None


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=("verl:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage",),
        dialect={"singleton": "raw"},
        requires=("verl",),
        differentiable=False,
        accepts=_verl_accepts,
    ),
    Implementation(
        name="verl-vectorized",
        role="reference",
        backend="torch",
        call=_verl_vectorized,
        symbols=(
            "verl:verl.trainer.ppo.core_algos.compute_grpo_vectorized_outcome_advantage",
            "verl:verl.utils.groupwise.as_torch_index",
            "verl:verl.utils.groupwise.group_mean_std",
        ),
        dialect={"singleton": "raw"},
        requires=("verl",),
        dtypes=("float32",),  # group_mean_std casts to float32, whatever it is given
        differentiable=False,
        accepts=_verl_accepts,
    ),
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl_advantages,
        symbols=(
            "trl:trl.trainer.grpo_trainer.GRPOTrainer._generate_and_score_completions",
            "trl:trl.trainer.utils.nanstd",
        ),
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
        symbols=("minimal/post_training/grpo_torch.py",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/grpo_jax.py",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(
    label: str,
    scores: list[list[float]],
    group: list[int],
    mask: np.ndarray | list[list[bool]] | None = None,
    **knobs: Any,
) -> Case:
    import numpy as np

    rewards = np.array(scores, dtype=np.float64)
    kept = np.ones(rewards.shape, dtype=bool) if mask is None else np.array(mask, dtype=bool)
    inputs = {"token_level_rewards": rewards, "response_mask": kept, "group": np.array(group, dtype=np.int64)}
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _edges() -> tuple[Case, ...]:
    outcomes: list[list[float]] = [[0, 0, 1], [0, 0, 0], [0, 0.5, 0], [0, 0, 2], [0, 0, 1], [0, 0, -1]]
    two = [0, 0, 0, 1, 1, 1]
    ragged = [[True, True, True], [True, False, False], [True, True, False]] * 2
    hidden = [[False] * 3, *ragged[1:]]
    swapped: list[list[float]] = [[0.25, 2, -1], *outcomes[1:]]
    alone = [0, 1, 1, 2, 2, 2]
    return (
        _case("two groups, ragged", outcomes, two, ragged),
        _case("one sample in a group, kept", outcomes, alone, singleton="raw"),
        _case("one sample in a group, zeroed", outcomes, alone, singleton="zero"),
        _case("one sample in a group, no scale", outcomes, alone, scale="none"),
        _case("only groups of one", outcomes, [5, 4, 3, 2, 1, 0], ragged, singleton="zero"),
        _case("one row", [[0.5, 0.25]], [7]),
        _case("all rewards equal", [[0, 0.5, 0.5]] * 6, two),
        _case("all rewards equal, by batch", [[0, 0.5, 0.5]] * 6, two, scale="batch", singleton="zero"),
        _case("a row wholly masked", outcomes, two, hidden),
        _case("everything masked", outcomes, two, [[False] * 3] * 6),
        _case("a reward in a masked slot", swapped, two, hidden),
        _case("one group only", outcomes, [3] * 6, ragged),
        _case("interleaved groups", outcomes, [9, 4, 9, 4, 9, 4], ragged),
        _case("interleaved groups, by batch", outcomes, [9, 4, 9, 4, 9, 4], ragged, scale="batch"),
        _case("no scale", outcomes, two, scale="none"),
        _case("huge rewards", [[x * 2.0**40 for x in row] for row in outcomes], two, ragged),
        _case("tiny rewards, smaller than eps", [[x * 2.0**-30 for x in row] for row in outcomes], two, ragged),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Rewards are multiples of 1/8, exact in float32 and with exact sums: equal rewards then are equal for everyone."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    sizes = draw(
        st.one_of(
            st.builds(lambda groups, size: [size] * groups, st.integers(1, 3), st.integers(1, 4)),
            st.lists(st.integers(1, 4), min_size=1, max_size=3),
        )
    )
    labels = draw(st.lists(st.integers(0, 20), min_size=len(sizes), max_size=len(sizes), unique=True))
    group = draw(st.permutations([label for label, size in zip(labels, sizes, strict=True) for _ in range(size)]))
    shape = (sum(sizes), draw(st.integers(1, 4)))
    eighths = draw(hnp.arrays("int8", shape, elements=st.integers(-16, 16)))
    mask = draw(hnp.arrays("bool", shape))
    scale = draw(st.sampled_from(("group", "none", "batch") if len(set(sizes)) == 1 else ("group", "none")))
    kept = ("zero",) if scale == "batch" else ("raw", "zero")
    knobs = {"eps": draw(st.sampled_from((1e-6, 1e-4))), "scale": scale, "singleton": draw(st.sampled_from(kept))}
    return _case("", (eighths / 8).tolist(), list(group), mask, **knobs)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    token_level_rewards: Any,
    response_mask: Any,
    group: Any,
    *,
    eps: float,
    scale: str,
    singleton: str,
    score: Any = None,
    centre: Any = None,
    spread: Any = None,
    divide: Any = None,
    number: Any = None,
    shown: Any = None,
) -> Outputs:
    """The advantage with one part replaced. A part left out is the right one, from the minimal version."""
    import torch

    from minimal.post_training import grpo_torch as right

    scores = (score or (lambda rewards, mask: right.outcome_scores(rewards)))(token_level_rewards, response_mask)
    groups = (number or right.group_numbers)(group)
    alone = right.group_sums(torch.ones_like(scores), groups) == 1
    keep = alone & (singleton == "raw")
    centred = torch.where(keep, scores, scores - (centre or right.group_means)(scores, groups))
    std = (spread or right.group_stds)(scores, groups)
    std = right.batch_std(scores) if scale == "batch" else torch.where(keep, 1.0, std)
    scaled = centred if scale == "none" else (divide or (lambda x, s, e: x / (s + e)))(centred, std, eps)
    return {"advantages": scaled[:, None] * (shown or (lambda mask: mask))(response_mask)}


def _population_std(scores: Any, groups: Any) -> Any:
    from minimal.post_training import grpo_torch as right

    return right.group_means((scores - right.group_means(scores, groups)) ** 2, groups).sqrt()


def _length_weighted_mean(token_level_rewards: Any, response_mask: Any, group: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import grpo_torch as right

    length = response_mask.sum(dim=-1).to(token_level_rewards.dtype)

    def centre(scores: Any, groups: Any) -> Any:
        return right.group_sums(scores * length, groups) / right.group_sums(length, groups).clamp(min=1)

    return _variant(token_level_rewards, response_mask, group, centre=centre, **knobs)


def _always_zero(token_level_rewards: Any, response_mask: Any, group: Any, *, singleton: str, **knobs: Any) -> Outputs:
    return _variant(token_level_rewards, response_mask, group, singleton="zero", **knobs)


def _always_raw(token_level_rewards: Any, response_mask: Any, group: Any, *, singleton: str, **knobs: Any) -> Outputs:
    return _variant(token_level_rewards, response_mask, group, singleton="raw", **knobs)


def _adjoining(group: Any) -> Any:
    """Rows numbered as if groups adjoined, each as large as the first one."""
    import torch

    size = int((group == group[0]).sum())
    return torch.arange(len(group), device=group.device) // size


DEVIATIONS = (
    Deviation(
        name="population-std",
        wrong="the population's standard deviation",
        right="Bessel's correction",
        call=functools.partial(_variant, spread=_population_std),
        seen_in="TorchFort #38",
        zoo=6,
        stage="stds",
    ),
    Deviation(
        name="batch-statistics",
        wrong="mean and std over the batch",
        right="over the responses to one prompt",
        call=functools.partial(_variant, number=lambda group: group * 0),
        seen_in="grpo-flat #2",
        zoo=7,
        stage="centred",
    ),
    Deviation(
        name="batch-mean",
        wrong="the mean over the batch, the std per prompt",
        right="both per prompt",
        call=functools.partial(_variant, centre=lambda scores, _: scores.mean()),
        stage="centred",
    ),
    Deviation(
        name="eps-inside-root",
        wrong="sqrt(var + eps)",
        right="std + eps",
        call=functools.partial(_variant, divide=lambda x, s, e: x / (s**2 + e).sqrt()),
        stage="scaled",
    ),
    Deviation(
        name="no-eps",
        wrong="division by std alone, NaN when all rewards are equal",
        right="std + eps",
        call=functools.partial(_variant, divide=lambda x, s, e: x / s),
        stage="scaled",
    ),
    Deviation(
        name="variance-for-std",
        wrong="division by the variance",
        right="by its root",
        call=functools.partial(_variant, divide=lambda x, s, e: x / (s**2 + e)),
        stage="scaled",
    ),
    Deviation(
        name="uncentred",
        wrong="r / std without the mean",
        right="(r - mean) / std",
        call=functools.partial(_variant, centre=lambda scores, _: 0 * scores),
        stage="centred",
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
        name="length-weighted-mean",
        wrong="the mean over tokens, so that long responses weigh more",
        right="one weight a response",
        call=_length_weighted_mean,
        stage="centred",
    ),
    Deviation(
        name="singleton-zeroed",
        wrong="a group of one gets 0 under the rule 'raw'",
        right="it keeps its reward",
        call=_always_zero,
        stage="centred",
    ),
    Deviation(
        name="singleton-kept",
        wrong="a group of one keeps its reward under the rule 'zero'",
        right="it gets 0",
        call=_always_raw,
        stage="centred",
    ),
    Deviation(
        name="mask-forgotten",
        wrong="masked slots get the advantage too",
        right="they get 0",
        call=functools.partial(_variant, shown=lambda mask: mask.new_ones(mask.shape)),
        seen_in="verl #2506",
        zoo=12,
        stage="advantages",
    ),
    Deviation(
        name="groups-adjoin",
        wrong="groups taken to be equal runs of adjoining rows",
        right="rows of the same label, wherever they lie",
        call=functools.partial(_variant, number=_adjoining),
        stage="centred",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _stage_scores(token_level_rewards: Any) -> Any:
    from minimal.post_training import grpo_torch

    return grpo_torch.outcome_scores(token_level_rewards)


def _stage_centred(scores: Any, group: Any, singleton: str) -> Any:
    from minimal.post_training import grpo_torch

    return grpo_torch.centred_scores(scores, group, singleton=singleton)


def _stage_stds(scores: Any, group: Any, scale: str, singleton: str) -> Any:
    from minimal.post_training import grpo_torch

    return grpo_torch.score_stds(scores, group, scale=scale, singleton=singleton)


def _stage_scaled(centred: Any, stds: Any, eps: float, scale: str) -> Any:
    from minimal.post_training import grpo_torch

    return grpo_torch.scaled_scores(centred, stds, eps=eps, scale=scale)


def _stage_advantages(scaled: Any, response_mask: Any) -> Any:
    from minimal.post_training import grpo_torch

    return grpo_torch.token_weights(scaled, response_mask)


STAGES = (
    Stage("scores", ("B",), "reward of each response", _stage_scores, "reward"),
    Stage("centred", ("B",), "reward less its group's mean", _stage_centred, "reward"),
    Stage("stds", ("B",), "what it is divided by, less eps", _stage_stds, "reward"),
    Stage("scaled", ("B",), "advantage of each response", _stage_scaled),
    Stage("advantages", ("B", "T"), "advantage of each token", _stage_advantages),
)


def _pairwise(
    token_level_rewards: Any, response_mask: Any, group: Any, *, eps: float, scale: str, singleton: str
) -> Outputs:
    """No group is formed: a matrix says which rows belong together, and all are compared with all."""
    import torch

    rewards = token_level_rewards.sum(dim=-1)
    together = (group[:, None] == group[None, :]).to(rewards)  # [B, B]
    pool = torch.ones_like(together) if scale == "batch" else together
    apart = rewards[:, None] - rewards[None, :]  # [B, B]
    size, pooled = together.sum(dim=1), pool.sum(dim=1)  # [B]
    centred = (together * apart).sum(dim=1) / size
    squares = torch.einsum("ij,jk,ik->i", pool, apart**2, pool)
    spread = (squares / (2 * pooled * (pooled - 1)).clamp(min=1)).sqrt()
    keep = (size == 1) & (singleton == "raw")
    centred = torch.where(keep, rewards, centred)
    spread = torch.where(keep & (scale == "group"), 1.0, spread)
    weight = centred if scale == "none" else centred / (spread + eps)
    return {"advantages": torch.where(response_mask, weight[:, None], 0.0)}


REWRITINGS = (Rewriting("pairwise", "mean and variance from the differences of all pairs of a group", _pairwise),)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("eps", 1e-6, (1e-6, 1e-4), "Added to the std. An argument in verl (default 1e-6), 1e-4 in TRL."),
    Knob(
        "scale",
        "group",
        ("group", "none", "batch"),
        "What the centred score is divided by: the group's std, nothing (Dr. GRPO), or the std of the whole batch.",
    ),
    Knob(
        "singleton",
        "raw",
        ("raw", "zero"),
        "A group of one: it keeps its score as if mean and std were 0 and 1 (verl), or gets 0 (TRL, in evaluation).",
    ),
)

INPUTS = (
    Input("token_level_rewards", ("B", "T"), "float", "Reward of each token; finite in masked slots too.", "reward"),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens that the policy wrote; holes are allowed."),
    Input("group", ("B",), "int", "Label of the prompt of each row, 0 or more; rows may lie anywhere."),
)

OUTPUTS = (Output("advantages", ("B", "T"), "Weight of each token; 0 where the mask is off.", "reward or none"),)

AXES = probes.axes_of(INPUTS, OUTPUTS)


def _by_prompt(case: Case) -> list[np.ndarray]:
    """Micro-batches that leave groups whole: one a prompt. Statistics of the batch cannot be cut."""
    import numpy as np

    group = case.inputs["group"]
    return [] if case.knobs["scale"] == "batch" else [np.flatnonzero(group == label) for label in np.unique(group)]


def _renamed(case: Case) -> Case:
    """Other labels for the same groups, in another order."""
    return Case({**case.inputs, "group": 3 * (case.inputs["group"].max() - case.inputs["group"])}, case.knobs)


def _labels(run: Runner, case: Case) -> float | None:
    return probes.apart(run(_renamed(case)), run(case), case)


def _raised(run: Runner, case: Case) -> float | None:
    """A constant for every response: the advantages stay, for all that are compared with anything."""
    import numpy as np

    group, rewards = case.inputs["group"], case.inputs["token_level_rewards"]
    if case.knobs["singleton"] == "raw" and np.unique(group, return_counts=True)[1].min() == 1:
        return None
    raised = rewards.copy()
    raised[:, -1] += 2.0 ** np.ceil(np.log2(max(np.abs(rewards).max(), 2.0**-40)))
    return probes.apart(run(Case({**case.inputs, "token_level_rewards": raised}, case.knobs)), run(case), case)


PROBES = (
    probes.padding(AXES, "T", {"token_level_rewards": 0.0, "response_mask": False}),
    probes.permutation(AXES, "B"),
    probes.split(AXES, "B", parts=_by_prompt),
    Probe("labels", "other labels for the same groups change nothing", _labels),
    Probe("baseline", "a constant added to every reward changes nothing", _raised),
)

CONTRACT = Contract(
    name="grpo-advantage",
    kind="value",
    title="Group-relative advantage (GRPO)",
    doc=(
        "The advantage of token t of response i is (r_i - mean r) / (std r + eps) over the responses r to the same"
        " prompt, with Bessel's correction, and 0 where the mask is off. r_i is the sum of response i's token"
        " rewards, masked slots included. Advantages are weights: no gradient passes. DeepSeekMath, arXiv 2402.03300,"
        " section 4.1.2."
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
