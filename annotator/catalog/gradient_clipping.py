"""`gradient-clipping`: one gradient cut into tensors and shards, scaled down where its global norm is too large.

Apart from an optimiser because clipping needs the whole vector, which a rank does not hold. The contract hands over a
flat gradient and says where each entry lies; the right result does not depend on that. Each reference meets the cut in
its own way: as tensors of one process, as phases of a pipeline whose norms are put together, as the ranks of an FSDP
module. Out of scope: gradients of mixed dtypes, DTensors, `error_if_nonfinite`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from annotator import pins
from annotator.catalog._third_party import quiet
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
from annotator.contracts.probes import apart, axes_of, growth, identity, permutation

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Outputs = Mapping[str, Any]

TORCH_EPS = 1e-6

DOC = r"""
With p the norm's type and c the longest that the result may be:

    norm = (sum_i |g_i|^p)^(1/p)        max_i |g_i| for p = inf, over every tensor on every shard
    g <- g min(1, c / (norm + eps))

The norm is returned as it was before. No gradient passes.

Sources: arXiv 1211.5063, algorithm 1 (whose eps is 0); PyTorch's `clip_grad_norm_`.
"""


# References -----------------------------------------------------------------------------------------------------------


def _pieces(gradients: Any, tensor: Any, shard: Any) -> dict[int, list[tuple[Any, Any]]]:
    """Shard to the parameters that it holds: places in the flat vector, and a parameter that carries the gradient."""
    import torch

    held: dict[int, list[tuple[Any, Any]]] = {}
    for rank in shard.unique().tolist():
        for name in tensor[shard == rank].unique().tolist():
            places = torch.nonzero((shard == rank) & (tensor == name))[:, 0]
            parameter = torch.nn.Parameter(torch.zeros_like(gradients[places]))
            parameter.grad = gradients[places]
            held.setdefault(rank, []).append((places, parameter))
    return held


def _joined(gradients: Any, held: Mapping[int, list[tuple[Any, Any]]], total: Any) -> Outputs:
    """The parameters' gradients, clipped by now, as a flat vector again."""
    clipped = gradients.clone()
    for places, parameter in (piece for pieces in held.values() for piece in pieces):
        clipped[places] = parameter.grad
    return {"clipped": clipped, "total_norm": total.to(gradients)}


@functools.cache
def _clip_grad() -> Any:
    return pins.load("torch:torch.nn.utils.clip_grad")


def _at_once(
    foreach: bool, gradients: Any, tensor: Any, shard: Any, *, max_norm: float, norm_type: float, eps: float
) -> Outputs:
    """`clip_grad_norm_` on all tensors of all shards."""
    held = _pieces(gradients, tensor, shard)
    parameters = [parameter for pieces in held.values() for _, parameter in pieces]
    total = _clip_grad().clip_grad_norm_(parameters, max_norm, norm_type, foreach=foreach)
    return _joined(gradients, held, total)


def _in_phases(gradients: Any, tensor: Any, shard: Any, *, max_norm: float, norm_type: float, eps: float) -> Outputs:
    """Norm and scaling apart: the norm of each shard, the norm of these, then each shard by that."""
    held, clip = _pieces(gradients, tensor, shard), _clip_grad()
    local = [clip._get_total_norm([p.grad for _, p in pieces], norm_type) for pieces in held.values()]
    total = clip._get_total_norm(local, norm_type)
    for pieces in held.values():
        clip._clip_grads_with_norm_([parameter for _, parameter in pieces], max_norm, total)
    return _joined(gradients, held, total)


@functools.cache
def _fsdp() -> Any:
    with quiet():
        return pins.load("torch:torch.distributed.fsdp.fully_sharded_data_parallel")


class _Exchange(Exception):
    """Raised where a rank has handed in what it brings to the reduction."""


def _fsdp_ranks(gradients: Any, tensor: Any, shard: Any, *, max_norm: float, norm_type: float, eps: float) -> Outputs:
    """The method of FSDP, rank after rank: once up to its reduction, then again with what all have brought to it."""
    import torch

    held, brought, totals = _pieces(gradients, tensor, shard), [], []

    def hand_in(value: Any, **_: Any) -> None:
        brought.append(value.clone())
        raise _Exchange

    def reduce(value: Any, **options: Any) -> None:
        value.copy_(torch.stack(brought).amax(0) if "op" in options else torch.stack(brought).sum(0))

    for exchange in (hand_in, reduce):
        with _collective(exchange):
            for pieces in held.values():
                try:
                    totals.append(_fsdp().FullyShardedDataParallel.clip_grad_norm_(_rank(pieces), max_norm, norm_type))
                except _Exchange:
                    continue
    assert all(torch.equal(total, totals[0]) or total.isnan() for total in totals), "ranks disagree"
    return _joined(gradients, held, totals[0])


