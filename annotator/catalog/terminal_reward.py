"""The contract ``terminal-reward``: the score of a response becomes the reward of its last token.

Bound to verl, twice: to the reward loop that its trainers use, and to the older batch manager. Both count tokens and
take the count less one for the last place: right for the attention mask of a response, wrong for a mask with holes.
Both write float32 whatever they are given.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from annotator import pins
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
    Probe,
    Rewriting,
    Runner,
    Stage,
)

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]


# Implementations ------------------------------------------------------------------------------------------------------


@functools.cache
def _verl_parts() -> tuple[Any, Any, Any]:
    """The base of the reward loop's managers, the batch manager, and the batch that both take."""
    with quiet():
        base = pins.load("verl:verl.experimental.reward_loop.reward_manager.base").RewardManagerBase
        batch = pins.load("verl:verl.workers.reward_manager.batch").BatchRewardManager
        return base, batch, pins.load("verl:verl.protocol").DataProto


def _batch(response_mask: Any) -> Any:
    """A batch as verl has it after generation: a prompt of one token, then the response; what is said is nobody's."""
    import numpy as np
    import torch

    rows = len(response_mask)
    mask = response_mask.long()
    prompt = torch.ones_like(mask[:, :1])
    tensors = {"prompts": prompt, "responses": mask, "attention_mask": torch.cat((prompt, mask), dim=1)}
    others = {"data_source": np.array(["a"] * rows), "reward_model": np.array([{}] * rows)}
    return _verl_parts()[2].from_dict(tensors=tensors, non_tensors=others)


def _verl(scores: Any, response_mask: Any, *, place: str) -> Outputs:
    return {"token_level_rewards": _verl_parts()[0].assemble_rm_scores(_batch(response_mask), scores.tolist())}


class _Wordless:
    """Stands where the tokenizer does: the scores are known, so no word is needed."""

    def decode(self, *_: Any, **__: Any) -> str:
        return ""


def _verl_batch(scores: Any, response_mask: Any, *, place: str) -> Outputs:
    manager = _verl_parts()[1](_Wordless(), num_examine=0, compute_score=lambda **_: scores.tolist())
    return {"token_level_rewards": manager(_batch(response_mask))}


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.post_training import terminal_reward_torch

    return {"token_level_rewards": terminal_reward_torch.terminal_rewards(**arguments)}


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.post_training import terminal_reward_jax

    return {"token_level_rewards": terminal_reward_jax.terminal_rewards(**arguments)}


def _transcription(scores: Any, response_mask: Any, *, place: str) -> Outputs:
    """The oracle, in NumPy: row by row, one number written."""
    import numpy as np

    rewards = np.zeros(response_mask.shape)
    for row, score, kept in zip(rewards, scores, response_mask, strict=True):
        row[kept.sum() - 1 if place == "count" else np.flatnonzero(kept)[-1]] = score
    return {"token_level_rewards": rewards}


def _verl_accepts(case: Case) -> str | None:
    if case.inputs["response_mask"].any(axis=1).all():
        return None
    return "a response without tokens has no last one; verl's index -1 means the last column"


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=("verl:verl.experimental.reward_loop.reward_manager.base.RewardManagerBase.assemble_rm_scores",),
        dialect={"place": "count"},
        requires=("verl",),
        dtypes=("float32",),
        differentiable=False,
        accepts=_verl_accepts,
    ),
    Implementation(
        name="verl-batch",
        role="reference",
        backend="torch",
        call=_verl_batch,
        symbols=("verl:verl.workers.reward_manager.batch.BatchRewardManager.__call__",),
        dialect={"place": "count"},
        requires=("verl",),
        dtypes=("float32",),
        differentiable=False,
        accepts=_verl_accepts,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/terminal_reward_torch.py",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/terminal_reward_jax.py",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, scores: Any, mask: Any, place: str = "count") -> Case:
    import numpy as np

    inputs = {"scores": np.array(scores, dtype=np.float64), "response_mask": np.array(mask, dtype=bool)}
    return Case(inputs, {"place": place}, label)


