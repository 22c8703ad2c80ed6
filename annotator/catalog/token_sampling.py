"""`token-sampling`: from logits to the distribution that the next token is drawn from, and the draw, as vLLM does it.

Apart from an engine: what a running batch keeps in its persistent state are inputs here, a value for each request.
Out of scope: allowed tokens, bad words, logit bias, minimum lengths, thinking budgets, speculative tokens.

**Order** (vLLM): penalties, temperature, min-p, top-k, top-p. Min-p and top-k remove the same tokens in either order;
top-p must come last, because its running sum is over what the others left, renormalised.

**Ties.** Every token that ties with the k-th logit stays. The likeliest token is the one with the lowest id. At the
border of the nucleus vLLM removes in the order of an ascending sort that does not promise to be stable; no case here
splits a tie there.

**Borders.** vLLM computes in float32, the oracle in float64. Cases keep every decision away from its border: logits
that are neither equal by construction nor 1e-3 apart after the penalties do not occur, and thresholds of min-p and
top-p lie between two neighbours that are well apart. Nor does a probability underflow in float32 beside a row that has
a top-p below 1: vLLM's mask would then reach into rows that have none.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from annotator.contracts import probes
from annotator.contracts.comparison import error
from annotator.contracts.model import (
    Case,
    Contract,
    Deviation,
    Implementation,
    Input,
    Output,
    Probe,
    Rewriting,
    Runner,
    Stage,
)

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

GREEDY_BELOW = 1e-5
OFF = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalties": 0.0,
    "frequency_penalties": 0.0,
    "repetition_penalties": 1.0,
}
"""Values at which an option changes nothing; that of ``top_k`` is V."""

DOC = r"""
With c the counts of tokens in the output, s true for tokens of prompt or output, per row and token:

    z <- z / r  where s and z > 0,   z r  where s and z <= 0         repetition
    z <- z - f c - p [c > 0]                                         frequency, presence
    z <- z / T                                                       T < 1e-5: greedy
    remove where softmax(z) < min_p max softmax(z)
    remove where z < (k-th largest z)
    remove, in ascending order, while the running sum of softmax(z) is at most 1 - top_p
    log_probabilities = log_softmax(z)

A greedy row takes argmax z after the penalties; its filters are off and its log-probabilities are those at T = 1, which
is what vLLM reports for it.

Sources: top-p, arXiv 1904.09751; min-p, arXiv 2407.01082; repetition, arXiv 1909.05858; vLLM's `Sampler`.
"""


# Reference ------------------------------------------------------------------------------------------------------------


@functools.cache
def _vllm() -> SimpleNamespace:
    """The parts of vLLM that are called, from the pin. Imported once, quietly, with no hub and no usage report."""
    from annotator import pins

    with _environment(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR"):
        sampler = pins.load("vllm:vllm.v1.sample.sampler")
        metadata = pins.load("vllm:vllm.v1.sample.metadata")
        processors = pins.load("vllm:vllm.v1.sample.logits_processor")
        params = pins.load("vllm:vllm.sampling_params")
    return SimpleNamespace(
        Sampler=sampler.Sampler,
        SamplingMetadata=metadata.SamplingMetadata,
        SamplingParams=params.SamplingParams,
        BatchUpdate=processors.BatchUpdate,
        LogitsProcessors=processors.LogitsProcessors,
        MinPLogitsProcessor=processors.MinPLogitsProcessor,
    )


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Environment variables for the time of an import whose warnings are not ours."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _vllm_call(logits: Any, **options: Any) -> Mapping[str, Any]:
    """`Sampler.forward` on the batch. A greedy row's probabilities are 1 at the token that it returned."""
    import torch

    tokens, log_probabilities = _forward(logits, **options, seed=0)
    certain = torch.nn.functional.one_hot(tokens, logits.shape[-1]).to(log_probabilities.dtype)
    greedy = (options["temperature"] < GREEDY_BELOW)[:, None]
    return {
        "kept": log_probabilities > -torch.inf,
        "log_probabilities": log_probabilities,
        "probabilities": torch.where(greedy, certain, log_probabilities.exp()),
    }


def _vllm_sample(*, draws: int, seed: int, **arguments: Any) -> Any:
    """Each row ``draws`` times in one batch through `Sampler.forward`, which draws once a row."""
    repeated = {name: value.repeat_interleave(draws, dim=0) for name, value in arguments.items()}
    tokens, _ = _forward(**repeated, seed=seed)
    return tokens.reshape(-1, draws)