@contextmanager
def _collective(exchange: Callable[..., None]) -> Iterator[None]:
    """FSDP without process groups: ``exchange`` stands for the reduction over ranks."""
    with (
        mock.patch.object(_fsdp(), "_lazy_init"),
        mock.patch.object(_fsdp().dist, "all_reduce", exchange),
    ):
        yield


def _rank(pieces: list[tuple[Any, Any]]) -> SimpleNamespace:
    """What the method asks of a module whose parameters are all sharded."""
    import torch

    parameters = [parameter for _, parameter in pieces]
    handles = [SimpleNamespace(uses_sharded_strategy=True, _use_orig_params=False, flat_param=p) for p in parameters]
    device = parameters[0].device
    return SimpleNamespace(
        _is_root=True,
        _zero_scalar=torch.tensor(0.0, device=device),
        _assert_state=lambda _: None,
        _all_handles=handles,
        parameters=lambda: parameters,
        process_group=None,
        cpu_offload=SimpleNamespace(offload_params=False),
        compute_device=device,
        rank=0,
    )


@functools.cache
def _verl() -> Any:
    with quiet():
        return pins.load("verl:verl.utils.fsdp_utils")


def _verl_fsdp2(gradients: Any, tensor: Any, shard: Any, *, max_norm: float, norm_type: float, eps: float) -> Outputs:
    """verl's stand-in for `clip_grad_norm_`. It moves the norm to the accelerator: here, to where the gradients are."""
    held = _pieces(gradients, tensor, shard)
    parameters = [parameter for pieces in held.values() for _, parameter in pieces]
    with mock.patch.object(_verl(), "get_device_id", return_value=gradients.device):
        total = _verl().fsdp2_clip_grad_norm_(parameters, max_norm, norm_type)
    return _joined(gradients, held, total)


def _has_ranks(case: Case) -> str | None:
    return None if np.size(case.inputs["gradients"]) else "FSDP without a parameter has no rank"


# Minimal --------------------------------------------------------------------------------------------------------------


def _minimal_torch(gradients: Any, tensor: Any, shard: Any, **knobs: Any) -> Outputs:
    from minimal.framework import clipping_torch

    clipped, total_norm = clipping_torch.clip_gradients(gradients, shard, **knobs)
    return {"clipped": clipped, "total_norm": total_norm}


def _minimal_jax(gradients: Any, tensor: Any, shard: Any, **knobs: Any) -> Outputs:
    from minimal.framework import clipping_jax

    clipped, total_norm = clipping_jax.clip_gradients(gradients, shard, **knobs)
    return {"clipped": clipped, "total_norm": total_norm}


_CLIP = "torch:torch.nn.utils.clip_grad"

