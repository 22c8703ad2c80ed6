"""The contract ``rejection-sampling``: which drafted tokens stand in speculative decoding, and what replaces the rest.

Bound to vLLM's `rejection_sample`, called with draft probabilities. (Without them, as for an n-gram proposer, it takes
every draft as certain. That is no reference of its own: there a test that ignores the draft is right.)

On the CPU its Triton kernels are replaced by C++ ones, which vLLM's worker registers; we register the same three. Those
run truthfully; `expand_batch_to_tokens`, through which temperature, top-k and top-p reach the rows of a request, does
not on the CPU (it returns uninitialised memory for floats), so the logits of this contract come after all of that.

**Randomness.** It is an input here, so that tokens are compared one by one; it is put in the place where vLLM draws it.
A sampler draws its own, and what it draws must follow the law.

**The law from vLLM.** Its kernels return tokens, not probabilities. The largest uniform number at which a draft still
stands is its probability, and the smallest advantage at which a token wins the race against the likeliest one is the
ratio of their weights; both are found by bisection through the kernels themselves.

**Borders.** vLLM computes in float32, the oracle in float64. Uniform numbers and clocks lie off the values at which a
draft falls or a race ties.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from annotator.catalog.token_sampling import _environment
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

Outputs = Mapping[str, Any]

DRAFTS, VOCABULARY = 2, 4
"""Widths of all cases: JAX compiles for each shape."""

DOC = """
At each drafted position, with p the target's distribution there, q the draft's and x the token drafted from q:

    x stands with probability min(1, p(x) / q(x)); else a token is drawn from max(p - q, 0), normalised.

The first draft that falls ends the step, its replacement is the last token; if none falls, the bonus token follows. In
a greedy row p is 1 at the largest logit. A token with q(x) = 0 never stands. Sum over x of q(x) times the law of the
first token given x is p: what comes out does not depend on the draft.

With handed-in randomness: x stands where uniform <= min(1, p(x) / q(x)); the replacement is argmax of the residual over
noise, the same noise at all positions of a request.

probabilities is the law of the whole step given the drafts: outcome k V + v is that the drafts before k stand, k falls
and v replaces it; the last outcome is that all stand.