def _forward(
    logits: Any,
    prompt_token_ids: Any,
    output_token_ids: Any,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    min_p: Any,
    presence_penalties: Any,
    frequency_penalties: Any,
    repetition_penalties: Any,
    seed: int,
) -> tuple[Any, Any]:
    """vLLM's tokens [B] and processed log-probabilities [B, V].

    The metadata is made as `InputBatch._make_sampling_metadata` makes it: None for what no request uses. All rows
    share one seeded generator: without any, the CPU path is compiled on first use.
    """
    import torch

    v, vocabulary = _vllm(), logits.shape[-1]
    greedy = temperature < GREEDY_BELOW
    top_k = torch.where(greedy, vocabulary, top_k)
    top_p = torch.where(greedy, 1.0, top_p)
    penalties = (presence_penalties, frequency_penalties, repetition_penalties - 1)
    generator = torch.Generator().manual_seed(seed)
    metadata = v.SamplingMetadata(
        temperature=None if greedy.all() else temperature,
        all_greedy=bool(greedy.all()),
        all_random=not greedy.any(),
        top_p=top_p if (top_p < 1).any() else None,
        top_k=top_k if (top_k < vocabulary).any() else None,
        generators=dict.fromkeys(range(len(logits)), generator),
        max_num_logprobs=-1,
        no_penalties=not any(bool(penalty.any()) for penalty in penalties),
        prompt_token_ids=prompt_token_ids,
        frequency_penalties=frequency_penalties,
        presence_penalties=presence_penalties,
        repetition_penalties=repetition_penalties,
        output_token_ids=[[token for token in row if token != vocabulary] for row in output_token_ids.tolist()],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=v.LogitsProcessors([_min_p_processor(min_p, greedy)]),
    )
    # The sampler writes into float32 logits.
    made = v.Sampler(logprobs_mode="processed_logprobs")(logits.clone(), metadata)
    return made.sampled_token_ids[:, 0].long(), made.logprobs_tensors.logprobs


def _min_p_processor(min_p: Any, greedy: Any) -> Any:
    """vLLM's min-p processor with one request added for each row; a greedy one loses its min-p in its parameters."""
    v = _vllm()
    config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=len(min_p)))
    processor = v.MinPLogitsProcessor(config, "cpu", False)
    made = functools.cache(lambda value, is_greedy: v.SamplingParams(temperature=1 - is_greedy, min_p=value))
    rows = zip(min_p.tolist(), greedy.tolist(), strict=True)
    added: list[Any] = [(index, made(value, is_greedy), None, []) for index, (value, is_greedy) in enumerate(rows)]
    processor.update_state(v.BatchUpdate(batch_size=len(added), removed=[], added=added, moved=[]))
    return processor


# Oracle ---------------------------------------------------------------------------------------------------------------


def oracle(logits: np.ndarray, **options: np.ndarray) -> Mapping[str, np.ndarray]:
    """Our own float64 transcription, row by row, with the nucleus summed from its head."""
    rows = [_row(logits[b], **{name: value[b] for name, value in options.items()}) for b in range(len(logits))]
    names = ("kept", "log_probabilities", "probabilities")
    return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(names)}


