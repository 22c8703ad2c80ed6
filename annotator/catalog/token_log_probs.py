"""The contract ``token-log-probs``: from logits to the log-probability of the tokens that were written, and entropy.

Bound to verl's engine, whose methods divide by the temperature and shift by one before they call its functions, and to
TRL twice: its fused head, which does the same, and its function for logits that the caller has moved already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from annotator.catalog._third_party import default_dtype, pinned
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


def _outputs(log_probs: Any, entropy: Any) -> Outputs:
    return {"log_probs": log_probs, "entropy": entropy}


def _verl(module: str) -> Any:
    return pinned(f"verl:verl.{module}")


@functools.cache
def _engine() -> Any:
    """verl's engine without a model: what its two methods read of it, as `FSDPEngine` sets it on one device."""
    engine = object.__new__(_verl("workers.engine.fsdp.transformer_impl").FSDPEngineWithLMHead)
    engine.engine_config = SimpleNamespace(entropy_checkpointing=False, entropy_from_logits_with_chunking=False)
    engine.compute_entropy_from_logits = _verl("utils.torch_functional").entropy_from_logits
    engine.use_ulysses_sp, engine.ulysses_sequence_parallel_size, engine.pad_to_length = False, 1, None
    return engine


def _packed(array: Any) -> Any:
    """Rows of equal length as the jagged tensor in which verl packs a batch, [B, T] -> [B, jagged]."""
    import torch

    rows, width = array.shape
    offsets = torch.arange(0, rows * width + 1, width, device=array.device)
    return torch.nested.nested_tensor_from_jagged(array.reshape(-1), offsets)


def _verl_engine(logits: Any, token_ids: Any, *, temperature: float, shift: str) -> Outputs:
    """The engine scores every position of the packed batch; the worker then keeps those of the response.

    With a prompt of one token the response is all that anything can be said of.
    """
    import torch

    rows, width = token_ids.shape
    positions = torch.arange(width, device=token_ids.device).expand(rows, width)
    tokens = {"input_ids": _packed(token_ids), "position_ids": _packed(positions)}
    settings = {"temperature": temperature, "use_remove_padding": True, "calculate_entropy": True}
    batch = _verl("utils.tensordict_utils").get_tensordict(tokens, non_tensor_dict=settings)
    _, arguments = _engine().prepare_model_inputs(batch)
    output = SimpleNamespace(logits=logits.reshape(1, rows * width, -1))
    scored = _engine().prepare_model_outputs(output, arguments, batch, None)
    everything = torch.ones_like(token_ids)
    sides = {"prompts": token_ids[:, :1], "responses": token_ids[:, 1:], "attention_mask": everything}
    unpack = _verl("workers.utils.padding").no_padding_2_padding
    return _outputs(unpack(scored["log_probs"], sides), unpack(scored["entropy"], sides))


def _trl_utils() -> Any:
    return pinned("trl:trl.trainer.utils")


def _trl(logits: Any, token_ids: Any, *, temperature: float, shift: str) -> Outputs:
    return _outputs(*_trl_utils().selective_log_softmax_and_entropy(logits, token_ids, temperature=temperature))


class _Headed:
    """Stands where the causal model does that TRL gives its head: its last hidden states are the logits themselves."""

    def __init__(self, logits: Any) -> None:
        import torch

        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(model_type="llama"))
        self.base_model = lambda **_: SimpleNamespace(last_hidden_state=logits)
        identity = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
        self.get_output_embeddings = lambda: SimpleNamespace(weight=identity, bias=None)

    def forward(self, **_: Any) -> Any:
        raise AssertionError("the fused head answers")


def _trl_fused(logits: Any, token_ids: Any, *, temperature: float, shift: str) -> Outputs:
    model = _Headed(logits)
    _trl_utils().add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    with default_dtype(logits):
        found = model.forward(labels=token_ids, fused_lm_head=True)
    return _outputs(found.log_probs, found.entropy)