IMPLEMENTATIONS = (
    Implementation(
        name="torch-single",
        role="reference",
        backend="torch",
        call=functools.partial(_at_once, False),
        symbols=(f"{_CLIP}.clip_grad_norm_", f"{_CLIP}._get_total_norm", f"{_CLIP}._clip_grads_with_norm_"),
        dialect={"eps": TORCH_EPS},
        requires=("torch",),
        differentiable=False,
    ),
    Implementation(
        name="torch-foreach",
        role="reference",
        backend="torch",
        call=functools.partial(_at_once, True),
        symbols=(f"{_CLIP}.clip_grad_norm_", f"{_CLIP}._get_total_norm", f"{_CLIP}._clip_grads_with_norm_"),
        dialect={"eps": TORCH_EPS},
        requires=("torch",),
        differentiable=False,
    ),
    Implementation(
        name="torch-phases",
        role="reference",
        backend="torch",
        call=_in_phases,
        symbols=(f"{_CLIP}._get_total_norm", f"{_CLIP}._clip_grads_with_norm_"),
        dialect={"eps": TORCH_EPS},
        requires=("torch",),
        differentiable=False,
    ),
    Implementation(
        name="torch-fsdp",
        role="reference",
        backend="torch",
        call=_fsdp_ranks,
        symbols=(
            "torch:torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel.clip_grad_norm_",
            "torch:torch.distributed.fsdp.fully_sharded_data_parallel._get_grad_norm",
        ),
        dialect={"eps": TORCH_EPS},
        requires=("torch",),
        dtypes=("float32",),  # its norms are forced to float32, which a float64 gradient does not allow
        differentiable=False,
        accepts=_has_ranks,
    ),
    Implementation(
        name="verl-fsdp2",
        role="reference",
        backend="torch",
        call=_verl_fsdp2,
        symbols=("verl:verl.utils.fsdp_utils.fsdp2_clip_grad_norm_",),
        dialect={"eps": TORCH_EPS},
        requires=("verl",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/framework/clipping_torch.py",),
        differentiable=False,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/framework/clipping_jax.py",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, gradients: Any, tensor: Any = None, shard: Any = None, **knobs: Any) -> Case:
    values = np.array(gradients, dtype=np.float64)
    places = np.arange(len(values))
    inputs = {
        "gradients": values,
        "tensor": np.array(places // 2 if tensor is None else tensor, dtype=np.int64),
        "shard": np.array(places % 2 if shard is None else shard, dtype=np.int64),
    }
    return Case(inputs, {**{knob.name: knob.default for knob in KNOBS}, **knobs}, label)


def _edges() -> tuple[Case, ...]:
    wave = [3.0, -1.5, 0.25, -4.0, 2.0, 0.5]
    short = [x / 64 for x in wave]
    lone = [8.0, 0.25, 0.25, 0.25, 0.25, 0.25]
    inf = math.inf
    return (
        _case("too long", wave),
        _case("short: left as it is", short),
        _case("exactly as long as allowed", [3.0, 0.0, 0.0, -4.0], max_norm=5.0),
        _case("exactly as long, no eps", [3.0, 0.0, 0.0, -4.0], max_norm=5.0, eps=0.0),
        _case("a hair too long", [3.0, 0.0, 2.0**-10, -4.0], max_norm=5.0),
        _case("short by less than eps", [0.0059997, 0.0, 0.0, -0.0079996], max_norm=0.01),
        _case("a gradient of 0", [0.0] * 4),
        _case("a gradient of 0, no eps", [0.0] * 4, eps=0.0),
        _case("one parameter", [-3.0], [0], [0]),
        _case("one tensor, one shard", wave, [0] * 6, [0] * 6),
        _case("every entry on its own shard", wave, [0] * 6, range(6)),
        _case("one tensor on three shards", wave, [0] * 6, [0, 0, 1, 1, 2, 2]),
        _case("shards numbered with gaps", wave, [5, 5, 1, 1, 1, 0], [4, 4, 4, 2, 2, 2]),
        _case("a shard that is short by itself", lone, [0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0]),
        _case("a shard of zeros", [3.0, 0.0, 0.0, 4.0], [0, 0, 1, 1], [0, 1, 1, 0]),
        _case("each shard short, the whole too long", [0.75, 0.0, 0.0, -0.75], [0, 0, 1, 1], [0, 0, 1, 1]),
        _case("sum of absolute values", wave, norm_type=1.0),
        _case("sum of absolute values, cancelling", [2.0, -2.0, 3.0, -3.0], norm_type=1.0),
        _case("cubes", wave, norm_type=3.0),
        _case("largest entry", wave, norm_type=inf),
        _case("largest entry, negative, short", short, norm_type=inf, max_norm=0.01),
        _case("huge", [x * 2.0**40 for x in wave]),
        _case("small, a smaller bound", short, max_norm=0.01),
        _case("smaller than eps", [x * 2.0**-30 for x in wave], max_norm=0.01),
        _case("not a number", [1.0, np.nan, 2.0, 0.0]),
        _case("an infinite entry", [1.0, inf, 2.0, 0.0]),
        _case("an infinite entry, largest entry", [1.0, -inf, 2.0, 0.0], norm_type=inf),
        _case("no parameter", [], [], []),
    )


def _drawn_case(draw: DrawFn) -> Case:
    """Gradients on a grid of eighths, too long and short ones alike; few different sizes, since JAX compiles anew."""
    from hypothesis import strategies as st

    size = draw(st.sampled_from((1, 4, 6)))
    labels = st.lists(st.integers(0, min(size, 3) - 1), min_size=size, max_size=size)
    eighths = draw(st.lists(st.integers(-32, 32), min_size=size, max_size=size))
    factor = draw(st.sampled_from((1 / 8, 2.0**-7, 4.0)))
    knobs = {knob.name: draw(st.sampled_from(knob.choices)) for knob in KNOBS}
    return _case("", [n * factor for n in eighths], draw(labels), draw(labels), **knobs)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    gradients: Any,
    tensor: Any,
    shard: Any,
    *,
    max_norm: float,
    norm_type: float,
    eps: float,
    scope: Any = None,
    parts: Any = None,
    measure: Any = None,
    combine: Any = None,
    coefficient: Any = None,
    scale: Any = None,
    report: Any = None,
) -> Outputs:
    """Clipping with one part replaced. A part left out is the right one.

    ``scope`` labels what is clipped together, ``parts`` what is measured first and then combined; the norm that is
    reported is that of the first scope.
    """
    import torch

    from minimal.framework import clipping_torch as right

    whole = scope(tensor, shard) if scope else torch.zeros_like(shard)
    pieces = parts(tensor, shard) if parts else tensor
    norms = torch.zeros_like(gradients)  # [P], of the scope of each entry
    for label in whole.unique():
        inside = whole == label
        held = [gradients[inside & (pieces == piece)] for piece in pieces[inside].unique()]
        local = torch.stack([(measure or right.vector_norm)(part, norm_type) for part in held])
        norms[inside] = (combine or right.vector_norm)(local, norm_type)
    factors = (coefficient or right.clip_coefficient)(norms, max_norm, eps)
    clipped = (scale or (lambda g, factor, _: g * factor))(gradients, factors, max_norm)
    first = norms[whole.argmin()] if len(norms) else norms.sum()
    return {"clipped": clipped, "total_norm": report(gradients, clipped, shard, norm_type) if report else first}


def _norm(values: Any, norm_type: float) -> Any:
    from minimal.framework import clipping_torch as right

    return right.vector_norm(values, norm_type)


def _rms(values: Any, norm_type: float) -> Any:
    return _norm(values, norm_type) / max(len(values), 1) ** (1 / norm_type)


def _powers(values: Any, norm_type: float) -> Any:
    """The norm with its root forgotten."""
    return _norm(values, norm_type) ** (1 if math.isinf(norm_type) else norm_type)


def _signed(values: Any, norm_type: float) -> Any:
    """The p-th powers without the absolute value."""
    if math.isinf(norm_type):
        return values.max() if len(values) else values.sum()
    total = (values**norm_type).sum()
    return total.sign() * total.abs() ** (1 / norm_type)


def _narrow(values: Any, norm_type: float) -> Any:
    import torch

    return _norm(values.to(torch.bfloat16), norm_type).to(values)


def _only_above(norm: Any, max_norm: float, eps: float) -> Any:
    import torch

    return torch.where(norm > max_norm, max_norm / (norm + eps), torch.where(norm.isnan(), norm, 1.0))


def _by_shard(tensor: Any, shard: Any) -> Any:
    return shard


def _by_tensor(tensor: Any, shard: Any) -> Any:
    return tensor


def _first_shards(gradients: Any, clipped: Any, shard: Any, norm_type: float) -> Any:
    return _norm(gradients[shard == shard.min()] if len(shard) else gradients, norm_type)


DEVIATIONS = (
    Deviation(
        name="shard-norm",
        wrong="each shard is clipped by its own norm",
        right="by the norm of the whole gradient",
        call=functools.partial(_variant, scope=_by_shard),
        seen_in="pytorch #170862, AReaL #312",
        zoo=28,
        stage="total_norm",
    ),
    Deviation(
        name="tensor-norm",
        wrong="each tensor is clipped by its own norm",
        right="by the norm of the whole gradient",
        call=functools.partial(_variant, scope=_by_tensor),
        stage="total_norm",
    ),
    Deviation(
        name="scaled-up",
        wrong="a short gradient is stretched to max_norm",
        right="the factor is at most 1",
        call=functools.partial(_variant, coefficient=lambda norm, c, eps: c / (norm + eps)),
        stage="coefficient",
    ),
    Deviation(
        name="clip-by-value",
        wrong="every entry is clamped to max_norm",
        right="all are scaled by one factor",
        call=functools.partial(_variant, scale=lambda g, factor, c: g.clamp(-c, c)),
        stage="clipped",
    ),
    Deviation(
        name="eps-as-floor",
        wrong="max_norm / max(norm, eps)",
        right="eps is added to the norm",
        call=functools.partial(_variant, coefficient=lambda norm, c, eps: (c / norm.clamp(min=eps)).clamp(max=1)),
        stage="coefficient",
    ),
    Deviation(
        name="only-above",
        wrong="scaled where norm > max_norm",
        right="where max_norm / (norm + eps) < 1, which begins eps earlier",
        call=functools.partial(_variant, coefficient=_only_above),
        stage="coefficient",
    ),
    Deviation(
        name="inverted",
        wrong="the factor is norm / max_norm",
        right="max_norm / norm",
        call=functools.partial(_variant, coefficient=lambda norm, c, eps: ((norm + eps) / c).clamp(max=1)),
        stage="coefficient",
    ),
    Deviation(
        name="root-forgotten",
        wrong="the sum of powers without its root",
        right="the p-th root of it",
        call=functools.partial(_variant, combine=lambda norms, p: _powers(norms, p)),
        stage="total_norm",
    ),
    Deviation(
        name="norms-added",
        wrong="the norms of the tensors are added",
        right="their p-th powers are",
        call=functools.partial(_variant, combine=lambda norms, p: norms.sum()),
        stage="total_norm",
    ),
    Deviation(
        name="norms-averaged",
        wrong="the mean of the tensors' norms",
        right="the norm of them",
        call=functools.partial(_variant, combine=lambda norms, p: norms.mean()),
        stage="total_norm",
    ),
    Deviation(
        name="combined-by-two",
        wrong="the tensors' p-norms are combined by the 2-norm",
        right="by the p-norm",
        call=functools.partial(_variant, combine=lambda norms, p: _norm(norms, 2.0)),
        stage="total_norm",
    ),
    Deviation(
        name="ranks-averaged",
        wrong="the powers are averaged over ranks",
        right="summed over them",
        call=functools.partial(_variant, parts=_by_shard, combine=_rms),
        stage="total_norm",
    ),
    Deviation(
        name="replicas-counted",
        wrong="the reduction runs over ranks that hold the same gradient too, and counts it once for each",
        right="over the ranks that hold different shards",
        call=functools.partial(
            _variant, parts=_by_shard, combine=lambda norms, p: _norm(norms, p) * len(norms) ** (1 / p)
        ),
        seen_in="VeOmni #184",
        stage="total_norm",
    ),
    Deviation(
        name="root-mean-square",
        wrong="the mean of the powers of a tensor",
        right="their sum",
        call=functools.partial(_variant, measure=_rms),
        stage="shard_norms",
    ),
    Deviation(
        name="signed-powers",
        wrong="powers of the entries",
        right="of their absolute values",
        call=functools.partial(_variant, measure=_signed),
        stage="shard_norms",
    ),
    Deviation(
        name="narrow-norm",
        wrong="the norm of the gradient rounded to bfloat16",
        right="in the gradient's own dtype or a wider one",
        call=functools.partial(_variant, measure=_narrow),
        stage="shard_norms",
    ),
    Deviation(
        name="norm-after",
        wrong="the norm that is returned is that of the clipped gradient",
        right="that of the gradient before",
        call=functools.partial(_variant, report=lambda g, clipped, shard, p: _norm(clipped, p)),
        stage="total_norm",
    ),
    Deviation(
        name="local-norm-reported",
        wrong="clipped by the global norm, but the first shard's is returned",
        right="the global one is",
        call=functools.partial(_variant, report=_first_shards),
        seen_in="miles_diffusion #35",
        stage="total_norm",
    ),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _as_one(gradients: Any, tensor: Any, shard: Any, *, max_norm: float, norm_type: float, eps: float) -> Outputs:
    import torch

    total = torch.linalg.vector_norm(gradients, norm_type) if len(gradients) else gradients.sum()
    return {"clipped": gradients * torch.clamp_max(max_norm / (total + eps), 1.0), "total_norm": total}


def _by_largest(gradients: Any, tensor: Any, shard: Any, *, max_norm: float, norm_type: float, eps: float) -> Outputs:
    """The norm in units of the largest entry, so that no power overflows."""
    size = np.abs(gradients)
    unit = size.max(initial=0.0)
    if unit == 0 or not np.isfinite(unit) or math.isinf(norm_type):
        total = unit
    else:
        total = unit * ((size / unit) ** norm_type).sum() ** (1 / norm_type)
    with np.errstate(all="ignore"):
        factor = np.minimum(np.asarray(max_norm, dtype=size.dtype) / (total + eps), 1.0)
    return {"clipped": (gradients * factor).astype(size.dtype), "total_norm": np.asarray(total, dtype=size.dtype)}


REWRITINGS = (
    Rewriting("as-one-vector", "the norm of the flat vector, which no cut enters", _as_one),
    Rewriting("scaled-powers", "powers of the entries over the largest one", _by_largest, backend="numpy"),
)


# Probes and stages ----------------------------------------------------------------------------------------------------


def _cut_otherwise(run: Runner, case: Case) -> float | None:
    size = np.size(case.inputs["gradients"])
    if size < 2:
        return None
    labels = {"tensor": np.arange(size) * 2 // size, "shard": np.arange(size)[::-1] * 3 // size}
    if size < 3:
        labels["shard"] = np.arange(size)
    other = Case({**case.inputs, **labels}, case.knobs)
    return apart(run(other), run(case), case)


def _never_longer(run: Runner, case: Case) -> float | None:
    gradients, c = case.inputs["gradients"], case.knobs["max_norm"]
    if not np.isfinite(gradients).all() or not len(gradients):
        return None
    return max(0.0, float(np.linalg.norm(run(case).outputs["clipped"], case.knobs["norm_type"]) / c - 1))


def _is_short(case: Case) -> Case | None:
    gradients, knobs = case.inputs["gradients"], case.knobs
    if not np.isfinite(gradients).all() or not len(gradients):
        return None
    norm = np.linalg.norm(gradients, knobs["norm_type"])
    return case if norm + 2 * max(knobs["eps"], 1e-6) < knobs["max_norm"] else None


def _shard_norms(gradients: Any, shard: Any, norm_type: float) -> Any:
    from minimal.framework import clipping_torch

    return clipping_torch.shard_norms(gradients, shard, norm_type)


def _total_norm(shard_norms: Any, norm_type: float) -> Any:
    from minimal.framework import clipping_torch

    return clipping_torch.total_norm(shard_norms, norm_type)


def _coefficient(total_norm: Any, max_norm: float, eps: float) -> Any:
    from minimal.framework import clipping_torch

    return clipping_torch.clip_coefficient(total_norm, max_norm, eps)


def _clipped(gradients: Any, coefficient: Any) -> Any:
    from minimal.framework import clipping_torch

    return clipping_torch.scale(gradients, coefficient)


STAGES = (
    Stage("shard_norms", ("P",), "the norm of shard s at place s, 0 elsewhere", _shard_norms, "gradient"),
    Stage("total_norm", (), "the norm of the whole", _total_norm, "gradient"),
    Stage("coefficient", (), "the factor, at most 1", _coefficient),
    Stage("clipped", ("P",), "the gradient after clipping", _clipped, "gradient"),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("max_norm", 1.0, (1.0, 5.0, 0.01), "the longest that the result may be"),
    Knob("norm_type", 2.0, (2.0, 1.0, 3.0, math.inf), "p of the norm, inf for the largest entry"),
    Knob("eps", TORCH_EPS, (TORCH_EPS, 0.0), "added to the norm; 1e-6 throughout PyTorch, 0 in the paper"),
)

INPUTS = (
    Input("gradients", ("P",), "float", "of all parameters, as one vector", "loss per parameter"),
    Input("tensor", ("P",), "int", "number of the tensor that an entry belongs to, in 0..P-1"),
    Input("shard", ("P",), "int", "number of the shard (rank) that holds it, in 0..P-1; may cut a tensor"),
)
OUTPUTS = (
    Output("clipped", ("P",), "the gradient, scaled down where it was too long", "loss per parameter"),
    Output("total_norm", (), "its norm before that", "loss per parameter"),
)
AXES = axes_of(INPUTS, OUTPUTS)

CONTRACT = Contract(
    name="gradient-clipping",
    kind="value",
    title="Clipping a gradient by its global norm",
    doc=DOC,
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=(
        Probe("split", "another cut into tensors and shards changes nothing", _cut_otherwise),
        permutation(AXES, "P"),
        Probe("bound", "the result is no longer than max_norm", _never_longer),
        identity(
            "short", "a short gradient stays as it is", _is_short, lambda case: {"clipped": case.inputs["gradients"]}
        ),
        growth(),
    ),
    stages=STAGES,
    rewritings=REWRITINGS,
)