def _row(
    z: np.ndarray,
    prompt_token_ids: np.ndarray,
    output_token_ids: np.ndarray,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    presence_penalties: float,
    frequency_penalties: float,
    repetition_penalties: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kept, log-probabilities and probabilities of one row, each [V]."""
    penalties = (presence_penalties, frequency_penalties, repetition_penalties)
    z = _penalised(z, prompt_token_ids, output_token_ids, *penalties)
    if temperature < GREEDY_BELOW:
        certain = np.zeros_like(z)
        certain[int(z.argmax())] = 1.0
        return z > -np.inf, _log_softmax(z), certain
    z = _below(z / temperature, top_k, min_p)
    z = np.where(_nucleus(z, top_p), z, -np.inf)
    return z > -np.inf, _log_softmax(z), np.exp(_log_softmax(z))


def _penalised(
    z: np.ndarray, prompt: np.ndarray, output: np.ndarray, presence: float, frequency: float, repetition: float
) -> np.ndarray:
    counts = np.bincount(output, minlength=len(z) + 1)[: len(z)]
    seen = (counts > 0) | (np.bincount(prompt, minlength=len(z) + 1)[: len(z)] > 0)
    pushed = np.where(z > 0, z / repetition, z * repetition)
    result: np.ndarray = np.where(seen, pushed, z) - frequency * counts - presence * (counts > 0)
    return result


def _below(z: np.ndarray, top_k: int, min_p: float) -> np.ndarray:
    """Min-p and top-k, which may be taken at once: both are thresholds on z."""
    ratio = np.exp(z - z.max())
    return np.where((ratio >= min_p) & (z >= np.sort(z)[-top_k]), z, -np.inf)


def _nucleus(z: np.ndarray, top_p: float) -> np.ndarray:
    """A token is in the nucleus when the likelier ones do not yet reach ``top_p``."""
    order = np.argsort(z, kind="stable")[::-1]
    ahead = np.concatenate(([0.0], np.cumsum(np.exp(_log_softmax(z[order])))[:-1]))
    inside = np.empty(len(z), dtype=bool)
    inside[order] = (ahead < top_p) | (top_p >= 1)
    return inside & (z > -np.inf)


def _log_softmax(z: np.ndarray) -> np.ndarray:
    result: np.ndarray = z - z.max()
    result -= np.log(np.exp(result).sum())
    return result


# Minimal --------------------------------------------------------------------------------------------------------------


def _minimal_torch(**arguments: Any) -> Mapping[str, Any]:
    from minimal.serving.sampling_torch import process_logits

    result: dict[str, Any] = process_logits(**arguments)._asdict()
    return result


def _minimal_torch_sample(*, draws: int, seed: int, **arguments: Any) -> Any:
    import torch

    from minimal.serving.sampling_torch import process_logits, sample_tokens

    probabilities = process_logits(**arguments).probabilities
    return sample_tokens(probabilities, torch.Generator(probabilities.device).manual_seed(seed), draws)


def _minimal_jax(**arguments: Any) -> Mapping[str, Any]:
    from minimal.serving.sampling_jax import process_logits

    result: dict[str, Any] = process_logits(**arguments)._asdict()
    return result


def _minimal_jax_sample(*, draws: int, seed: int, **arguments: Any) -> Any:
    import jax

    from minimal.serving.sampling_jax import process_logits, sample_tokens

    return sample_tokens(process_logits(**arguments).probabilities, jax.random.key(seed), draws)


IMPLEMENTATIONS = (
    Implementation(
        name="vllm",
        role="reference",
        backend="torch",
        call=_vllm_call,
        symbols=(
            "vllm:vllm.v1.sample.sampler.Sampler",
            "vllm:vllm.v1.sample.ops.penalties.apply_all_penalties",
            "vllm:vllm.model_executor.layers.utils.apply_penalties",
            "vllm:vllm.v1.sample.logits_processor.builtin.MinPLogitsProcessor",
            "vllm:vllm.v1.sample.ops.topk_topp_sampler.TopKTopPSampler",
            "vllm:vllm.v1.sample.ops.topk_topp_sampler.apply_top_k_top_p_pytorch",
            "vllm:vllm.v1.sample.ops.topk_topp_sampler.apply_top_k_only",
            "vllm:vllm.v1.sample.ops.topk_topp_sampler.sample_with_exponential_noise",
        ),
        requires=("torch", "vllm"),
        dtypes=("float32",),
        differentiable=False,
        sample=_vllm_sample,
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/serving/sampling_torch.py",),
        requires=("torch",),
        differentiable=False,
        sample=_minimal_torch_sample,
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/serving/sampling_jax.py",),
        requires=("jax",),
        differentiable=False,
        sample=_minimal_jax_sample,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


PROMPT, OUTPUT = 3, 4
"""Widths of the padded token ids in all cases."""


def cases() -> SearchStrategy[Case]:
    """Batches of 1 or 3 requests over 2 to 8 tokens, greedy and random ones mixed, all decisions off their borders.

    Few different shapes, since JAX compiles anew for each.
    """
    from hypothesis import strategies as st

    @st.composite
    def case(draw: DrawFn) -> Case:
        vocabulary = draw(st.sampled_from((2, 4, 8)))
        rows = [_drawn_row(draw, vocabulary) for _ in range(draw(st.sampled_from((1, 3))))]
        return Case({name: np.array([row[name] for row in rows]) for name in rows[0]})

    return case()


def _drawn_row(draw: DrawFn, vocabulary: int) -> dict[str, Any]:
    from hypothesis import strategies as st

    grid = st.integers(0, 48).map(lambda n: (n if n <= 24 else 24 - n) / 4)  # 0, then outwards: shrinks to 0
    ids = st.integers(0, vocabulary)
    # Penalties off every simple ratio, so that two logits are equal by construction or well apart.
    row = {
        "logits": np.array(draw(st.lists(grid, min_size=vocabulary, max_size=vocabulary))),
        "prompt_token_ids": np.array(draw(st.lists(ids, min_size=PROMPT, max_size=PROMPT))),
        "output_token_ids": np.array(draw(st.lists(ids, min_size=OUTPUT, max_size=OUTPUT))),
        "presence_penalties": draw(st.sampled_from((0.0, 0.4421, -0.3313))),
        "frequency_penalties": draw(st.sampled_from((0.0, 0.3137, -0.2719))),
        "repetition_penalties": draw(st.sampled_from((1.0, 1.2371, 0.7713))),
        "temperature": draw(st.sampled_from((1.0, 0.0, 1e-6, 0.4, 0.7, 1.6))),
        "top_k": draw(st.integers(1, vocabulary)),
    }
    if not _apart(_penalised(*_penalty_arguments(row))):
        row |= {name: OFF[name] for name in OFF if name.endswith("penalties")}
    return _with_thresholds(row, draw(st.integers(0, 7)), draw(st.integers(0, 7)))


def _penalty_arguments(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("logits", "prompt_token_ids", "output_token_ids")
    return tuple(row[name] for name in (*names, "presence_penalties", "frequency_penalties", "repetition_penalties"))


def _apart(z: np.ndarray) -> bool:
    """Whether any two logits are equal or at least 1e-3 apart."""
    gaps = np.diff(np.sort(z))
    return bool(((gaps == 0) | (gaps > 1e-3)).all())


def _with_thresholds(row: dict[str, Any], which_min_p: int, which_top_p: int) -> dict[str, Any]:
    """Adds a min-p and a top-p to a row, chosen by number among those that lie midway between two decisions."""
    z = _penalised(*_penalty_arguments(row)) / max(row["temperature"], 0.4)
    ratios = np.unique(np.exp(z - z.max()))
    min_ps = [OFF["min_p"], *_midway(ratios, 0.05)]
    min_p = min_ps[which_min_p % len(min_ps)]
    kept = _below(z, row["top_k"], min_p)
    levels, sizes = np.unique(kept[kept > -np.inf], return_counts=True)
    each = (np.exp(levels) / (np.exp(levels) * sizes).sum())[::-1]  # probability of one token, the likeliest first
    reached = np.cumsum(each * sizes[::-1])  # of all that tie with it and all that are likelier
    top_ps = [OFF["top_p"], *(reached - each / 2)[each > 0.01].tolist()]
    return {**row, "min_p": min_p, "top_p": top_ps[which_top_p % len(top_ps)]}


def _midway(ascending: np.ndarray, gap: float) -> list[float]:
    """The middles between neighbours that are more than ``gap`` apart."""
    return [float((low + high) / 2) for low, high in itertools.pairwise(ascending) if high - low > gap]


def edges() -> tuple[Case, ...]:
    """Named cases that always run."""
    half = np.log([0.5, 0.25, 0.15, 0.1])
    mixed: dict[str, Any] = {
        "temperature": [0.0, 1.0, 0.5],
        "top_k": [1, 4, 2],
        "top_p": [0.3, 0.6, 1.0],
        "min_p": [0.9, 0.0, 0.1],
    }
    return (
        _edge("all off", [half]),
        _edge("greedy: temperature 0", [half[::-1]], temperature=[0.0]),
        _edge("greedy: temperature near 0", [half], temperature=[9e-6]),
        _edge("random: temperature just above the greedy ones", [[0, 0, -1, -2]], temperature=[2e-5]),
        _edge("greedy: the lowest id of ties", [[1, 2, 2, 0]], temperature=[0.0]),
        _edge("greedy: filters do not show", [half], temperature=[0.0], top_k=[1], top_p=[0.1], min_p=[1.0]),
        _edge("greedy after penalties", [[2, 1.9, 0, 0]], output=[[0, 4]], presence_penalties=[0.5], temperature=[0.0]),
        _edge("greedy and random rows in one batch", [half, half, half], **mixed),
        _edge("all rows greedy", [half, half[::-1]], temperature=[0.0, 1e-6], top_k=[2, 4], top_p=[0.6, 1.0]),
        _edge("top_k 1", [half[::-1]], top_k=[1]),
        _edge("top_k V is off", [half], top_k=[4]),
        _edge("top_k keeps all ties with the k-th", [[3, 1, 1, 0]], top_k=[2]),
        _edge("top_k off in one row, on in another", [half, half], top_k=[4, 2]),
        _edge("top_p 1 is off", [[10, 0, -10, -20]], top_p=[1.0]),
        _edge("top_p keeps the token that crosses", [half], top_p=[0.6]),
        _edge("tiny top_p keeps one", [half[::-1]], top_p=[1e-6]),
        _edge("top_p of what top_k left", [half], top_k=[2], top_p=[0.6]),
        _edge("top_p of what min_p left", [half], min_p=[0.4], top_p=[0.6]),
        _edge("top_p after temperature", [half], temperature=[0.5], top_p=[0.7]),
        _edge("min_p 1 keeps the likeliest and its ties", [[2, 1, 2, 0]], min_p=[1.0]),
        _edge("min_p is a share of the likeliest", [half], min_p=[0.25]),
        _edge("min_p in one row only", [half, half], min_p=[0.0, 0.6]),
        _edge("repetition on both sides of 0", [[2, -2, 0, 1]], output=[[0, 1, 2, 4]], repetition_penalties=[1.5]),
        _edge("repetition below 1 encourages", [[2, -2, 0, 1]], output=[[0, 1, 2, 4]], repetition_penalties=[0.5]),
        _edge("repetition counts the prompt", [[2, -2, 0, 1]], prompt=[[0, 1, 4]], repetition_penalties=[1.5]),
        _edge("frequency does not count the prompt", [half], prompt=[[0, 0, 1]], frequency_penalties=[0.7]),
        _edge("frequency counts repeats", [half], output=[[0, 0, 0, 1]], frequency_penalties=[0.7]),
        _edge("presence does not", [half], output=[[0, 0, 0, 1]], presence_penalties=[0.7]),
        _edge("penalties before temperature", [half], output=[[0, 0]], frequency_penalties=[0.6], temperature=[0.5]),
        _edge(
            "an empty history beside a long one", [half, half], output=[[4] * 3, [3] * 3], presence_penalties=[1, -1]
        ),
        _edge("a token that cannot be", [[1, -np.inf, 0, 2]], output=[[0, 1]], frequency_penalties=[0.3], top_k=[3]),
        _edge("two tokens", [[0.5, -0.5]], top_p=[0.9], min_p=[0.1]),
        _edge("two tokens, one kept", [[0.5, -0.5]], top_p=[0.5]),
    )


def _edge(
    label: str,
    logits: Any,
    *,
    prompt: list[list[int]] | None = None,
    output: list[list[int]] | None = None,
    **options: list[float],
) -> Case:
    z = np.array(logits, dtype=np.float64)
    batch, vocabulary = z.shape
    inputs: dict[str, Any] = {"logits": z, "top_k": np.full(batch, vocabulary)}
    inputs |= {name: np.full(batch, value) for name, value in OFF.items()}
    inputs["prompt_token_ids"] = _padded(prompt or [[]] * batch, PROMPT, vocabulary)
    inputs["output_token_ids"] = _padded(output or [[]] * batch, OUTPUT, vocabulary)
    inputs |= {name: np.array(value) for name, value in options.items()}
    return Case(inputs, {}, label)


def _padded(rows: list[list[int]], width: int, pad: int) -> np.ndarray:
    return np.array([row + [pad] * (width - len(row)) for row in rows])


# Deviations -----------------------------------------------------------------------------------------------------------

Filter = Callable[[Any, SimpleNamespace], Any]


def _penalties(
    z: Any, o: SimpleNamespace, *, negative: str = "times", frequency_of: str = "output", seen: str = "both"
) -> Any:
    import torch

    prompt, output = _counts(o.prompt_token_ids, z.shape[-1]), _counts(o.output_token_ids, z.shape[-1])
    r = o.repetition_penalties[:, None]
    pushed = torch.where((z > 0) | (negative == "divided"), z / r, z * r)
    z = torch.where((output > 0) | ((prompt > 0) & (seen == "both")), pushed, z)
    counts = output + prompt if frequency_of == "both" else output
    presence = output if frequency_of == "presence too" else output > 0
    return z - o.frequency_penalties[:, None] * counts - o.presence_penalties[:, None] * presence


def _counts(ids: Any, vocabulary: int) -> Any:
    import torch

    return torch.nn.functional.one_hot(ids, vocabulary + 1).sum(dim=1)[:, :vocabulary]


def _temperature(z: Any, o: SimpleNamespace) -> Any:
    return z / o.temperature[:, None]


def _min_p(z: Any, o: SimpleNamespace, *, share_of_one: bool = False) -> Any:
    p = z.softmax(dim=-1)
    largest = 1.0 if share_of_one else p.amax(dim=-1, keepdim=True)
    removed = p < o.min_p[:, None] * largest
    removed[p == p.amax(dim=-1, keepdim=True)] = False
    return z.masked_fill(removed, -float("inf"))


def _top_k(z: Any, o: SimpleNamespace, *, more: int = 0, exactly: bool = False) -> Any:
    ranks = z.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    k = (o.top_k + more).clamp(1, z.shape[-1])[:, None]
    kth = z.sort(dim=-1, descending=True).values.gather(-1, k - 1)
    return z.masked_fill(ranks >= k if exactly else z < kth, -float("inf"))


def _top_p(z: Any, o: SimpleNamespace, *, crossing: bool = True) -> Any:
    order = z.argsort(dim=-1, descending=True, stable=True)
    p = z.gather(-1, order).softmax(dim=-1)
    reached = p.cumsum(dim=-1) - (p if crossing else 0)
    removed = (reached >= o.top_p[:, None]) & (o.top_p[:, None] < 1)
    removed[:, 0] = False
    return z.masked_fill(removed.gather(-1, order.argsort(dim=-1)), -float("inf"))


FILTERS: dict[str, Filter] = {
    "penalties": _penalties,
    "temperature": _temperature,
    "min_p": _min_p,
    "top_k": _top_k,
    "top_p": _top_p,
}


def _variant(
    logits: Any,
    *,
    order: str = "penalties temperature min_p top_k top_p",
    changed: Mapping[str, Filter] | None = None,
    likeliest_of: Callable[[Any, Any], Any] = lambda logits, penalised: penalised,
    log_softmax: Callable[[Any, Any, SimpleNamespace], Any] = lambda z, logits, o: z.log_softmax(dim=-1),
    reported: Callable[[Any, Any, Any, SimpleNamespace], Any] = lambda log_p, z, logits, o: log_p,
    **options: Any,
) -> Mapping[str, Any]:
    """The pipeline with one part replaced: the order of its filters, some of them, or what is made of the result."""
    import torch

    o, greedy = _options(logits, options)
    filters, z = {**FILTERS, **(changed or {})}, logits
    for name in order.split():
        z = filters[name](z, o)
    chosen = likeliest_of(logits, filters["penalties"](logits, o)).argmax(dim=-1)
    log_p = log_softmax(z, logits, o)
    certain = torch.nn.functional.one_hot(chosen, z.shape[-1]).to(z.dtype)
    return {
        "kept": z > -torch.inf,
        "log_probabilities": reported(log_p, z, logits, o),
        "probabilities": torch.where(greedy[:, None], certain, log_p.exp()),
    }


def _with(**parts: Any) -> Callable[..., Mapping[str, Any]]:
    return functools.partial(_variant, **parts)


def _options(logits: Any, options: Mapping[str, Any]) -> tuple[SimpleNamespace, Any]:
    """The options with those of greedy rows off, and which rows are greedy."""
    import torch

    greedy = options["temperature"] < GREEDY_BELOW
    off: dict[str, Any] = {**{name: OFF[name] for name in ("temperature", "top_p", "min_p")}, "top_k": logits.shape[-1]}
    chosen = {name: torch.where(greedy, value, options[name]) for name, value in off.items()}
    return SimpleNamespace(**{**options, **chosen}), greedy


def _of_everything(z: Any, logits: Any, o: SimpleNamespace) -> Any:
    """The filters' mask on the log-probabilities of the whole vocabulary."""
    whole = _temperature(_penalties(logits, o), o)
    return whole.log_softmax(dim=-1).masked_fill(z == -float("inf"), -float("inf"))


def _raw(log_p: Any, z: Any, logits: Any, o: SimpleNamespace) -> Any:
    """Log-probabilities of the model, before penalties, temperature and filters."""
    return logits.log_softmax(dim=-1)


def _at_temperature_one(log_p: Any, z: Any, logits: Any, o: SimpleNamespace) -> Any:
    """Log-probabilities of the kept tokens, the temperature forgotten."""
    return _penalties(logits, o).masked_fill(z == -float("inf"), -float("inf")).log_softmax(dim=-1)


def _race(probabilities: Any, draws: int, seed: int, *, uniform: bool = False) -> Any:
    """``argmax p / e``; exponential noise makes it a draw from p, uniform noise does not."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    noise = torch.empty(probabilities.shape[0], draws, probabilities.shape[1], dtype=torch.float64)
    noise = noise.uniform_(generator=generator) if uniform else noise.exponential_(generator=generator)
    return (probabilities.cpu().double()[:, None] / noise.clamp(min=1e-300)).argmax(dim=-1)


def _sampled(call: Callable[..., Mapping[str, Any]], *, uniform: bool = False) -> Callable[..., Any]:
    def sample(*, draws: int, seed: int, **arguments: Any) -> Any:
        return _race(call(**arguments)["probabilities"], draws, seed, uniform=uniform)

    return sample


def _changed(name: str, **how: Any) -> dict[str, Filter]:
    return {name: functools.partial(FILTERS[name], **how)}


def _deviation(
    name: str,
    wrong: str,
    right: str,
    call: Any,
    *,
    stage: str,
    drawn: Any = None,
    zoo: int | None = None,
    seen_in: str = "",
) -> Deviation:
    return Deviation(name, wrong, right, call, seen_in=seen_in, zoo=zoo, sample=drawn, stage=stage)


def _right(**arguments: Any) -> Mapping[str, Any]:
    """Nothing replaced. No part of a variant, so that it makes no pairs: with it only the draw is wrong."""
    return _variant(**arguments)


DEVIATIONS = (
    _deviation(
        "temperature-last",
        "the temperature is applied after the filters",
        "before them: it changes which tokens the nucleus holds",
        _with(order="penalties min_p top_k top_p temperature"),
        stage="scaled",
    ),
    _deviation(
        "penalties-last",
        "penalties are applied to scaled logits",
        "before the temperature, in units of the model's logits",
        _with(order="temperature penalties min_p top_k top_p"),
        stage="penalised",
    ),
    _deviation(
        "min-p-last",
        "the nucleus is summed before min-p has removed its tail",
        "min-p first, then the nucleus of the rest",
        _with(order="penalties temperature top_k top_p min_p"),
        stage="filtered",
    ),
    _deviation(
        "top-p-before-top-k",
        "the nucleus is summed over the whole vocabulary",
        "over what top-k left, renormalised",
        _with(order="penalties temperature min_p top_p top_k"),
        stage="filtered",
    ),
    _deviation(
        "nucleus-without-crossing",
        "the token that crosses top_p is removed",
        "it stays, so that the nucleus has at least top_p",
        _with(changed=_changed("top_p", crossing=False)),
        stage="filtered",
    ),
    _deviation(
        "repetition-divides-negative",
        "negative logits are divided too, which makes repeats likelier",
        "they are multiplied",
        _with(changed=_changed("penalties", negative="divided")),
        stage="penalised",
    ),
    _deviation(
        "repetition-of-output-only",
        "the prompt is left out of the repetition penalty",
        "prompt and output both count",
        _with(changed=_changed("penalties", seen="output")),
        stage="penalised",
    ),
    _deviation(
        "presence-as-frequency",
        "presence is multiplied by the count",
        "it is taken once",
        _with(changed=_changed("penalties", frequency_of="presence too")),
        stage="penalised",
    ),
    _deviation(
        "frequency-of-prompt",
        "prompt tokens count in the frequency penalty",
        "the output alone",
        _with(changed=_changed("penalties", frequency_of="both")),
        stage="penalised",
    ),
    _deviation(
        "min-p-of-one",
        "min_p is a probability",
        "it is a share of the likeliest token's",
        _with(changed=_changed("min_p", share_of_one=True)),
        stage="filtered",
    ),
    _deviation(
        "top-k-one-more",
        "k + 1 tokens are kept",
        "k, and the ties with the k-th",
        _with(changed=_changed("top_k", more=1)),
        stage="filtered",
    ),
    _deviation(
        "top-k-breaks-ties",
        "exactly k tokens are kept, by id among ties",
        "every token that ties with the k-th stays",
        _with(changed=_changed("top_k", exactly=True)),
        stage="filtered",
    ),
    _deviation(
        "greedy-before-penalties",
        "a greedy row takes the likeliest token of the raw logits",
        "of the penalised ones",
        _with(likeliest_of=lambda logits, penalised: logits),
        stage="penalised",
    ),
    _deviation(
        "not-renormalised",
        "probabilities of the whole vocabulary for tokens of the nucleus",
        "the same support above and below the fraction",
        _with(log_softmax=_of_everything),
        zoo=9,
        seen_in="TRL #6789",
        stage="log_probabilities",
    ),
    _deviation(
        "raw-log-probabilities",
        "log-probabilities of the model",
        "those of the distribution that was sampled",
        _with(reported=_raw),
        zoo=10,
        seen_in="TRL #4159, #4163",
        stage="log_probabilities",
    ),
    _deviation(
        "log-probabilities-at-temperature-one",
        "log-probabilities without the sampling temperature",
        "logits / T before the log-softmax",
        _with(reported=_at_temperature_one),
        zoo=8,
        seen_in="TRL #3029",
        stage="log_probabilities",
    ),
    _deviation(
        "draws-unmasked",
        "the mask is right, the draw ignores it",
        "drawn from what was kept",
        _right,
        drawn=_sampled(_with(order="penalties temperature")),
        stage="probabilities",
    ),
    _deviation(
        "draws-by-uniform-noise",
        "argmax of p over uniform noise",
        "over exponential noise",
        _right,
        drawn=_sampled(_right, uniform=True),
        stage="probabilities",
    ),
)

# Stages and rewritings ------------------------------------------------------------------------------------------------


def _stage_penalised(
    logits: Any,
    prompt_token_ids: Any,
    output_token_ids: Any,
    presence_penalties: Any,
    frequency_penalties: Any,
    repetition_penalties: Any,
) -> Any:
    from minimal.serving import sampling_torch

    penalties = (presence_penalties, frequency_penalties, repetition_penalties)
    return sampling_torch.apply_penalties(logits, prompt_token_ids, output_token_ids, *penalties)


def _stage_scaled(penalised: Any, temperature: Any) -> Any:
    from minimal.serving import sampling_torch

    return sampling_torch.apply_temperature(penalised, temperature)


def _stage_filtered(scaled: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any) -> Any:
    """Min-p, top-k, top-p in this order, off in a greedy row."""
    import torch

    from minimal.serving import sampling_torch

    greedy = temperature < GREEDY_BELOW
    z = sampling_torch.apply_min_p(scaled, torch.where(greedy, 0.0, min_p))
    z = sampling_torch.apply_top_k(z, torch.where(greedy, scaled.shape[-1], top_k))
    return sampling_torch.apply_top_p(z, torch.where(greedy, 1.0, top_p))


def _stage_log_probabilities(filtered: Any) -> Any:
    return filtered.log_softmax(dim=-1)


def _stage_probabilities(log_probabilities: Any, penalised: Any, temperature: Any) -> Any:
    import torch

    certain = torch.nn.functional.one_hot(penalised.argmax(dim=-1), penalised.shape[-1]).to(penalised.dtype)
    return torch.where((temperature < GREEDY_BELOW)[:, None], certain, log_probabilities.exp())


STAGES = (
    Stage("penalised", ("B", "V"), "logits after the penalties", _stage_penalised, "nats"),
    Stage("scaled", ("B", "V"), "divided by the temperature", _stage_scaled, "nats"),
    Stage("filtered", ("B", "V"), "minus infinity where a filter removed a token", _stage_filtered, "nats"),
    Stage("log_probabilities", ("B", "V"), "of what is left", _stage_log_probabilities, "nats"),
    Stage("probabilities", ("B", "V"), "of the draw", _stage_probabilities, "probability"),
)

REWRITINGS = (
    Rewriting(
        "nucleus-from-its-head",
        "filters by ranks in descending order, the nucleus summed from its likeliest token",
        _right,
        sample=_sampled(_right),
    ),
)


# Contract -------------------------------------------------------------------------------------------------------------

INPUTS = (
    Input("logits", ("B", "V"), "float", "of the model, one row a request", "nats"),
    Input("prompt_token_ids", ("B", "P"), "int", "padded with the id V", "token id"),
    Input("output_token_ids", ("B", "O"), "int", "generated so far, padded with the id V", "token id"),
    Input("temperature", ("B",), "float", "at least 0; below 1e-5 the row is greedy"),
    Input("top_k", ("B",), "int", "1..V; V is off", "tokens"),
    Input("top_p", ("B",), "float", "in (0, 1]; 1 is off", "probability"),
    Input("min_p", ("B",), "float", "in [0, 1]; 0 is off", "share of the largest probability"),
    Input("presence_penalties", ("B",), "float", "0 is off", "nats"),
    Input("frequency_penalties", ("B",), "float", "0 is off", "nats per occurrence"),
    Input("repetition_penalties", ("B",), "float", "above 0; 1 is off", "factor"),
)

OUTPUTS = (
    Output("kept", ("B", "V"), "tokens that no filter removed", exact=True),
    Output("log_probabilities", ("B", "V"), "after all filters, -inf where removed", "nats"),
    Output("probabilities", ("B", "V"), "of the draw; one 1 in a greedy row", "probability"),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)


def _normalised(run: Runner, case: Case) -> float | None:
    """Probabilities sum to one, and lie where something was kept."""
    made = run(case).outputs
    outside = float(made["probabilities"][~made["kept"]].max(initial=0.0))
    return max(error(made["probabilities"].sum(axis=-1), np.ones(len(made["kept"]))), outside)


def _shifted(run: Runner, case: Case) -> float | None:
    """A constant on every logit of a row changes nothing; the repetition penalty multiplies, so it must be off."""
    if (case.inputs["repetition_penalties"] != 1).any():
        return None
    before, after = run(case), run(Case({**case.inputs, "logits": case.inputs["logits"] + 0.5}, case.knobs))
    return max(error(after.outputs[n], a, exact=a.dtype.kind == "b") for n, a in before.outputs.items())


PROBES = (
    probes.permutation(AXES, "B"),
    probes.split(AXES, "B"),
    Probe("normalised", "the probabilities of a row sum to one, over what was kept", _normalised),
    Probe("shift", "a constant on all logits of a row changes nothing", _shifted),
)

CONTRACT = Contract(
    name="token-sampling",
    kind="distribution",
    title="From logits to the sampled token",
    doc=DOC,
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=(),
    cases=cases,
    edges=edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    oracle=oracle,
    probes=PROBES,
    stages=STAGES,
    rewritings=REWRITINGS,
)
