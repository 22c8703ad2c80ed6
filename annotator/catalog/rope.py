"""`rope`: queries and keys turned by their positions, in both conventions of what a pair of coordinates is.

Apart from attention because the two conventions differ by a permutation of coordinates that attention itself cannot
see: a model whose weights were made for one of them runs with the other, and is wrong from the second token on. Bound
to vLLM's `RotaryEmbedding`, its table of cosines included. Out of scope: scaled frequencies (YaRN, NTK, Llama 3),
several positions a token.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from annotator import pins
from annotator.catalog.token_sampling import _environment
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
from annotator.contracts.probes import axes_of, identity, permutation, split

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

DOC = r"""
For the token at position m and pair i = 0..R/2-1 of the first R coordinates of each head:

    theta_i = base^(-2i/R)
    (x, y) <- (x cos(m theta_i) - y sin(m theta_i), y cos(m theta_i) + x sin(m theta_i))

where (x, y) are coordinates i and i + R/2 (NeoX style), or 2i and 2i + 1 (GPT-J style, and the paper's). Coordinates
from R on are passed through. The product of a rotated query and a rotated key depends on the difference of their
positions only.

Source: RoFormer, arXiv 2104.09864, section 3.2.2 and equation 34.
"""


# Reference ------------------------------------------------------------------------------------------------------------


@functools.cache
def _vllm() -> SimpleNamespace:
    """vLLM's rotary embedding from the pin, and a configuration: its layers are built under one."""
    with _environment(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR"):
        base = pins.load("vllm:vllm.model_executor.layers.rotary_embedding.base")
        config = pins.load("vllm:vllm.config")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # that there is no Triton says nothing of this contract
        try:
            made = config.VllmConfig()
        finally:
            logging.disable(before)
    return SimpleNamespace(RotaryEmbedding=base.RotaryEmbedding, settings=config.set_current_vllm_config, made=made)


@functools.lru_cache(maxsize=64)
def _layer(head_size: int, rotary_dim: int, positions: int, base: float, is_neox_style: bool) -> Any:
    import torch

    v = _vllm()
    with v.settings(v.made):
        return v.RotaryEmbedding(head_size, rotary_dim, positions, base, is_neox_style, torch.float32)


def _vllm_call(
    positions: Any, query: Any, key: Any, *, base: float, rotary_dim: int | None, is_neox_style: bool
) -> Outputs:
    """`forward_native`, on heads that lie side by side as a projection leaves them."""
    size = query.shape[-1]
    longest = 512 * (int(positions.max()) // 512 + 1)  # few different tables
    layer = _layer(size, size if rotary_dim is None else rotary_dim, longest, base, is_neox_style).to(query.device)
    turned = layer.forward_native(positions, query.flatten(1), key.flatten(1))
    return {
        "rotated_query": turned[0].reshape(query.shape),
        "rotated_key": turned[1].reshape(key.shape),
    }


# Oracle and minimal ---------------------------------------------------------------------------------------------------


def oracle(
    positions: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    *,
    base: float,
    rotary_dim: int | None,
    is_neox_style: bool,
) -> Outputs:
    """Our own float64 transcription: a pair is a complex number, and its rotation a product with exp(i m theta)."""
    size = query.shape[-1] if rotary_dim is None else rotary_dim
    theta = base ** (-2.0 * np.arange(size // 2) / size)
    turn = np.exp(1j * positions[:, None] * theta)[:, None]  # [T, 1, R/2]
    pairs = np.arange(size).reshape(2, -1) if is_neox_style else np.arange(size).reshape(-1, 2).T  # [2, R/2]

    def rotated(heads: np.ndarray) -> np.ndarray:
        made: np.ndarray = heads.copy()
        whole = (heads[..., pairs[0]] + 1j * heads[..., pairs[1]]) * turn
        made[..., pairs[0]], made[..., pairs[1]] = whole.real, whole.imag
        return made

    return {"rotated_query": rotated(query), "rotated_key": rotated(key)}


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.serving.rope_torch import rope

    query, key = rope(**arguments)
    return {"rotated_query": query, "rotated_key": key}


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.serving.rope_jax import rope

    query, key = rope(**arguments)
    return {"rotated_query": query, "rotated_key": key}


_VLLM = "vllm:vllm.model_executor.layers.rotary_embedding"

IMPLEMENTATIONS = (
    Implementation(
        name="vllm-neox",
        role="reference",
        backend="torch",
        call=_vllm_call,
        symbols=(
            f"{_VLLM}.base.RotaryEmbeddingBase",
            f"{_VLLM}.base.RotaryEmbedding",
            f"{_VLLM}.common.ApplyRotaryEmb",
        ),
        dialect={"is_neox_style": True},
        requires=("torch", "vllm"),
        dtypes=("float32",),  # its table of cosines is made in float32
    ),
    Implementation(
        name="vllm-gptj",
        role="reference",
        backend="torch",
        call=_vllm_call,
        symbols=(
            f"{_VLLM}.base.RotaryEmbeddingBase",
            f"{_VLLM}.base.RotaryEmbedding",
            f"{_VLLM}.common.ApplyRotaryEmb",
        ),
        dialect={"is_neox_style": False},
        requires=("torch", "vllm"),
        dtypes=("float32",),
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/serving/rope_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/serving/rope_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, positions: Any, query: Any, key: Any, **knobs: Any) -> Case:
    inputs = {
        "positions": np.array(positions, dtype=np.int64),
        "query": np.array(query, dtype=np.float64),
        "key": np.array(key, dtype=np.float64),
    }
    return Case(inputs, {**{knob.name: knob.default for knob in KNOBS}, **knobs}, label)


def _wave(*shape: int) -> np.ndarray:
    """Eighths that no convention of pairs makes symmetric."""
    wave: np.ndarray = np.round(8 * np.sin(1.0 + 2.3 * np.arange(np.prod(shape)))) / 8
    return wave.reshape(shape)


def _edges() -> tuple[Case, ...]:
    q, k = _wave(3, 2, 8), -_wave(3, 1, 8)[::-1]
    unit = np.eye(8)[:3, None] * np.ones((1, 2, 1))
    gptj: dict[str, Any] = {"is_neox_style": False}
    return (
        _case("position 0", [0, 0, 0], q, k),
        _case("position 0, neighbours", [0, 0, 0], q, k, **gptj),
        _case("from 0 on", [0, 1, 2], q, k),
        _case("from 0 on, neighbours", [0, 1, 2], q, k, **gptj),
        _case("one token, later on", [7], q[:1], k[:1]),
        _case("left padding: positions repeat", [0, 0, 1], q, k),
        _case("positions out of order", [5, 2, 9], q, k, **gptj),
        _case("far apart", [511, 257, 3], q, k),
        _case("far apart, neighbours", [511, 257, 3], q, k, **gptj),
        _case("half a head turns", [1, 4, 6], q, k, rotary_dim=4),
        _case("half a head turns, neighbours", [1, 4, 6], q, k, rotary_dim=4, **gptj),
        _case("unit vectors", [1, 2, 3], unit, k),
        _case("unit vectors, neighbours", [1, 2, 3], unit, k, **gptj),
        _case("a head of one pair", [1, 2, 3], q[..., :2], k[..., :2]),
        _case("as many tokens as heads", [3, 1], _wave(2, 2, 8), _wave(2, 2, 8)),
        _case("several heads of keys", [3, 1, 2], _wave(3, 4, 8), _wave(3, 2, 8)),
        _case("a large base", [3, 100, 200], q, k, base=500000.0),
        _case("a large base, half a head", [3, 100, 200], q, k, base=500000.0, rotary_dim=4, **gptj),
        _case("large entries", [3, 100, 200], q * 2.0**20, k * 2.0**-20),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Few different shapes, since JAX compiles anew for each; positions below 512, where float32 still knows them."""
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    tokens, size = draw(st.sampled_from((1, 3))), draw(st.sampled_from((4, 8)))
    heads = st.integers(-16, 16)
    query = draw(hnp.arrays("int8", (tokens, 2, size), elements=heads)) / 8
    key = draw(hnp.arrays("int8", (tokens, 1, size), elements=heads)) / 8
    positions = draw(st.lists(st.one_of(st.integers(0, 8), st.integers(0, 511)), min_size=tokens, max_size=tokens))
    return _case("", positions, query, key, **{knob.name: draw(st.sampled_from(knob.choices)) for knob in KNOBS})


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    positions: Any,
    query: Any,
    key: Any,
    *,
    base: float,
    rotary_dim: int | None,
    is_neox_style: bool,
    place: Any = None,
    frequency: Any = None,
    angle: Any = None,
    window: Any = None,
    split: Any = None,
    join: Any = None,
    table: Any = None,
    turn: Any = None,
    keep: Any = None,
) -> Outputs:
    """The rotation with one part replaced. A part left out is the right one."""
    import torch

    from minimal.serving import rope_torch as right

    head = query.shape[-1]
    size = head if rotary_dim is None else rotary_dim
    theta = frequency(base, size, head, query) if frequency else right.frequencies(base, size, query)
    angles = (angle or right.angles)(place(positions) if place else positions, theta)  # [T, R/2]
    (cos_x, cos_y), (sin_x, sin_y) = (
        (table or (lambda values, _: (values, values)))(values[:, None], is_neox_style)
        for values in (angles.cos(), angles.sin())
    )
    start = window(head, size) if window else 0

    def rotated(heads: Any) -> Any:
        x, y = (split or right.split_pairs)(heads[..., start : start + size], is_neox_style)
        x, y = (turn or _turned)(x, y, cos_x, cos_y, sin_x, sin_y)
        made = (join or right.join_pairs)(x, y, is_neox_style)
        return torch.cat((heads[..., :start], made, heads[..., start + size :]), dim=-1)

    return {
        "rotated_query": query if keep == "query" else rotated(query),
        "rotated_key": key if keep == "key" else rotated(key),
    }


def _turned(x: Any, y: Any, cos_x: Any, cos_y: Any, sin_x: Any, sin_y: Any) -> tuple[Any, Any]:
    return x * cos_x - y * sin_x, y * cos_y + x * sin_y


def _in_sequence(x: Any, y: Any, cos_x: Any, cos_y: Any, sin_x: Any, sin_y: Any) -> tuple[Any, Any]:
    x = x * cos_x - y * sin_x
    return x, y * cos_y + x * sin_y


def _unsigned(x: Any, y: Any, cos_x: Any, cos_y: Any, sin_x: Any, sin_y: Any) -> tuple[Any, Any]:
    return x * cos_x + y * sin_x, y * cos_y + x * sin_y


def _backwards(x: Any, y: Any, cos_x: Any, cos_y: Any, sin_x: Any, sin_y: Any) -> tuple[Any, Any]:
    return x * cos_x + y * sin_x, y * cos_y - x * sin_y


def _split_otherwise(turned: Any, is_neox_style: bool) -> Any:
    from minimal.serving import rope_torch as right

    return right.split_pairs(turned, not is_neox_style)


def _join_otherwise(x: Any, y: Any, is_neox_style: bool) -> Any:
    from minimal.serving import rope_torch as right

    return right.join_pairs(x, y, not is_neox_style)


def _table_otherwise(values: Any, is_neox_style: bool) -> Any:
    """The table laid out for the other convention, over coordinates that are paired by the one asked for."""
    from minimal.serving import rope_torch as right

    return right.split_pairs(right.join_pairs(values, values, not is_neox_style), is_neox_style)


def _power(numerator: int, over: str, sign: int = -1) -> Any:
    """``base^(sign numerator i / n)`` with n the turned coordinates or the head."""

    def frequency(base: float, size: int, head: int, like: Any) -> Any:
        import torch

        index = torch.arange(size // 2, dtype=like.dtype, device=like.device)
        return base ** (sign * numerator * index / (size if over == "turned" else head))

    return frequency


def _narrow(positions: Any, theta: Any) -> Any:
    import torch

    return (positions[:, None].to(torch.bfloat16) * theta.to(torch.bfloat16)).to(theta)


def _counted(positions: Any) -> Any:
    import torch

    return torch.arange(len(positions), device=positions.device)


DEVIATIONS = (
    Deviation(
        name="convention-interchanged",
        wrong="neighbours are turned where halves are asked for, and the other way round",
        right="the convention of the weights",
        call=functools.partial(_variant, split=_split_otherwise, join=_join_otherwise),
        seen_in="transformers #25199",
        zoo=29,
        stage="rotated_query",
    ),
    Deviation(
        name="written-otherwise",
        wrong="pairs are read in one convention and written in the other",
        right="every coordinate stays where it was",
        call=functools.partial(_variant, join=_join_otherwise),
        stage="rotated_query",
    ),
    Deviation(
        name="table-otherwise",
        wrong="cosines laid out for neighbours over halves, or the other way round",
        right="both coordinates of a pair get one angle",
        call=functools.partial(_variant, table=_table_otherwise),
        stage="rotated_query",
    ),
    Deviation(
        name="backwards",
        wrong="the sine has the other sign, in both coordinates",
        right="(x cos - y sin, y cos + x sin)",
        call=functools.partial(_variant, turn=_backwards),
        stage="rotated_query",
    ),
    Deviation(
        name="unsigned",
        wrong="no minus before the sine: no rotation",
        right="(x cos - y sin, y cos + x sin)",
        call=functools.partial(_variant, turn=_unsigned),
        stage="rotated_query",
    ),
    Deviation(
        name="in-sequence",
        wrong="the second coordinate is made from the first one after its turn",
        right="from the first one before it",
        call=functools.partial(_variant, turn=_in_sequence),
        stage="rotated_query",
    ),
    Deviation(
        name="position-from-one",
        wrong="positions are counted from 1; scores do not show it, a cache shared with others does",
        right="from 0",
        call=functools.partial(_variant, place=lambda positions: positions + 1),
        stage="angles",
    ),
    Deviation(
        name="position-by-row",
        wrong="the row's number stands for the position",
        right="the position that is given, which counts real tokens",
        call=functools.partial(_variant, place=_counted),
        stage="angles",
    ),
    Deviation(
        name="exponent-by-pair",
        wrong="base^(-i/R) for pair i",
        right="base^(-2i/R)",
        call=functools.partial(_variant, frequency=_power(1, "turned")),
        stage="frequencies",
    ),
    Deviation(
        name="exponent-over-head",
        wrong="the exponent is over the head's size where only a part of it turns",
        right="over the number of turned coordinates",
        call=functools.partial(_variant, frequency=_power(2, "head")),
        stage="frequencies",
    ),
    Deviation(
        name="frequency-inverted",
        wrong="base^(+2i/R)",
        right="base^(-2i/R)",
        call=functools.partial(_variant, frequency=_power(2, "turned", 1)),
        stage="frequencies",
    ),
    Deviation(
        name="narrow-angle",
        wrong="position times frequency in bfloat16",
        right="in float32 at least",
        call=functools.partial(_variant, angle=_narrow),
        stage="angles",
    ),
    Deviation(
        name="last-turned",
        wrong="the last R coordinates of a head are turned",
        right="the first R",
        call=functools.partial(_variant, window=lambda head, size: head - size),
        stage="rotated_query",
    ),
    Deviation(
        name="query-kept",
        wrong="only the key is turned",
        right="both are",
        call=functools.partial(_variant, keep="query"),
        stage="rotated_query",
    ),
    Deviation(
        name="key-kept",
        wrong="only the query is turned",
        right="both are",
        call=functools.partial(_variant, keep="key"),
        stage="rotated_key",
    ),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _by_halves(
    positions: Any, query: Any, key: Any, *, base: float, rotary_dim: int | None, is_neox_style: bool
) -> Outputs:
    """A full table, and the vector with its pairs swapped beside it, as most Llama code has it."""
    import torch

    size = query.shape[-1] if rotary_dim is None else rotary_dim
    theta = 1 / base ** (torch.arange(0, size, 2, dtype=query.dtype, device=query.device) / size)
    angles = positions[:, None] * theta
    angles = torch.cat((angles, angles), -1) if is_neox_style else angles.repeat_interleave(2, -1)

    def swapped(x: Any) -> Any:
        if is_neox_style:
            return torch.roll(x, size // 2, -1) * torch.cat((-torch.ones(size // 2), torch.ones(size // 2))).to(x)
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    def rotated(heads: Any) -> Any:
        x = heads[..., :size]
        turned = x * angles.cos()[:, None] + swapped(x) * angles.sin()[:, None]
        return torch.cat((turned, heads[..., size:]), -1)

    return {"rotated_query": rotated(query), "rotated_key": rotated(key)}


def _by_complex(
    positions: Any, query: Any, key: Any, *, base: float, rotary_dim: int | None, is_neox_style: bool
) -> Outputs:
    """Complex numbers, as Meta's Llama has it."""
    import torch

    size = query.shape[-1] if rotary_dim is None else rotary_dim
    theta = 1 / base ** (torch.arange(0, size, 2, dtype=query.dtype, device=query.device) / size)
    turn = torch.polar(torch.ones_like(positions[:, None] * theta), positions[:, None] * theta)[:, None]

    def rotated(heads: Any) -> Any:
        x = heads[..., :size]
        pairs = x.unflatten(-1, (2, -1)).transpose(-1, -2) if is_neox_style else x.unflatten(-1, (-1, 2))
        made = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
        made = made.transpose(-1, -2) if is_neox_style else made
        return torch.cat((made.flatten(-2), heads[..., size:]), -1)

    return {"rotated_query": rotated(query), "rotated_key": rotated(key)}


REWRITINGS = (
    Rewriting("swapped-halves", "x cos + swap(x) sin over a full table", _by_halves),
    Rewriting("complex", "a product with exp(i m theta)", _by_complex),
)


# Probes and stages ----------------------------------------------------------------------------------------------------


def _moved_on(run: Runner, case: Case) -> float | None:
    """Products of queries and keys, before and after all positions move by 5."""
    later = replace(case, inputs={**case.inputs, "positions": case.inputs["positions"] + 5}, label="")
    before, after = (_scores(run(item).outputs) for item in (case, later))
    lengths = [float(np.linalg.norm(case.inputs[name], axis=-1).max(initial=0.0)) for name in ("query", "key")]
    return float(np.abs(before - after).max(initial=0.0)) / max(lengths[0] * lengths[1], 1e-300)


def _scores(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    scores: np.ndarray = np.einsum("thd,skd->tshk", outputs["rotated_query"], outputs["rotated_key"])
    return scores


def _lengths_kept(run: Runner, case: Case) -> float | None:
    outputs, worst = run(case).outputs, 0.0
    for name in ("query", "key"):
        before, after = (np.linalg.norm(x, axis=-1) for x in (case.inputs[name], outputs[f"rotated_{name}"]))
        worst = max(worst, float(np.abs(before - after).max(initial=0.0)) / max(float(before.max(initial=0.0)), 1e-300))
    return worst


def _at_start(case: Case) -> Case:
    return replace(case, inputs={**case.inputs, "positions": 0 * case.inputs["positions"]}, label="")


def _as_given(case: Case) -> Mapping[str, Any]:
    return {f"rotated_{name}": case.inputs[name] for name in ("query", "key")}


def _frequencies(query: Any, base: float, rotary_dim: int | None) -> Any:
    from minimal.serving import rope_torch

    return rope_torch.frequencies(base, query.shape[-1] if rotary_dim is None else rotary_dim, query)


def _angles(positions: Any, frequencies: Any) -> Any:
    from minimal.serving import rope_torch

    return rope_torch.angles(positions, frequencies)


def _rotated_query(query: Any, angles: Any, is_neox_style: bool) -> Any:
    from minimal.serving import rope_torch

    return rope_torch.rotate(query, angles, is_neox_style)


def _rotated_key(key: Any, angles: Any, is_neox_style: bool) -> Any:
    from minimal.serving import rope_torch

    return rope_torch.rotate(key, angles, is_neox_style)


STAGES = (
    Stage("frequencies", ("F",), "theta of each pair; F is R/2", _frequencies, "radian per token"),
    Stage("angles", ("T", "F"), "position times frequency", _angles, "radian"),
    Stage("rotated_query", ("T", "H", "D"), "the queries, turned", _rotated_query),
    Stage("rotated_key", ("T", "K", "D"), "the keys, turned", _rotated_key),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("base", 10000.0, (10000.0, 500000.0, 1000000.0), "of the frequencies; the larger, the longer the context"),
    Knob("rotary_dim", None, (None, 4), "R, how many coordinates of a head turn; None for all of them"),
    Knob(
        "is_neox_style",
        True,
        (True, False),
        "a pair is coordinates i and i + R/2 (Llama, NeoX), or 2i and 2i + 1 (GPT-J, the paper)",
    ),
)

INPUTS = (
    Input("positions", ("T",), "int", "of each token, counted from 0; in any order", "token"),
    Input("query", ("T", "H", "D"), "float", "heads of queries", differentiable=True),
    Input("key", ("T", "K", "D"), "float", "heads of keys, perhaps fewer", differentiable=True),
)
OUTPUTS = (
    Output("rotated_query", ("T", "H", "D"), "turned by the token's position"),
    Output("rotated_key", ("T", "K", "D"), "turned by the token's position"),
)
AXES = axes_of(INPUTS, OUTPUTS)

CONTRACT = Contract(
    name="rope",
    kind="value",
    title="Rotary position embedding (RoPE)",
    doc=DOC,
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    oracle=oracle,
    probes=(
        Probe("relative", "a product of query and key depends on the difference of their positions only", _moved_on),
        Probe("length", "a rotation keeps the length of every head", _lengths_kept),
        identity("start", "at position 0 nothing turns", _at_start, _as_given),
        permutation(AXES, "T"),
        permutation(AXES, "H", name="heads"),
        split(AXES, "T"),
    ),
    stages=STAGES,
    rewritings=REWRITINGS,
)
