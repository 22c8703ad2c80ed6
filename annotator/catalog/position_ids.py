"""The contract ``position-ids``: from an attention mask with padding on either side to the position of every token.

Bound to verl, twice: the function that its rollouts and datasets call, and what its models with images do with a text;
and to TRL, where the reward model computes its own. They agree on every real token and differ in what a padded slot
holds. Apart from the contracts of losses because the mistake is made long before: a row that is shifted by its padding
still has finite log-probabilities, only not those of generation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from annotator.catalog._third_party import pinned
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


def _verl(attention_mask: Any, *, padding: str) -> Outputs:
    """Called with integers, as verl's own callers do: it hands the mask to the sum as it is."""
    return {"position_ids": pinned("verl:verl.utils.model").compute_position_id_with_mask(attention_mask.long())}


def _verl_images(attention_mask: Any, *, padding: str) -> Outputs:
    """Row by row, as verl calls it, on a text without images; its three axes then hold the same."""
    import torch

    images = SimpleNamespace(merge_size=1)
    processor = SimpleNamespace(image_processor=images, image_token_id=3, video_token_id=4, vision_start_token_id=5)
    processor.tokenizer = SimpleNamespace(convert_tokens_to_ids=lambda _: 5)
    index = pinned("verl:verl.models.transformers.qwen2_vl").get_rope_index
    rows = [index(processor, input_ids=row.long() * 0, attention_mask=row.long()) for row in attention_mask]
    return {"position_ids": torch.stack(rows)[:, 0]}  # [B, 3, T] -> [B, T]


class _RewardModel:
    """Stands where a reward model does, and keeps the positions that its backbone is given."""

    base_model_prefix = "backbone"

    def __init__(self) -> None:
        self.positions: Any = None

    def backbone(self, input_ids: Any, position_ids: Any, **_: Any) -> Any:
        self.positions = position_ids
        return SimpleNamespace(last_hidden_state=input_ids[..., None].float())

    def score(self, hidden: Any) -> Any:
        return hidden


def _trl(attention_mask: Any, *, padding: str) -> Outputs:
    """TRL computes them on the way to a reward, from the tokens that are not the padding's (here 0)."""
    model = _RewardModel()
    pinned("trl:trl.experimental.utils").get_reward(model, attention_mask.long(), pad_token_id=0, context_length=0)
    return {"position_ids": model.positions}


def _minimal_torch(attention_mask: Any, *, padding: str) -> Outputs:
    from minimal.serving import positions_torch

    return {"position_ids": positions_torch.position_ids(attention_mask, padding=padding)}