def _edges() -> tuple[Case, ...]:
    scores, ragged = [1.0, -0.5, 2.0], [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    return (
        _case("ragged rows", scores, ragged),
        _case("full rows", scores, [[1] * 4] * 3),
        _case("one token", [0.5], [[1]]),
        _case("one token of many slots", [0.5], [[1, 0, 0]]),
        _case("holes: words of a tool", scores, [[1, 0, 1, 0], [1, 1, 0, 1], [1, 0, 0, 1]]),
        _case("padded on the left", scores, [[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]]),
        _case("no reward", [0.0, 0.0, 0.0], ragged),
        _case("huge scores", [2.0**40, -(2.0**40), 1.0], ragged),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Scores in eighths; responses at the left, or with holes, with a token at least."""
    import numpy as np
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shape = draw(st.sampled_from(((1, 2), (2, 3), (3, 5))))
    scores = draw(hnp.arrays("int8", shape[:1], elements=st.integers(-16, 16))) / 8
    lengths = draw(hnp.arrays("int8", shape[:1], elements=st.integers(1, shape[1])))
    mask = np.arange(shape[1]) < lengths[:, None]
    if draw(st.booleans()):
        mask = draw(hnp.arrays("bool", shape))
        mask[~mask.any(axis=1), 0] = True
    return _case("", scores, mask, draw(st.sampled_from(("count", "last"))))


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _right() -> Any:
    from minimal.post_training import terminal_reward_torch

    return terminal_reward_torch


def _variant(scores: Any, response_mask: Any, *, place: str, where: Any = None, put: Any = None) -> Outputs:
    """The placement with one part replaced. A part left out is the right one, from the minimal version."""
    places = _right().last_places(response_mask, place=place)
    if where is not None:
        places = where(places, response_mask)
    return {"token_level_rewards": (put or _right().placed)(scores, places, response_mask)}


def _next(places: Any, mask: Any) -> Any:
    """The slot behind the last token, where there is one."""
    return (places + 1).clamp(max=mask.shape[1] - 1)


def _dense(scores: Any, places: Any, mask: Any) -> Any:
    return scores[:, None] * mask


def _spread(scores: Any, places: Any, mask: Any) -> Any:
    return scores[:, None] * mask / mask.sum(dim=1, keepdim=True)


def _up_to(scores: Any, places: Any, mask: Any) -> Any:
    import torch

    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(columns <= places[:, None], scores[:, None], 0.0)


def _masked(scores: Any, places: Any, mask: Any) -> Any:
    return _right().placed(scores, places, mask) * mask


DEVIATIONS = (
    Deviation(
        name="first-pad",
        wrong="on the slot behind the last token",
        right="on the last token",
        call=functools.partial(_variant, where=_next),
        seen_in="TRL #1893, #3750",
        zoo=16,
        stage="places",
    ),
    Deviation(
        name="last-column",
        wrong="on the last column, padding or not",
        right="on the last token",
        call=functools.partial(_variant, where=lambda places, mask: places * 0 + mask.shape[1] - 1),
        stage="places",
    ),
    Deviation(
        name="last-but-one",
        wrong="on the token before the last",
        right="on the last token",
        call=functools.partial(_variant, where=lambda places, mask: (places - 1).clamp(min=0)),
        stage="places",
    ),
    Deviation(
        name="first-token",
        wrong="on the first column",
        right="on the last token",
        call=functools.partial(_variant, where=lambda places, mask: places * 0),
        stage="places",
    ),
    Deviation(
        name="longest-row",
        wrong="where the longest response ends",
        right="where each one does",
        call=functools.partial(_variant, where=lambda places, mask: places * 0 + places.max()),
        stage="places",
    ),
    Deviation(
        name="from-the-right",
        wrong="counted from the right, as if the padding lay at the left",
        right="from the left",
        call=functools.partial(_variant, where=lambda places, mask: mask.shape[1] - 1 - places),
        stage="places",
    ),
    Deviation(
        name="every-token",
        wrong="the whole score on every token",
        right="on the last token alone",
        call=functools.partial(_variant, put=_dense),
        stage="token_level_rewards",
    ),
    Deviation(
        name="spread",
        wrong="the score in equal parts on all tokens",
        right="on the last token alone",
        call=functools.partial(_variant, put=_spread),
        stage="token_level_rewards",
    ),
    Deviation(
        name="up-to-the-last",
        wrong="the whole score on every slot up to the last token",
        right="on the last token alone",
        call=functools.partial(_variant, put=_up_to),
        stage="token_level_rewards",
    ),
    Deviation(
        name="masked-away",
        wrong="the rewards are masked afterwards, by a mask in which the place may be off",
        right="left as they are",
        call=functools.partial(_variant, put=_masked),
        stage="token_level_rewards",
    ),
)


# Probes, stages and rewritings ----------------------------------------------------------------------------------------


def _conserves(run: Runner, case: Case) -> float | None:
    """The rewards of a row add up to its score."""
    import dataclasses

    import numpy as np

    found = run(case)
    sums = found.outputs["token_level_rewards"].sum(axis=1)
    total = dataclasses.replace(found, outputs={"scores": sums})
    wanted = dataclasses.replace(found, outputs={"scores": np.asarray(case.inputs["scores"], dtype=np.float64)})
    return probes.apart(total, wanted, case, gradient=False)


def _places(response_mask: Any, *, place: str) -> Any:
    return _right().last_places(response_mask, place=place)


def _rewards(scores: Any, places: Any, response_mask: Any) -> Any:
    return _right().placed(scores, places, response_mask)


STAGES = (
    Stage("places", ("B",), "The column of each response's last token.", _places),
    Stage("token_level_rewards", ("B", "T"), "The score there, 0 elsewhere.", _rewards, "reward"),
)


def _one_hot(scores: Any, response_mask: Any, *, place: str) -> Outputs:
    """As a product with a one-hot row."""
    import torch

    width = response_mask.shape[1]
    from_right = width - 1 - response_mask.flip(1).long().argmax(dim=1)
    places = response_mask.sum(dim=1) - 1 if place == "count" else from_right
    return {"token_level_rewards": torch.nn.functional.one_hot(places, width).to(scores.dtype) * scores[:, None]}


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob(
        "place",
        "count",
        ("count", "last"),
        "How the last token is found: the number of tokens less one (verl), or the last slot whose mask is on.",
    ),
)

INPUTS = (
    Input("scores", ("B",), "float", "The score of each response.", "reward"),
    Input("response_mask", ("B", "T"), "bool", "True at the tokens of the response: its attention mask."),
)

OUTPUTS = (
    Output("token_level_rewards", ("B", "T"), "The score at the last token, else 0.", "reward", differentiable=False),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)

PROBES = (
    probes.padding(AXES, "T", {"response_mask": False}),
    probes.permutation(AXES, "B"),
    probes.split(AXES, "B"),
    Probe("sum", "the rewards of a row add up to its score", _conserves),
)

CONTRACT = Contract(
    name="terminal-reward",
    kind="value",
    title="A response's score as the reward of its last token",
    doc=(
        "The reward of a response's last token is the response's score, that of every other slot 0. The last token is"
        " the one at the number of tokens less one, for responses that stand at the left without holes."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    oracle=_transcription,
    probes=PROBES,
    stages=STAGES,
    rewritings=(Rewriting("one-hot", "a product with one-hot rows", _one_hot),),
)