Sources: arXiv 2211.17192, algorithm 1; arXiv 2302.01318; vLLM's `rejection_sample`.
"""


# Reference ------------------------------------------------------------------------------------------------------------

_KERNELS = ("rejection_greedy_sample_kernel", "rejection_random_sample_kernel", "sample_recovered_tokens_kernel")


@functools.cache
def _vllm() -> Any:
    """vLLM's module, with the kernels that its CPU worker would register in the place of Triton's."""
    from annotator import pins

    with _environment(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR"):
        module = pins.load("vllm:vllm.v1.sample.rejection_sampler")
        dispatcher = pins.load("vllm:vllm.triton_utils.dispatcher")
        kernels = pins.load("vllm:vllm.utils.cpu_triton_utils")
        dispatcher.register_kernels({f"{module.__name__}.{n}": getattr(kernels, f"_{n}_impl") for n in _KERNELS})
    return module


@contextmanager
def _given(uniform: Any, inverse: Any) -> Iterator[Any]:
    """vLLM with the randomness that is handed in, in the two places where it draws its own.

    Yields what stands for its uniform numbers; their value can be changed.
    """
    v = _vllm()

    def recovered(longest: int, lengths: Any, ends: Any, drafts: Any, q: Any, p: Any, *rest: Any) -> Any:
        import torch

        found = torch.empty_like(drafts)
        v._sample_recovered_tokens(found, ends, drafts, q, p, inverse, max_spec_len=longest)
        return found

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(v, "sample_recovered_tokens", recovered))
        yield stack.enter_context(mock.patch.object(v, "generate_uniform_probs", return_value=uniform))


def _stepped(logits: Any, q: Any, drafts: Any, lengths: list[int], bonus: Any, greedy: Any, *, certain: bool) -> Any:
    """`rejection_sample` on flat drafts [sum of lengths, ...]; tokens [B, longest + 1], then -1."""
    import torch

    metadata = SimpleNamespace(
        all_greedy=bool(greedy.all()),
        all_random=not greedy.any(),
        temperature=torch.where(greedy, 0.0, 1.0),
        generators={},
    )
    ends = torch.tensor(lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    ids, following = drafts.to(torch.int32), bonus.to(torch.int32)[:, None]
    given = None if certain else q.float().contiguous()
    longest = max(lengths)
    return (
        _vllm()
        .rejection_sample(
            ids.contiguous(), lengths, longest, ends, given, logits.float(), following.contiguous(), metadata
        )
        .long()
    )


def _flat(array: Any, lengths: Any) -> Any:
    """The real drafts of all rows, one after the other: [B, K, ...] -> [sum of lengths, ...]."""
    import torch

    return array[torch.arange(array.shape[1]) < lengths[:, None]]


def _vllm_call(
    target_logits: Any,
    draft_probs: Any,
    draft_token_ids: Any,
    draft_lengths: Any,
    bonus_token_ids: Any,
    greedy: Any,
    uniform: Any,
    noise: Any,
    *,
    certain: bool = False,
) -> Outputs:
    import torch

    batch, drafts, vocabulary = target_logits.shape
    logits, q, ids, test = (_flat(a, draft_lengths) for a in (target_logits, draft_probs, draft_token_ids, uniform))
    tokens = torch.full((batch, drafts + 1), -1)
    accept, recovered = test, logits
    if len(ids):
        with _given(test.double(), 1 / noise.float()):
            found = _stepped(logits, q, ids, draft_lengths.tolist(), bonus_token_ids, greedy, certain=certain)
        tokens[:, : found.shape[1]] = found
        accept, recovered = _law(logits, q, ids, greedy.repeat_interleave(draft_lengths), certain=certain)
    else:  # the engine does not ask without any draft: the bonus is the ordinary token
        tokens[:, 0] = bonus_token_ids
    return {"output_token_ids": tokens, "probabilities": _spread(accept, recovered, draft_lengths, drafts, vocabulary)}


def _spread(accept: Any, recovered: Any, lengths: Any, drafts: int, vocabulary: int) -> Any:
    """The law of every outcome from what each draft does; the rule of the first that falls, nothing of vLLM's."""
    import torch

    law = torch.zeros(len(lengths), drafts * vocabulary + 1, dtype=torch.float64)
    start = 0
    for row, length in enumerate(lengths.tolist()):
        run = 1.0
        for k in range(length):
            law[row, k * vocabulary : (k + 1) * vocabulary] = run * (1 - accept[start + k]) * recovered[start + k]
            run = run * accept[start + k]
        law[row, -1] = run
        start += length
    return law.float()


def _law(logits: Any, q: Any, drafts: Any, greedy: Any, *, certain: bool) -> tuple[Any, Any]:
    """The probability that each draft stands [N], and of what replaces it [N, V], by bisection through the kernels."""
    import torch

    count, vocabulary = logits.shape

    bonus = torch.zeros(count, dtype=torch.int64)
    top = torch.full((count,), 1 - 2.0**-25, dtype=torch.float64)
    with _given(top, torch.ones(count, vocabulary)) as numbers:

        def tokens(at: Any) -> Any:
            numbers.return_value = at
            return _stepped(logits, q, drafts, [1] * count, bonus, greedy, certain=certain)

        def stands(at: Any) -> Any:
            return tokens(at)[:, 1] >= 0

        always, never = stands(top), ~stands(torch.full_like(top, 2.0**-100))
        accept = _bisected(stands, torch.zeros_like(top), top)
        accept = torch.where(always, 1.0, torch.where(never, 0.0, accept))
        best = torch.nn.functional.one_hot(tokens(top)[:, 0], vocabulary).double()
    return accept, torch.where(greedy[:, None], best, _weights(logits, q, drafts, certain=certain))


def _weights(logits: Any, q: Any, drafts: Any, *, certain: bool) -> Any:
    """The distribution [N, V] that replacements are drawn from: each token races the likeliest one."""
    import torch

    v, (count, vocabulary) = _vllm(), logits.shape
    p = logits.softmax(dim=-1, dtype=torch.float32)

    def race(inverse: Any, times: int) -> Any:
        rows = count * times
        ids, ends = drafts.to(torch.int32).repeat_interleave(times), torch.arange(1, rows + 1, dtype=torch.int32)
        found = torch.empty_like(ids)
        given = None if certain else q.float().repeat_interleave(times, dim=0)
        v._sample_recovered_tokens(found, ends, ids, given, p.repeat_interleave(times, dim=0), inverse, max_spec_len=1)
        return found.long()

    best = race(torch.ones(count, vocabulary), 1).repeat_interleave(vocabulary)  # [N V]
    each = torch.arange(vocabulary).repeat(count)
    mine, theirs = (torch.nn.functional.one_hot(ids, vocabulary).float() for ids in (each, best))

    def loses(at: Any) -> Any:
        return (
            race(
                torch.where(each[:, None] == best[:, None], theirs, theirs + mine * at[:, None].float().exp2()),
                vocabulary,
            )
            == best
        )

    span = torch.full((len(each),), 50.0, dtype=torch.float64)
    handicap = _bisected(loses, torch.zeros_like(span), span)
    weight = torch.where(each == best, 1.0, torch.where(loses(span), 0.0, (-handicap).exp2())).reshape(
        count, vocabulary
    )
    return weight / weight.sum(dim=-1, keepdim=True)