def _minimal_torch(logits: Any, token_ids: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import logprobs_torch

    return _outputs(*logprobs_torch.token_log_probs(logits, token_ids, **knobs))


def _minimal_jax(logits: Any, token_ids: Any, **knobs: Any) -> Outputs:
    from minimal.post_training import logprobs_jax

    return _outputs(*logprobs_jax.token_log_probs(logits, token_ids, **knobs))


IMPLEMENTATIONS = (
    Implementation(
        name="verl",
        role="reference",
        backend="torch",
        call=_verl_engine,
        symbols=(
            "verl:verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead.prepare_model_inputs",
            "verl:verl.workers.engine.fsdp.transformer_impl.FSDPEngineWithLMHead.prepare_model_outputs",
            "verl:verl.utils.torch_functional.logprobs_from_logits_v2",
            "verl:verl.utils.torch_functional.entropy_from_logits",
            "verl:verl.workers.utils.padding.no_padding_2_padding",
        ),
        dialect={"shift": "next"},
        requires=("verl",),
        breaks=("poison",),  # it scores the last logits too and drops the result, so that 0 times NaN flows back
    ),
    Implementation(
        name="trl",
        role="reference",
        backend="torch",
        call=_trl,
        symbols=(
            "trl:trl.trainer.utils.selective_log_softmax_and_entropy",
            "trl:trl.trainer.utils.selective_log_softmax",
            "trl:trl.trainer.utils.entropy_from_logits",
        ),
        dialect={"shift": "aligned"},
        requires=("trl",),
    ),
    Implementation(
        name="trl-fused-head",
        role="reference",
        backend="torch",
        call=_trl_fused,
        symbols=(
            "trl:trl.trainer.utils.add_fused_lm_head",
            "trl:trl.kernels.chunked_logprob.ChunkedLogProbFunction",
        ),
        dialect={"shift": "next"},
        requires=("trl",),
        dtypes=("float32",),  # its running maximum and sums are float32, whatever it is given
    ),
    Implementation(
        name="minimal-torch",
        role="minimal",
        backend="torch",
        call=_minimal_torch,
        symbols=("minimal/post_training/logprobs_torch.py",),
    ),
    Implementation(
        name="minimal-jax",
        role="minimal",
        backend="jax",
        call=_minimal_jax,
        symbols=("minimal/post_training/logprobs_jax.py",),
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def _case(label: str, logits: Any, token_ids: Any, **knobs: Any) -> Case:
    import numpy as np

    inputs = {"logits": np.array(logits, dtype=np.float64), "token_ids": np.array(token_ids, dtype=np.int64)}
    return Case(inputs=inputs, knobs={**{k.name: k.default for k in KNOBS}, **knobs}, label=label)


def _random(seed: int, shape: tuple[int, int, int], scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and tokens; logits are multiples of 1/1024, exact in float32.

    Within 2, since of a token that is all but certain the log-probability is what rounding left of the logits.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    logits = np.clip(random.normal(0, scale, shape), -2, 2)
    return np.round(logits * 1024) / 1024, random.integers(0, shape[-1], shape[:2])


def _edges() -> tuple[Case, ...]:
    logits, tokens = _random(0, (2, 3, 4))
    far = logits.copy()
    far[0, 0, :2], far[1, 1, 3] = (900.0, -900.0), -1024.0  # exp overflows, and underflows for what is written
    unlikely = tokens.copy()
    unlikely[0, :2], unlikely[1, 1:] = 1, 3
    ways = tuple((t, s) for t in TEMPERATURES for s in SHIFTS)
    return (
        *(_case(f"temperature {t:g}, {s}", logits, tokens, temperature=t, shift=s) for t, s in ways),
        *(_case(f"logits of hundreds, {s}", far, unlikely, shift=s) for s in SHIFTS),
        _case("a token that is next to impossible, heated", far, unlikely, temperature=2.0),
        _case("all logits equal", logits * 0 + 3, tokens),
        _case("a shared offset", logits + 1024, tokens, temperature=2.0),
        _case("one row of two tokens", logits[:1, :2], tokens[:1, :2]),
        _case("a vocabulary of one", logits[:, :, :1], tokens * 0),
        _case("the same token throughout", logits, tokens * 0 + 2, temperature=0.5),
    )


def _drawn_case(draw: DrawFn) -> Case:
    from hypothesis import strategies as st

    logits, tokens = _random(
        draw(st.integers(0, 2**20)), draw(st.sampled_from(SHAPES)), draw(st.sampled_from((0.25, 1.0, 4.0)))
    )
    knobs = {"temperature": draw(st.sampled_from(TEMPERATURES)), "shift": draw(st.sampled_from(SHIFTS))}
    return _case("", logits, tokens, **knobs)


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    return st.composite(_drawn_case)()


# Probes ---------------------------------------------------------------------------------------------------------------


def _changed(case: Case, **inputs: Any) -> Case:
    return Case({**case.inputs, **inputs}, case.knobs)


def _enumeration(run: Runner, case: Case) -> float | None:
    """Each token of the vocabulary in turn: the probabilities sum to 1, and -sum p log p is the entropy."""
    import numpy as np

    tokens = case.inputs["token_ids"]
    vocabulary = range(np.shape(case.inputs["logits"])[-1])
    results = [run(_changed(case, token_ids=np.full_like(tokens, token))) for token in vocabulary]
    log_p = np.stack([result.outputs["log_probs"] for result in results])  # [V, B, N]
    p = np.exp(log_p)
    mean = -(p * np.where(p > 0, log_p, 0)).sum(axis=0)
    whole = error(p.sum(axis=0), np.ones_like(mean))
    return max(whole, float(np.abs(mean - results[0].outputs["entropy"]).max(initial=0.0)))


def _offset(run: Runner, case: Case) -> float | None:
    """A constant added to all logits of a position says nothing."""
    import numpy as np

    if case.label and np.abs(case.inputs["logits"]).max() > 100:
        return None  # what is lost there is lost in the addition
    tokens = case.inputs["token_ids"]
    moved = case.inputs["logits"] + np.arange(1.0, 1.0 + tokens.size).reshape(*tokens.shape, 1)
    return probes.apart(run(_changed(case, logits=moved)), run(case), case)


def _unread(last: float) -> Callable[[Runner, Case], float | None]:
    """With the shift, the last logits are about a token that was not written, and nothing predicts the first one.

    ``last`` is put in place of the last logits; neither may it be seen, nor may a gradient flow there.
    """

    def relation(run: Runner, case: Case) -> float | None:
        import numpy as np

        if case.knobs["shift"] != "next":
            return None
        logits, tokens = case.inputs["logits"].copy(), case.inputs["token_ids"].copy()
        logits[:, -1, ::2] = last
        tokens[:, 0] = (tokens[:, 0] + 1) % logits.shape[-1]
        before, after = run(case), run(_changed(case, logits=logits, token_ids=tokens))
        leaks = np.abs(after.gradients["logits"][:, -1]) if after.gradients else np.zeros(1)
        leak = float(np.nan_to_num(leaks, nan=np.inf).max())
        return max(probes.apart(after, before, case), float("inf") if leak > 0 else 0.0)

    return relation


def _prefix(run: Runner, case: Case) -> float | None:
    """More tokens at the end change no score before them."""
    import numpy as np

    logits, tokens = case.inputs["logits"], case.inputs["token_ids"]
    longer = _changed(
        case,
        logits=np.concatenate([logits, np.flip(logits, axis=-1)], axis=1),
        token_ids=np.concatenate([tokens, tokens], axis=1),
    )
    before, after = run(case), run(longer)
    return max(error(after.outputs[name][:, : array.shape[1]], array) for name, array in before.outputs.items())


# Deviations -----------------------------------------------------------------------------------------------------------


def _scaled(logits: Any, temperature: float) -> Any:
    return logits / temperature


def _variant(
    logits: Any,
    token_ids: Any,
    *,
    temperature: float,
    shift: str,
    align: Any = None,
    heat: Any = None,
    uncertain_heat: Any = None,
    token: Any = None,
    score: Any = None,
    cool: Any = None,
    uncertain: Any = None,
) -> Outputs:
    """Scores with one part replaced. A part left out is the right one, from the minimal version."""
    from minimal.post_training import logprobs_torch as right

    shifted, tokens = logits, token_ids
    if shift == "next":
        shifted, tokens = (align or (lambda z, y: (z[:, :-1], y[:, 1:])))(logits, token_ids)
    scaled = (heat or _scaled)(shifted, temperature)
    tokens = token(scaled, tokens) if token else tokens
    log_probs = (score or right.selected_log_probs)(scaled, tokens)
    log_probs = cool(log_probs, temperature) if cool else log_probs
    spread = uncertain_heat(shifted, temperature) if uncertain_heat else scaled
    entropy = uncertain(spread, tokens) if uncertain else right.token_entropies(spread)
    return _outputs(log_probs, entropy)


def _unheated(logits: Any, temperature: float) -> Any:
    return logits


def _probability(scaled: Any, tokens: Any, dim: int = -1) -> Any:
    return scaled.softmax(dim=dim).gather(-1, tokens[..., None]).squeeze(-1)


def _logit(scaled: Any, tokens: Any) -> Any:
    return scaled.gather(-1, tokens[..., None]).squeeze(-1)


def _plain_log_sum(scaled: Any, tokens: Any) -> Any:
    """exp without the maximum taken off: infinite from 710 on, in float32 from 89 on."""
    return _logit(scaled, tokens) - scaled.exp().sum(dim=-1).log()


def _entropy(scaled: Any, tokens: Any) -> Any:
    from minimal.post_training import logprobs_torch as right

    return right.token_entropies(scaled)


def _surprisal(scaled: Any, tokens: Any) -> Any:
    from minimal.post_training import logprobs_torch as right

    return -right.selected_log_probs(scaled, tokens)


def _bits(scaled: Any, tokens: Any) -> Any:
    import math

    return _entropy(scaled, tokens) / math.log(2)


DEVIATIONS = (
    Deviation(
        name="temperature-forgotten",
        wrong="log-probabilities at temperature 1",
        right="logits divided by the sampling temperature",
        call=functools.partial(_variant, heat=_unheated),
        seen_in="TRL #3029",
        zoo=8,
        stage="scaled_logits",
    ),
    Deviation(
        name="temperature-multiplied",
        wrong="logits times the temperature",
        right="divided by it",
        call=functools.partial(_variant, heat=lambda z, t: z * t),
        stage="scaled_logits",
    ),
    Deviation(
        name="temperature-after-softmax",
        wrong="log-softmax first, then divided by the temperature: no distribution any more",
        right="logits divided, then log-softmax",
        call=functools.partial(
            _variant, heat=_unheated, cool=lambda log_probs, t: log_probs / t, uncertain_heat=_scaled
        ),
        stage="log_probs",
    ),
    Deviation(
        name="entropy-untempered",
        wrong="the entropy at temperature 1",
        right="of the distribution that was sampled",
        call=functools.partial(_variant, uncertain_heat=_unheated),
        stage="entropy",
    ),
    Deviation(
        name="shift-forgotten",
        wrong="the logits at t taken for those of token t",
        right="for those of token t + 1",
        call=functools.partial(_variant, align=lambda z, y: (z[:, :-1], y[:, :-1])),
        stage="log_probs",
    ),
    Deviation(
        name="shift-twice",
        wrong="labels moved by one that had been moved already",
        right="moved once",
        call=functools.partial(_variant, align=lambda z, y: (z[:, :-1], y.roll(-2, dims=1)[:, :-1])),
        stage="log_probs",
    ),
    Deviation(
        name="shift-backwards",
        wrong="the logits at t taken for those of token t - 1",
        right="for those of token t + 1",
        call=functools.partial(_variant, align=lambda z, y: (z[:, 1:], y[:, :-1])),
        stage="log_probs",
    ),
    Deviation(
        name="log-of-softmax",
        wrong="log(softmax): minus infinity where exp underflows",
        right="log-softmax",
        call=functools.partial(_variant, score=lambda z, y: _probability(z, y).log()),
        stage="log_probs",
    ),
    Deviation(
        name="log-of-softmax-eps",
        wrong="log(softmax + 1e-8): no log-probability below -18",
        right="log-softmax",
        call=functools.partial(_variant, score=lambda z, y: (_probability(z, y) + 1e-8).log()),
        stage="log_probs",
    ),
    Deviation(
        name="maximum-kept",
        wrong="log(sum(exp)) without taking the maximum off",
        right="logsumexp",
        call=functools.partial(_variant, score=_plain_log_sum),
        stage="log_probs",
    ),
    Deviation(
        name="bfloat16-logits",
        wrong="logits rounded to bfloat16",
        right="kept in the dtype of the run",
        call=functools.partial(_variant, heat=lambda z, t: (z / t).bfloat16().to(z.dtype)),
        stage="scaled_logits",
    ),
    Deviation(
        name="softmax-over-positions",
        wrong="normalised along the sequence",
        right="along the vocabulary",
        call=functools.partial(_variant, score=lambda z, y: _logit(z.log_softmax(dim=1), y)),
        stage="log_probs",
    ),
    Deviation(
        name="unnormalised",
        wrong="the token's logit",
        right="its log-probability",
        call=functools.partial(_variant, score=_logit),
        stage="log_probs",
    ),
    Deviation(
        name="greedy-token",
        wrong="the log-probability of the likeliest token",
        right="of the token that was written",
        call=functools.partial(_variant, token=lambda z, y: z.argmax(dim=-1)),
        stage="log_probs",
    ),
    Deviation(
        name="normaliser-detached",
        wrong="no gradient through the normaliser",
        right="through it too",
        call=functools.partial(_variant, score=lambda z, y: _logit(z, y) - z.logsumexp(dim=-1).detach()),
        stage="log_probs",
    ),
    Deviation(
        name="entropy-sign",
        wrong="sum p log p",
        right="its negative",
        call=functools.partial(_variant, uncertain=lambda z, y: -_entropy(z, y)),
        stage="entropy",
    ),
    Deviation(
        name="entropy-in-bits",
        wrong="logarithms to base 2",
        right="natural ones",
        call=functools.partial(_variant, uncertain=_bits),
        stage="entropy",
    ),
    Deviation(
        name="surprisal-for-entropy",
        wrong="minus the log-probability of the token, one draw of the entropy",
        right="the mean over the vocabulary",
        call=functools.partial(_variant, uncertain=_surprisal),
        stage="entropy",
    ),
    Deviation(
        name="entropy-detached",
        wrong="the entropy computed without a graph, so that a bonus on it does nothing",
        right="with its gradient",
        call=functools.partial(_variant, uncertain=lambda z, y: _entropy(z.detach(), y)),
        stage="entropy",
    ),
)


# Rewritings -----------------------------------------------------------------------------------------------------------


def _by_cross_entropy(logits: Any, token_ids: Any, *, temperature: float, shift: str) -> Outputs:
    import torch

    rows, width, size = logits.shape
    cut = 1 if shift == "next" else 0
    z = logits[:, : width - cut].reshape(-1, size) / temperature
    losses = torch.nn.functional.cross_entropy(z, token_ids[:, cut:].reshape(-1), reduction="none")
    entropy = -(z.softmax(dim=-1) * z.log_softmax(dim=-1)).sum(dim=-1)
    return _outputs(-losses.reshape(rows, -1), entropy.reshape(rows, -1))


REWRITINGS = (Rewriting("cross-entropy", "minus the cross-entropy of flattened rows", _by_cross_entropy),)


# Contract -------------------------------------------------------------------------------------------------------------

TEMPERATURES = (1.0, 0.5, 2.0)
"""Exact in float32, in which verl's engine holds the temperature."""

SHIFTS = ("next", "aligned")

SHAPES = ((2, 3, 4), (3, 2, 3))
"""Few, since JAX compiles once a shape."""

KNOBS = (
    Knob("temperature", 1.0, TEMPERATURES, "What logits are divided by: the temperature that tokens were drawn at."),
    Knob(
        "shift",
        "next",
        SHIFTS,
        "Whose score the logits at t are: of token t + 1, so that N = T - 1 (a model's own output: verl's engine, TRL's"
        " fused head), or of token t, N = T (logits that the caller has moved: the functions of both libraries).",
    ),
)

INPUTS = (
    Input("logits", ("B", "T", "V"), "float", "What the model put out at each position; finite.", "nat", True),
    Input("token_ids", ("B", "T"), "int", "The tokens at each position, below V."),
)

OUTPUTS = (
    Output("log_probs", ("B", "N"), "Log-probability of each scored token.", "nat"),
    Output("entropy", ("B", "N"), "Entropy of the distribution that it was drawn from.", "nat"),
)

AXES = probes.axes_of(INPUTS, OUTPUTS)


def _scaled_logits(logits: Any, *, temperature: float, shift: str) -> Any:
    from minimal.post_training import logprobs_torch

    return logprobs_torch.scaled_logits(logits, temperature=temperature, shift=shift)


def _token_entropies(scaled_logits: Any) -> Any:
    from minimal.post_training import logprobs_torch

    return logprobs_torch.token_entropies(scaled_logits)


def _selected_log_probs(scaled_logits: Any, token_ids: Any, *, shift: str) -> Any:
    from minimal.post_training import logprobs_torch

    return logprobs_torch.selected_log_probs(scaled_logits, logprobs_torch.predicted_tokens(token_ids, shift=shift))


STAGES = (
    Stage("scaled_logits", ("B", "N", "V"), "logits / T at the positions that predict", _scaled_logits, "nat"),
    Stage("entropy", ("B", "N"), "entropy of the softmax of those", _token_entropies, "nat"),
    Stage("log_probs", ("B", "N"), "log-softmax of those at the tokens that follow", _selected_log_probs, "nat"),
)

CONTRACT = Contract(
    name="token-log-probs",
    kind="value",
    title="Token log-probabilities and entropy",
    doc=(
        "log pi(y) = z_y / T - log sum_v exp(z_v / T) and H = -sum_v pi(v) log pi(v), with z the logits and T the"
        " sampling temperature, of each token y that some position predicts. The temperature lies inside of the softmax"
        " and both outputs are of the tempered distribution; gradients pass through both."
    ),
    inputs=INPUTS,
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=_cases,
    edges=_edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=(
        probes.permutation(AXES, "B"),
        Probe("enumeration", "probabilities over the vocabulary sum to 1, -sum p log p is the entropy", _enumeration),
        Probe("offset", "a constant added to all logits of a position changes nothing", _offset),
        Probe("causality", "with the shift, last logits and first token do not matter", _unread(7.0)),
        Probe("poison", "with the shift, last logits may be anything, NaN too", _unread(float("nan"))),
        Probe("prefix", "tokens that follow change no score", _prefix),
    ),
    stages=STAGES,
    rewritings=REWRITINGS,
)