def _minimal_jax(attention_mask: Any, *, padding: str) -> Outputs:
    from minimal.serving import positions_jax

    return {"position_ids": positions_jax.position_ids(attention_mask, padding=padding)}


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl,
        symbols=("verl:verl.utils.model.compute_position_id_with_mask",),
        dialect={"padding": "held"},
        requires=("verl",),
        dtypes=("float64",),  # counts are integers: no other width of floats changes them
        differentiable=False,
    ),
    Implementation(
        name="verl-images",
        role="reference",
        backend="torch",
        call=_verl_images,
        symbols=("verl:verl.models.transformers.qwen2_vl.get_rope_index",),
        dialect={"padding": "one"},
        requires=("verl",),
        dtypes=("float64",),
        differentiable=False,
    ),
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl,
        symbols=("trl:trl.experimental.utils.get_reward",),
        dialect={"padding": "next"},
        requires=("trl",),
        dtypes=("float64",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/serving/positions_torch.py",),
        dtypes=("float64",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/serving/positions_jax.py",),
        dtypes=("float64",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, rows: list[str], **knobs: Any) -> Case:
    """Rows are written with ``x`` for a token and ``.`` for padding."""
    import numpy as np

    mask = np.array([[slot == "x" for slot in row] for row in rows], dtype=bool)
    return Case({"attention_mask": mask}, {**{k.name: k.default for k in KNOBS}, **knobs}, label)


def _edges() -> tuple[Case, ...]:
    return (
        _case("no padding", ["xxxx", "xxxx"]),
        _case("padding on the left", ["...x", ".xxx", "xxxx"]),
        _case("padding on the right", ["x...", "xxx.", "xxxx"]),
        _case("padding on both sides: a prompt and a response", [".xxx..", "...xxx", "xxxxxx"]),
        _case("holes: a prompt that ends before its response begins", ["xx..xx", "x...xx", ".x.x.x"]),
        _case("a row without tokens", ["....", ".xx."]),
        _case("one token", ["x"]),
        _case("one row", ["..xxx"]),
        _case("more tokens than eight bits count", ["." * 20 + "x" * 280]),
        *(
            _case(f"every slot of a padded batch: {choice}", ["..xx.x.", "xxxx...", "......x"], padding=choice)
            for choice in PADDINGS
        ),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Texts with padding in front, behind and, now and then, inside."""
    from hypothesis import strategies as st

    width = draw(st.sampled_from((1, 4, 7)))
    whole = st.integers(0, width).flatmap(
        lambda front: st.integers(0, width - front).map(lambda n: "." * front + "x" * n + "." * (width - front - n))
    )
    holed = st.text("x.", min_size=width, max_size=width)
    rows = draw(st.lists(st.one_of(whole, whole, holed), min_size=1, max_size=4))
    return _case("", rows, padding=draw(st.sampled_from(PADDINGS)))


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    attention_mask: Any,
    *,
    padding: str,
    count: Callable[[Any], Any] | None = None,
    first: int = 0,
    fill: Callable[[Any, Any], Any] | None = None,
) -> Outputs:
    """Positions with one part replaced: how tokens are counted, what the first one has, what padded slots hold."""
    from minimal.serving import positions_torch as right

    counts = (count or right.tokens_up_to)(attention_mask)  # [B, T]
    places = right.place(counts, attention_mask, padding=padding)
    if fill:
        places = fill(counts, attention_mask)
    return {"position_ids": places + first}


def _slots(mask: Any) -> Any:
    import torch

    return torch.arange(1, mask.shape[1] + 1, device=mask.device).expand(mask.shape)


def _first_real(mask: Any) -> Any:
    """Slots of padding before the first token of each row, [B, T] -> [B, 1]; the width where there is none."""
    return (mask.long().cumsum(dim=-1) == 0).sum(dim=-1, keepdim=True)


def _real(mask: Any) -> Any:
    return mask.long()


def _going_on(counts: Any, mask: Any) -> Any:
    """Right at real tokens; a padded slot is numbered by its distance from the first token."""
    import torch

    return torch.where(mask, counts - 1, (_slots(mask) - 1 - _first_real(mask)).clamp(min=0))


DEVIATIONS = (
    Deviation(
        name="slots-counted",
        wrong="the slot's number: padding on the left shifts the text",
        right="real tokens are counted",
        call=functools.partial(_variant, count=_slots),
        seen_in="OpenRLHF #217, TRL #6800",
        zoo=13,
        stage="position_ids",
    ),
    Deviation(
        name="holes-counted",
        wrong="slots since the first token: padding between prompt and response counts",
        right="real tokens are counted",
        call=functools.partial(_variant, count=lambda mask: (_slots(mask) - _first_real(mask)).clamp(min=0)),
        stage="position_ids",
    ),
    Deviation(
        name="all-padding-in-front",
        wrong="slots less the row's padding, wherever that lies",
        right="only the padding before a token moves it",
        call=functools.partial(
            _variant, count=lambda mask: (_slots(mask) - (~mask).sum(dim=-1, keepdim=True)).clamp(min=0)
        ),
        stage="position_ids",
    ),
    Deviation(
        name="shift-of-the-batch",
        wrong="every row moved by the least padding of the batch",
        right="each by its own",
        call=functools.partial(_variant, count=lambda mask: (_slots(mask) - _first_real(mask).min()).clamp(min=0)),
        stage="position_ids",
    ),
    Deviation(
        name="counted-down-the-batch",
        wrong="tokens counted along the rows of the batch",
        right="along the text",
        call=functools.partial(_variant, count=lambda mask: _real(mask).cumsum(dim=0)),
        stage="counts",
    ),
    Deviation(
        name="counted-from-the-end",
        wrong="tokens counted from the right",
        right="from the left",
        call=functools.partial(_variant, count=lambda mask: _real(mask).flip(-1).cumsum(dim=-1).flip(-1)),
        stage="counts",
    ),
    Deviation(
        name="counted-in-eight-bits",
        wrong="the sum has the mask's own eight bits, and turns negative after 127 tokens",
        right="a wide integer",
        call=functools.partial(_variant, count=lambda mask: _real(mask.char()).cumsum(dim=-1).char().long()),
        stage="counts",
    ),
    Deviation(
        name="one-based",
        wrong="the first token stands at 1",
        right="at 0",
        call=functools.partial(_variant, first=1),
        stage="position_ids",
    ),
    Deviation(
        name="two-based",
        wrong="the first token stands at 2: one family of models reserves two positions, and adds them itself",
        right="at 0",
        call=functools.partial(_variant, first=2),
        stage="position_ids",
    ),
    Deviation(
        name="negative-padding",
        wrong="padding on the left stands at -1",
        right="somewhere that a table of positions has",
        call=functools.partial(_variant, fill=lambda counts, mask: counts - 1),
        stage="position_ids",
    ),
    Deviation(
        name="real-tokens-zeroed",
        wrong="the mask turned round: real tokens get what padding should",
        right="padded slots do",
        call=functools.partial(_variant, fill=lambda counts, mask: (counts - 1).clamp(min=0).masked_fill(mask, 0)),
        stage="counts",
    ),
    Deviation(
        name="padding-goes-on-counting",
        wrong="padded slots after the text go on counting, whatever the rule for them",
        right="they hold what the rule says",
        call=functools.partial(_variant, fill=_going_on),
        stage="position_ids",
    ),
)


# Stages and rewritings ------------------------------------------------------------------------------------------------


def _stage_counts(attention_mask: Any) -> Any:
    from minimal.serving import positions_torch

    return positions_torch.tokens_up_to(attention_mask)


def _stage_places(counts: Any, attention_mask: Any, padding: str) -> Any:
    from minimal.serving import positions_torch

    return positions_torch.place(counts, attention_mask, padding=padding)


STAGES = (
    Stage("counts", ("B", "T"), "real tokens up to and including each slot", _stage_counts, "tokens"),
    Stage("position_ids", ("B", "T"), "the position of every token", _stage_places, "tokens"),
)


def _scattered(attention_mask: Any, *, padding: str) -> Outputs:
    """Row by row: an arange is written to where the tokens are, and padding takes what the table of rules says."""
    import torch

    rows = []
    for mask in attention_mask:
        real = mask.nonzero()[:, 0]
        before = (torch.arange(len(mask))[:, None] > real[None, :]).sum(dim=1)  # tokens before each slot
        rule = {"held": (before - 1).clamp(min=0), "next": before, "one": before * 0 + 1, "zero": before * 0}
        rows.append(rule[padding].index_copy(0, real, torch.arange(len(real))))
    return {"position_ids": torch.stack(rows)}


REWRITINGS = (Rewriting("scattered", "row by row, an arange written to where the tokens are", _scattered),)


# Contract -------------------------------------------------------------------------------------------------------------

PADDINGS = ("held", "next", "one", "zero")

KNOBS = (
    Knob(
        "padding",
        "held",
        PADDINGS,
        "What a padded slot holds: the last token's position and 0 in front (verl), the position that the next token"
        " would have (TRL), 1 (verl with images), 0 (Transformers' generation).",
    ),
)

INPUTS = (
    Input(
        "attention_mask", ("B", "T"), "bool", "True at real tokens; padding may lie before, behind and between them."
    ),
)

OUTPUTS = (Output("position_ids", ("B", "T"), "Position of each token in its text, from 0.", "tokens", exact=True),)

AXES = probes.axes_of(INPUTS, OUTPUTS)


def _front(run: Runner, case: Case) -> float | None:
    """Two more slots of padding before the text: what was there keeps its position."""
    import numpy as np

    mask = case.inputs["attention_mask"]
    longer = np.concatenate([np.zeros((len(mask), 2), dtype=bool), mask], axis=1)
    before = run(case).outputs["position_ids"]
    after = run(Case({"attention_mask": longer}, case.knobs)).outputs["position_ids"][:, 2:]
    return error(after, before, exact=True)


def _numbered(run: Runner, case: Case) -> float | None:
    """Read along a row, the real tokens have 0, 1, 2, ..."""
    import numpy as np

    mask, found = case.inputs["attention_mask"], run(case).outputs["position_ids"]
    expected: np.ndarray = np.concatenate([np.arange(n) for n in mask.sum(axis=1)])
    return error(found[mask], expected, exact=True) if mask.any() else None


PROBES = (
    Probe("numbered", "the tokens of a row stand at 0, 1, 2, ...", _numbered),
    Probe("padding-in-front", "more padding on the left changes no position", _front),
    probes.padding(AXES, "T", {"attention_mask": False}),
    probes.permutation(AXES, "B"),
    probes.split(AXES, "B"),
)

CONTRACT = Contract(
    name="position-ids",
    kind="value",
    title="Positions of the tokens of a padded batch",
    doc=(
        "The position of a real token is the number of real tokens before it in its row, wherever padding lies: a text"
        " has the same positions alone, padded on the left for generation, and in the middle between a prompt's and a"
        " response's padding. What a padded slot holds means nothing, differs between libraries, and is a knob."
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