def _bisected(holds: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """Where ``holds`` turns from true to false between ``low`` and ``high``, to 2**-30 of the interval."""
    import torch

    for _ in range(30):
        middle = (low + high) / 2
        held = holds(middle)
        low, high = torch.where(held, middle, low), torch.where(held, high, middle)
    return (low + high) / 2


def _vllm_sample(*, draws: int, seed: int, **arguments: Any) -> Any:
    """Each row ``draws`` times in one batch through `rejection_sample`, which draws its own randomness."""
    import torch

    from minimal.serving.rejection_torch import outcomes

    lengths = arguments["draft_lengths"]
    names = ("target_logits", "draft_probs", "draft_token_ids")
    some = lengths > 0
    many = {
        name: arguments[name][some].repeat_interleave(draws, dim=0) for name in (*names, "bonus_token_ids", "greedy")
    }
    repeated = lengths[some].repeat_interleave(draws)
    vocabulary, drafts = arguments["target_logits"].shape[-1], arguments["draft_token_ids"].shape[1]
    found = torch.full((len(lengths), draws), drafts * vocabulary)
    if len(repeated):
        logits, q, ids = (_flat(many[name], repeated) for name in names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            tokens = _stepped(logits, q, ids, repeated.tolist(), many["bonus_token_ids"], many["greedy"], certain=False)
        padded = torch.full((len(repeated), drafts + 1), -1)
        padded[:, : tokens.shape[1]] = tokens
        found[some] = outcomes(padded, repeated, vocabulary).reshape(-1, draws)
    return found


# Oracle ---------------------------------------------------------------------------------------------------------------


def oracle(**arguments: np.ndarray) -> Outputs:
    """Our own float64 transcription, request by request and draft by draft."""
    rows = [_row(**{name: value[b] for name, value in arguments.items()}) for b in range(len(arguments["greedy"]))]
    return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(("output_token_ids", "probabilities"))}


def _row(
    target_logits: np.ndarray,
    draft_probs: np.ndarray,
    draft_token_ids: np.ndarray,
    draft_lengths: int,
    bonus_token_ids: int,
    greedy: bool,
    uniform: np.ndarray,
    noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [K + 1] and the law [K V + 1] of one request."""
    drafts, vocabulary = target_logits.shape
    tokens, law, run, fallen = np.full(drafts + 1, -1), np.zeros(drafts * vocabulary + 1), 1.0, False
    for k in range(int(draft_lengths)):
        stands, instead = _position(target_logits[k], draft_probs[k], int(draft_token_ids[k]), bool(greedy))
        law[k * vocabulary : (k + 1) * vocabulary] = run * (1 - stands) * instead
        run *= stands
        if not fallen:
            fallen = not uniform[k] <= stands
            tokens[k] = (instead / noise).argmax() if fallen else draft_token_ids[k]
    if not fallen:
        tokens[draft_lengths] = bonus_token_ids
    law[-1] = run
    return tokens, law


def _position(z: np.ndarray, q: np.ndarray, x: int, greedy: bool) -> tuple[float, np.ndarray]:
    """How probably x stands, and the distribution of what replaces it."""
    p = np.eye(len(z))[z.argmax()] if greedy else np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    stands = min(1.0, p[x] / q[x]) if q[x] > 0 else 0.0
    more = np.maximum(p - q, 0)
    return stands, more / more.sum() if more.sum() > 0 else p


# Minimal --------------------------------------------------------------------------------------------------------------


def _minimal_torch(**arguments: Any) -> Outputs:
    from minimal.serving.rejection_torch import rejection_sample

    result: dict[str, Any] = rejection_sample(**arguments)._asdict()
    return result


def _minimal_jax(**arguments: Any) -> Outputs:
    from minimal.serving.rejection_jax import rejection_sample

    result: dict[str, Any] = rejection_sample(**arguments)._asdict()
    return result


def _sampled(call: Callable[..., Outputs]) -> Callable[..., Any]:
    """A sampler out of a call in torch: every row many times, with randomness of its own."""

    def sample(*, draws: int, seed: int, **arguments: Any) -> Any:
        import torch

        from minimal.serving.rejection_torch import outcomes

        made = torch.Generator().manual_seed(seed)
        many = {name: value.repeat_interleave(draws, dim=0) for name, value in arguments.items()}
        many["uniform"] = torch.rand(many["uniform"].shape, generator=made, dtype=many["noise"].dtype)
        many["noise"] = torch.empty_like(many["noise"]).exponential_(generator=made)
        tokens = call(**many)["output_token_ids"]
        return outcomes(tokens, many["draft_lengths"], many["draft_probs"].shape[-1]).reshape(-1, draws)

    return sample


@functools.cache
def _jax_sampler(draws: int) -> Callable[..., Any]:
    """Compiled as a whole, once a shape: operation by operation it takes many times as long."""
    import jax

    from minimal.serving.rejection_jax import outcomes, rejection_sample

    def sample(key: Any, arguments: dict[str, Any]) -> Any:
        test, race = jax.random.split(key)
        many = {name: value.repeat(draws, axis=0) for name, value in arguments.items()}
        many["uniform"] = jax.random.uniform(test, many["uniform"].shape, many["uniform"].dtype)
        many["noise"] = jax.random.exponential(race, many["noise"].shape, many["noise"].dtype)
        tokens = rejection_sample(**many).output_token_ids
        return outcomes(tokens, many["draft_lengths"], many["draft_probs"].shape[-1]).reshape(-1, draws)

    compiled: Callable[..., Any] = jax.jit(sample)
    return compiled


def _minimal_jax_sample(*, draws: int, seed: int, **arguments: Any) -> Any:
    import jax

    return _jax_sampler(draws)(jax.random.key(seed), arguments)


_SYMBOLS = (
    "vllm:vllm.v1.sample.rejection_sampler.rejection_sample",
    "vllm:vllm.v1.sample.rejection_sampler._rejection_greedy_sample",
    "vllm:vllm.v1.sample.rejection_sampler._rejection_random_sample",
    "vllm:vllm.v1.sample.rejection_sampler._sample_recovered_tokens",
    "vllm:vllm.v1.sample.rejection_sampler.sample_recovered_tokens",
    "vllm:vllm.v1.sample.rejection_sampler.generate_uniform_probs",
    "vllm:vllm.utils.cpu_triton_utils._rejection_greedy_sample_kernel_impl",
    "vllm:vllm.utils.cpu_triton_utils._rejection_random_sample_kernel_impl",
    "vllm:vllm.utils.cpu_triton_utils._sample_recovered_tokens_kernel_impl",
)

IMPLEMENTATIONS = (
    Implementation(
        name="vllm",
        role="reference",
        backend="torch",
        call=_vllm_call,
        symbols=_SYMBOLS,
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
        symbols=("minimal/serving/rejection_torch.py",),
        requires=("torch",),
        differentiable=False,
        sample=_sampled(_minimal_torch),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/serving/rejection_jax.py",),
        requires=("jax",),
        differentiable=False,
        sample=_minimal_jax_sample,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------

CLOCKS = (0.3217, 1.7123, 0.8841, 2.6139, 0.1373, 1.1557)
"""Noise of the cases: off every simple ratio, so that no race ties."""


def cases() -> SearchStrategy[Case]:
    """1 or 3 requests with 0 to 2 drafts over 4 tokens, greedy and random."""
    from hypothesis import strategies as st

    @st.composite
    def case(draw: DrawFn) -> Case:
        certain = draw(st.sampled_from((False, False, True)))
        rows = [_drawn_row(draw, VOCABULARY, certain) for _ in range(draw(st.sampled_from((1, 3))))]
        return Case({name: np.array([row[name] for row in rows]) for name in rows[0]})

    return case()


def _drawn_row(draw: DrawFn, vocabulary: int, certain: bool) -> dict[str, Any]:
    from hypothesis import strategies as st

    quarters = st.integers(0, 16).map(lambda n: (n if n <= 8 else 8 - n) / 4)  # 0, then outwards: shrinks to 0
    logits = np.array([[draw(quarters) for _ in range(vocabulary)] for _ in range(DRAFTS)])
    drafted = np.array([draw(st.integers(0, vocabulary - 1)) for _ in range(DRAFTS)])
    weights = np.array([[draw(st.integers(0, 8)) for _ in range(vocabulary)] for _ in range(DRAFTS)], dtype=float)
    weights[np.arange(DRAFTS), drafted] += 0.37  # a draft is possible, and p = q only by accident
    q = np.eye(vocabulary)[drafted] if certain else weights / weights.sum(axis=-1, keepdims=True)
    return {
        "target_logits": logits,
        "draft_probs": q,
        "draft_token_ids": drafted,
        "draft_lengths": draw(st.integers(0, DRAFTS)),
        "bonus_token_ids": draw(st.integers(0, vocabulary - 1)),
        "greedy": draw(st.sampled_from((False, False, True))),
        "uniform": np.array([draw(st.integers(0, 15)) / 16 + 0.0213 for _ in range(DRAFTS)]),
        "noise": np.array(draw(st.permutations(CLOCKS))[:vocabulary]),
    }


def edges() -> tuple[Case, ...]:
    """Corners of the test."""
    flat, low, high = [0.0, 0.0, 0.0, 0.0], [0.0, -np.inf, 1.0, -np.inf], [2.0, 0.0, 0.0, -1.0]
    even, skew, sure = [0.25] * 4, [0.125, 0.625, 0.125, 0.125], [0.0, 1.0, 0.0, 0.0]
    return (
        _edge("the draft is the target", [[flat, flat]], [[even, even]], [[1, 3]]),
        _edge("a draft that is certain", [[high, flat]], [[sure, sure]], [[1, 1]], uniform=[[0.1, 0.4]]),
        _edge("a draft that the target excludes", [[low, flat]], [[skew, even]], [[1, 0]]),
        _edge("a draft that cannot have been drawn", [[flat, flat]], [[sure, even]], [[0, 0]], uniform=[[0.1, 0.1]]),
        _edge("the second one falls", [[high, flat]], [[even, skew]], [[0, 1]], uniform=[[0.2, 0.9]]),
        _edge(
            "the first falls, the second would stand", [[flat, high]], [[skew, even]], [[1, 0]], uniform=[[0.9, 0.1]]
        ),
        _edge(
            "the likeliest loses the race",
            [[[0.0, 0.5, 0.0, 0.0], flat]],
            [[sure[::-1], even]],
            [[2, 0]],
            uniform=[[0.9, 0.1]],
        ),
        _edge("all stand", [[high, high]], [[even, even]], [[0, 0]], bonus=[3]),
        _edge("no draft", [[high, flat]], [[even, skew]], [[0, 1]], lengths=[0], bonus=[2]),
        _edge("ragged", [[high, flat]] * 3, [[skew, skew]] * 3, [[0, 1], [1, 1], [1, 0]], lengths=[1, 2, 0]),
        _edge("greedy, and right", [[high, high]], [[skew, skew]], [[0, 0]], greedy=[True], bonus=[1]),
        _edge("greedy, and wrong", [[high, high]], [[skew, skew]], [[0, 1]], greedy=[True], uniform=[[0.1, 0.1]]),
        _edge("greedy beside random", [[high, flat]] * 3, [[even, skew]] * 3, [[0, 1]] * 3, greedy=[True, False, True]),
        _edge("one draft", [[low, flat]], [[skew, even]], [[2, 1]], lengths=[1], uniform=[[0.9, 0.1]]),
    )


def _edge(
    label: str,
    logits: Any,
    q: Any,
    drafted: list[list[int]],
    *,
    lengths: list[int] | None = None,
    bonus: list[int] | None = None,
    greedy: list[bool] | None = None,
    uniform: list[list[float]] | None = None,
) -> Case:
    z, ids = np.array(logits, dtype=np.float64), np.array(drafted)
    batch, drafts, vocabulary = z.shape
    inputs = {
        "target_logits": z,
        "draft_probs": np.array(q, dtype=np.float64),
        "draft_token_ids": ids,
        "draft_lengths": np.array(lengths or [drafts] * batch),
        "bonus_token_ids": np.array(bonus or [0] * batch),
        "greedy": np.array(greedy or [False] * batch),
        "uniform": np.array(uniform or [[0.7321, 0.8713][:drafts]] * batch),
        "noise": np.array([CLOCKS[:vocabulary]] * batch),
    }
    return Case(inputs, {}, label)


# Probes and stages ----------------------------------------------------------------------------------------------------


def _expectation(run: Runner, case: Case) -> float | None:
    """Sum over x of q(x) times the law of the first token given x, against p, for every row that has a draft.

    Each row is repeated with every token as its first draft.
    """
    rows = np.flatnonzero(np.asarray(case.inputs["draft_lengths"]) > 0)
    vocabulary = np.shape(case.inputs["target_logits"])[-1]
    if not len(rows):
        return None
    inputs = {name: np.repeat(np.asarray(array)[rows], vocabulary, axis=0) for name, array in case.inputs.items()}
    inputs["draft_token_ids"][:, 0] = np.tile(np.arange(vocabulary), len(rows))
    found = run(replace(case, inputs=inputs, label="")).outputs.get("probabilities")
    if found is None:
        return None
    replaced = found[:, :vocabulary].reshape(len(rows), vocabulary, vocabulary)  # [row, x, first token]
    first = replaced + np.eye(vocabulary) * (1 - replaced.sum(axis=-1, keepdims=True))
    q = np.asarray(case.inputs["draft_probs"])[rows, 0]  # [row, x]
    return error(np.einsum("bx,bxv->bv", q, first), _targets(case)[rows, 0])


def _targets(case: Case) -> np.ndarray:
    z = np.asarray(case.inputs["target_logits"])
    p = np.exp(z - z.max(axis=-1, keepdims=True))
    certain = np.eye(z.shape[-1])[z.argmax(axis=-1)]
    greedy = np.asarray(case.inputs["greedy"])[:, None, None]
    chosen: np.ndarray = np.where(greedy, certain, p / p.sum(axis=-1, keepdims=True))
    return chosen


def _poisoned(run: Runner, case: Case) -> float | None:
    """What lies in the padding behind the real drafts does not matter."""
    real = np.arange(np.shape(case.inputs["uniform"])[1]) < np.asarray(case.inputs["draft_lengths"])[:, None]
    if real.all():
        return None
    filled = dict(case.inputs)
    for name in ("target_logits", "draft_probs"):
        filled[name] = np.where(real[..., None], case.inputs[name], 7.0)
    filled["uniform"] = np.where(real, case.inputs["uniform"], 0.999)
    filled["draft_token_ids"] = np.where(real, case.inputs["draft_token_ids"], 0)
    return probes.apart(run(replace(case, inputs=filled, label="")), run(case), case)


def _p_stage(target_logits: Any, greedy: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.target_probabilities(target_logits, greedy)


def _accept_stage(target_probs: Any, draft_probs: Any, draft_token_ids: Any, draft_lengths: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.acceptance(target_probs, draft_probs, draft_token_ids, draft_lengths)


def _recovered_stage(target_probs: Any, draft_probs: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.residual(target_probs, draft_probs)


def _law_stage(accept_probs: Any, recovered_probs: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.outcome_probabilities(accept_probs, recovered_probs)


STAGES = (
    Stage("target_probs", ("B", "K", "V"), "p, the target's distribution at each position", _p_stage, "probability"),
    Stage("accept_probs", ("B", "K"), "that each draft stands; 1 in padding", _accept_stage, "probability"),
    Stage("recovered_probs", ("B", "K", "V"), "of what replaces each draft", _recovered_stage, "probability"),
    Stage("probabilities", ("B", "O"), "of every outcome", _law_stage, "probability"),
)


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(
    target_logits: Any,
    draft_probs: Any,
    draft_token_ids: Any,
    draft_lengths: Any,
    bonus_token_ids: Any,
    greedy: Any,
    uniform: Any,
    noise: Any,
    *,
    target: Any = None,
    accept: Any = None,
    residual: Any = None,
    law: Any = None,
    run: Any = None,
    race: Any = None,
    last: Any = None,
    lengths: Any = None,
) -> Outputs:
    """The step with some parts replaced. A part left out is the right one, from the minimal version."""
    import torch

    from minimal.serving import rejection_torch as right

    counted = (lengths or (lambda x, ids: x))(draft_lengths, draft_token_ids)
    p = (target or right.target_probabilities)(target_logits, greedy)
    stands = (accept or right.acceptance)(p, draft_probs, draft_token_ids, counted)
    recovered = (residual or right.residual)(p, draft_probs)
    accepted = (run or right.accepted_drafts)(stands, uniform, counted)
    after = (last or (lambda all_stand, bonus: torch.where(all_stand, bonus, -1)))(accepted == counted, bonus_token_ids)
    chosen = (race or right.recovered_tokens)(recovered, noise)
    tokens = right.emitted_tokens(accepted, draft_token_ids, chosen, after)
    return {
        "output_token_ids": tokens,
        "probabilities": (law or right.outcome_probabilities)(stands, recovered),
    }


def _accept(ratio: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The acceptance with another ratio of p(x) and q(x)."""

    def accept(p: Any, q: Any, drafted: Any, lengths: Any) -> Any:
        import torch

        from minimal.serving import rejection_torch as right

        found = ratio(right.at_draft(p, drafted), right.at_draft(q, drafted))
        return torch.where(right.real_drafts(drafted, lengths), found.nan_to_num(0.0).clamp(0.0, 1.0), 1.0)

    return accept


def _normalised(more: Any, otherwise: Any) -> Any:
    import torch

    total = more.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, more / torch.where(total > 0, total, 1.0), otherwise)


def _counted_run(stands: Any, uniform: Any, lengths: Any) -> Any:
    return (uniform <= stands).sum(dim=1).minimum(lengths)


def _one_uniform(stands: Any, uniform: Any, lengths: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.accepted_drafts(stands, uniform[:, :1].expand_as(uniform), lengths)


def _reversed_test(stands: Any, uniform: Any, lengths: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.accepted_drafts(1 - stands, uniform, lengths)


def _next_position(p: Any, q: Any) -> Any:
    from minimal.serving import rejection_torch as right

    return right.residual(p.roll(-1, dims=1), q.roll(-1, dims=1))


def _draft_argmax(recovered: Any, noise: Any) -> Any:
    return recovered.argmax(dim=-1)


def _multiplied(recovered: Any, noise: Any) -> Any:
    return (recovered * noise[:, None, :]).argmax(dim=-1)


def _added_law(stands: Any, recovered: Any) -> Any:
    """Every position as if it were the first: what comes before it is forgotten."""
    import torch

    replaced = (1 - stands)[..., None] * recovered
    return torch.cat([replaced.flatten(1), stands.cumprod(dim=1)[:, -1:]], dim=1)


def _softmax_only(logits: Any, greedy: Any) -> Any:
    return logits.softmax(dim=-1)


def _deviation(
    name: str, wrong: str, right: str, *, stage: str = "", zoo: int | None = None, seen_in: str = "", **parts: Any
) -> Deviation:
    call = functools.partial(_variant, **parts)
    return Deviation(name, wrong, right, call, seen_in=seen_in, zoo=zoo, sample=_sampled(call), stage=stage)


DEVIATIONS = (
    _deviation(
        "draft-probabilities-ignored",
        "a draft stands with probability p(x), whatever the draft model thought of it",
        "with min(1, p(x) / q(x))",
        accept=_accept(lambda p, q: p),
        zoo=27,
        seen_in="vLLM #40149",
        stage="accept_probs",
    ),
    _deviation(
        "recovered-from-target",
        "what replaces a draft is drawn from p",
        "from the positive part of p - q",
        residual=lambda p, q: p,
        stage="recovered_probs",
    ),
    _deviation(
        "recovered-from-difference",
        "it is drawn from |p - q|",
        "from the positive part only",
        residual=lambda p, q: _normalised((p - q).abs(), p),
        stage="recovered_probs",
    ),
    _deviation(
        "difference-reversed",
        "it is drawn from the positive part of q - p",
        "of p - q",
        residual=lambda p, q: _normalised((q - p).clamp(min=0), p),
        stage="recovered_probs",
    ),
    _deviation(
        "residual-not-normalised",
        "the positive part of p - q is taken for a distribution",
        "it is divided by its sum",
        residual=lambda p, q: (p - q).clamp(min=0),
        stage="recovered_probs",
    ),
    _deviation(
        "ratio-reversed",
        "a draft stands with min(1, q(x) / p(x))",
        "with min(1, p(x) / q(x))",
        accept=_accept(lambda p, q: q / p),
        stage="accept_probs",
    ),
    _deviation(
        "accepted-where-likelier",
        "a draft stands where p(x) >= q(x), and never else",
        "else it still stands with p(x) / q(x)",
        accept=_accept(lambda p, q: (p >= q).to(p.dtype)),
        stage="accept_probs",
    ),
    _deviation(
        "test-reversed",
        "a draft falls where the uniform number is below the ratio",
        "it stands there",
        run=_reversed_test,
        stage="accept_probs",
    ),
    _deviation(
        "accepted-after-a-fall",
        "as many drafts stand as pass the test",
        "only those before the first that fails",
        run=_counted_run,
        stage="probabilities",
    ),
    _deviation(
        "one-uniform-number",
        "one uniform number decides all drafts of a request",
        "each has its own",
        run=_one_uniform,
        stage="probabilities",
    ),
    _deviation(
        "race-multiplied",
        "argmax of the residual times exponential noise",
        "over it",
        race=_multiplied,
        stage="recovered_probs",
    ),
    _deviation(
        "recovered-is-likeliest",
        "the likeliest token of the residual replaces a draft",
        "one drawn from it",
        race=_draft_argmax,
        stage="recovered_probs",
    ),
    _deviation(
        "recovered-at-next",
        "what replaces a draft comes from the next position's distributions",
        "from its own position's",
        residual=_next_position,
        stage="recovered_probs",
    ),
    _deviation(
        "bonus-always",
        "the bonus token takes the place of the draft that falls",
        "it follows only where all stand",
        last=lambda all_stand, bonus: bonus,
        stage="probabilities",
    ),
    _deviation(
        "padding-counted",
        "padding is taken for drafts",
        "only as many as the request has",
        lengths=lambda counted, ids: counted * 0 + ids.shape[1],
        stage="accept_probs",
    ),
    _deviation(
        "greedy-at-random",
        "a greedy row is tested like a random one",
        "its drafts stand where they are the likeliest token",
        target=_softmax_only,
        stage="target_probs",
    ),
    _deviation(
        "law-of-each-alone",
        "the probability that a draft falls is told without those before it",
        "it falls only if they stand",
        law=_added_law,
        stage="probabilities",
    ),
)


def _by_loops(**arguments: Any) -> Outputs:
    """Row by row, in Python: the oracle's text in torch's arrays."""
    import torch

    found = oracle(**{name: value.detach().cpu().numpy() for name, value in arguments.items()})
    return {
        "output_token_ids": torch.as_tensor(found["output_token_ids"]),
        "probabilities": torch.as_tensor(found["probabilities"]).to(arguments["noise"].dtype),
    }


def _weight_minus_minimum(p: Any, q: Any) -> Any:
    """max(p - q, 0) as p - min(p, q), its sum as one minus what the two share."""
    shared = p.minimum(q)
    return _normalised(p - shared, p)


REWRITINGS = (
    Rewriting("by-loops", "row by row and draft by draft, in NumPy", _by_loops),
    Rewriting(
        "residual-of-the-minimum",
        "p - min(p, q) for max(p - q, 0)",
        functools.partial(_variant, residual=_weight_minus_minimum),
        sample=_sampled(functools.partial(_variant, residual=_weight_minus_minimum)),
    ),
)


# Contract -------------------------------------------------------------------------------------------------------------

INPUTS = (
    Input(
        "target_logits", ("B", "K", "V"), "float", "of the target at each drafted position, all filters applied", "nats"
    ),
    Input("draft_probs", ("B", "K", "V"), "float", "q, the draft's distributions", "probability"),
    Input("draft_token_ids", ("B", "K"), "int", "drawn from q; any id in the padding", "token id"),
    Input("draft_lengths", ("B",), "int", "how many drafts a request has, 0..K", "tokens"),
    Input("bonus_token_ids", ("B",), "int", "the token that follows where all drafts stand", "token id"),
    Input("greedy", ("B",), "bool", "temperature 0"),
    Input("uniform", ("B", "K"), "float", "in [0, 1): a draft stands where it is at most the ratio"),
    Input("noise", ("B", "V"), "float", "standard exponential: the replacement is argmax of the residual over it"),
)

OUTPUTS = (
    Output("output_token_ids", ("B", "L"), "[B, K + 1]: what stands, one token more, then -1", "token id", exact=True),
    Output("probabilities", ("B", "O"), "[B, K V + 1]: of every outcome, given the drafts", "probability"),
)

PROBES = (
    Probe("expectation", "over drafts drawn from q, the first token is distributed as p", _expectation),
    Probe("padding", "what lies behind the real drafts does not matter", _poisoned),
    probes.permutation(probes.axes_of(INPUTS, OUTPUTS), "B"),
)

CONTRACT = Contract(
    name="rejection-sampling",
    kind="distribution",
    title="Which drafted tokens stand (speculative decoding)",
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
