"""The contract ``prefix-cache``: who owns the blocks of the KV cache, and what is remembered of them, as vLLM does it.

A trace: the same operations drive vLLM's `KVCacheManager` and the minimal version, and what both show is compared after
each. No model runs; the blocks hold nothing here. Out of scope: several KV cache groups, sliding windows, speculative
look-ahead, connectors, adapters and images in the hash.

A request's whole prompt is computed in one step, so that its full blocks are remembered as soon as they are allocated.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from annotator.catalog.token_sampling import _environment
from annotator.contracts.comparison import error
from annotator.contracts.model import (
    Case,
    Contract,
    Deviation,
    Implementation,
    Input,
    Knob,
    Operation,
    Output,
    Probe,
    Rewriting,
    Runner,
)
from annotator.contracts.tracing import PAD, driven, rows, sequences, steps

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

REQUESTS = 4
"""Requests are called 0, 1, 2 and 3."""

LONGEST = 6
"""The most tokens of a prompt, or of one append."""

DOC = """
Tokens lie in blocks of block_size. The hash of a full block is h_i = H(h_{i-1}, tokens of block i), so that it names
the whole prefix; a partial block has none. A prompt of n tokens hits the longest run of remembered blocks within its
first n - 1 tokens: the last one is always computed, for without a query there is no logit.

Free blocks wait in a queue, and the first is given out next, losing its hash. A request that ends frees its blocks from
the last to the first: those with a hash go to the end of the queue, those without to its front. A block that is hit
leaves the queue. Where the same content was computed twice, the block remembered first is hit.

An operation that cannot be done changes nothing: an allocation or an append for which there are too few blocks, an
allocation for a request that runs, an append to one or the end of one that does not, a reset while any runs.

Sources: PagedAttention, arXiv 2309.06180; vLLM's `KVCacheManager`.
"""

OPERATIONS = (
    Operation("allocate", ("request", "*tokens"), "a new request: blocks for its prompt, remembered ones first"),
    Operation("append", ("request", "*tokens"), "more tokens of a running request, and blocks for them"),
    Operation("free", ("request",), "the request has ended"),
    Operation("lookup", ("*tokens",), "how much of a prompt is remembered; changes nothing"),
    Operation("reset", (), "the weights have changed: all is forgotten"),
)

OUTPUTS = (
    Output("cached_tokens", ("N",), "tokens found by an allocate or a lookup, else 0", "tokens", exact=True),
    Output("query_tokens", ("N",), "tokens left to compute by an operation, else 0", "tokens", exact=True),
    Output("free_blocks", ("N",), "blocks that can be given out", "blocks", exact=True),
    Output("block_table", ("N", "8"), "blocks of the allocated or appended request; then -1", "block id", exact=True),
    Output(
        "eviction_order", ("N", "8"), "free blocks, the next to be given out first; then -1", "block id", exact=True
    ),
)


# Reference ------------------------------------------------------------------------------------------------------------


@functools.cache
def _vllm() -> SimpleNamespace:
    """The parts of vLLM that are called, from the pin. Imported once, quietly."""
    from annotator import pins

    with _environment(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR"):
        manager = pins.load("vllm:vllm.v1.core.kv_cache_manager")
        utils = pins.load("vllm:vllm.v1.core.kv_cache_utils")
        interface = pins.load("vllm:vllm.v1.kv_cache_interface")
        request = pins.load("vllm:vllm.v1.request")
        params = pins.load("vllm:vllm.sampling_params")
        hashing = pins.load("vllm:vllm.utils.hashing")
    utils.init_none_hash(hashing.sha256)
    return SimpleNamespace(
        KVCacheManager=manager.KVCacheManager,
        KVCacheConfig=interface.KVCacheConfig,
        KVCacheGroupSpec=interface.KVCacheGroupSpec,
        FullAttentionSpec=interface.FullAttentionSpec,
        Request=request.Request,
        params=params.SamplingParams(max_tokens=64),
        hasher=lambda size: utils.get_request_block_hasher(size, hashing.sha256),
    )


class _Managed:
    """vLLM's manager of one full-attention group, called as its scheduler calls it."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        import torch

        v = _vllm()
        spec = v.FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        config = v.KVCacheConfig(
            num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[v.KVCacheGroupSpec(["layer"], spec)]
        )
        self.manager = v.KVCacheManager(
            config, max_model_len=1024, scheduler_block_size=block_size, hash_block_size=block_size
        )
        self.hasher = v.hasher(block_size)
        self.running: dict[int, Any] = {}
        self._show("", 0, 0)

    def _show(self, request_id: str, cached: int, query: int) -> None:
        self.block_table = list(self.manager.get_block_ids(request_id)[0]) if request_id else []
        self.cached_tokens, self.query_tokens = cached, query

    def _request(self, name: str, tokens: list[int]) -> Any:
        v = _vllm()
        return v.Request(name, tokens, v.params, None, block_hasher=self.hasher)

    @property
    def free_blocks(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())

    @property
    def eviction_order(self) -> list[int]:
        return [block.block_id for block in self.manager.block_pool.free_block_queue.get_all_free_blocks()]

    def allocate(self, request: int, tokens: list[int]) -> None:
        self._show("", 0, 0)
        if request in self.running:
            return
        made = self._request(str(request), tokens)
        hit, cached, _ = self.manager.get_computed_blocks(made)
        if self.manager.allocate_slots(made, len(tokens) - cached, cached, hit) is None:
            return
        made.num_computed_tokens = len(tokens)
        self.running[request] = made
        self._show(made.request_id, cached, len(tokens) - cached)

    def append(self, request: int, tokens: list[int]) -> None:
        """Slots first, as for drafts: vLLM gives them, or says no and changes nothing; then the tokens are final."""
        self._show("", 0, 0)
        made = self.running.get(request)
        if made is None or self.manager.allocate_slots(made, len(tokens)) is None:
            return
        made.append_output_token_ids(list(tokens))
        made.num_computed_tokens += len(tokens)
        self.manager.cache_blocks(made, made.num_computed_tokens)
        self._show(made.request_id, 0, len(tokens))

    def free(self, request: int) -> None:
        self._show("", 0, 0)
        if request in self.running:
            self.manager.free(self.running.pop(request))

    def lookup(self, tokens: list[int]) -> None:
        _, cached, _ = self.manager.get_computed_blocks(self._request("asked", tokens))
        self._show("", cached, len(tokens) - cached)

    def reset(self) -> None:
        self._show("", 0, 0)
        logging.disable(logging.WARNING)  # vLLM warns where it refuses
        try:
            self.manager.reset_prefix_cache()
        finally:
            logging.disable(logging.NOTSET)


def _minimal(operations: Any, **knobs: Any) -> Mapping[str, Any]:
    from minimal.serving.prefix_cache import PrefixCache

    return driven(PrefixCache, OPERATIONS, OUTPUTS)(operations=operations, **knobs)


IMPLEMENTATIONS = (
    Implementation(
        name="vllm",
        role="reference",
        backend="numpy",
        call=driven(_Managed, OPERATIONS, OUTPUTS),
        symbols=(
            "vllm:vllm.v1.core.kv_cache_manager.KVCacheManager",
            "vllm:vllm.v1.core.kv_cache_coordinator.UnitaryKVCacheCoordinator",
            "vllm:vllm.v1.core.single_type_kv_cache_manager.FullAttentionManager",
            "vllm:vllm.v1.core.single_type_kv_cache_manager.SingleTypeKVCacheManager",
            "vllm:vllm.v1.core.block_pool.BlockPool",
            "vllm:vllm.v1.core.block_pool.BlockHashToBlockMap",
            "vllm:vllm.v1.core.kv_cache_utils.FreeKVCacheBlockQueue",
            "vllm:vllm.v1.core.kv_cache_utils.hash_block_tokens",
            "vllm:vllm.v1.core.kv_cache_utils.get_request_block_hasher",
            "vllm:vllm.v1.request.Request",
        ),
        requires=("torch", "vllm"),
        dtypes=("float64",),
        differentiable=False,
    ),
    Implementation(
        name="minimal",
        role="minimal",
        backend="numpy",
        call=_minimal,
        symbols=("minimal/serving/prefix_cache.py",),
        dtypes=("float64",),
        differentiable=False,
    ),
)


# Cases ----------------------------------------------------------------------------------------------------------------


def cases() -> SearchStrategy[Case]:
    """Few requests, two different tokens and few blocks: prefixes are shared, the pool runs dry, blocks are evicted."""
    from hypothesis import strategies as st

    token = st.integers(0, 1)
    whole = [0, 0, 0, 0, 0, 1]
    prompts = st.one_of(
        st.integers(1, LONGEST).map(lambda n: whole[:n]),
        st.integers(1, LONGEST).map(lambda n: whole[-n:]),
        st.lists(token, min_size=1, max_size=LONGEST),
    )
    drawn = sequences(
        OPERATIONS,
        {"request": st.integers(0, REQUESTS - 1), "tokens": prompts},
        longest=LONGEST,
        most=6,
        often=("allocate", "allocate", "allocate", "free", "free", "append"),
    )
    several = st.lists(drawn, min_size=1, max_size=6).map(np.concatenate)
    return st.builds(
        lambda n, blocks, size: Case({"operations": n}, {"num_blocks": blocks, "block_size": size}),
        several,
        st.sampled_from(KNOBS[0].choices),
        st.sampled_from(KNOBS[1].choices),
    )


def _edge(label: str, *words: tuple[Any, ...], num_blocks: int = 8, block_size: int = 2) -> Case:
    knobs = {"num_blocks": num_blocks, "block_size": block_size}
    return Case({"operations": rows(words, OPERATIONS, LONGEST)}, knobs, label)


def edges() -> tuple[Case, ...]:
    """States that are rare by chance."""
    a, b, ab = [0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1, 0, 0]
    alone = (("allocate", 0, ab), ("free", 0))
    both = (("allocate", 0, ab), ("allocate", 1, ab))
    return (
        _edge("a prompt remembered in full", ("allocate", 0, a), ("free", 0), ("allocate", 1, a), ("allocate", 2, ab)),
        _edge("a partial block is not remembered", ("allocate", 0, [0, 0, 1]), ("allocate", 1, a), ("lookup", ab)),
        _edge("a new weight", ("allocate", 0, ab), ("free", 0), ("reset",), ("lookup", ab), ("allocate", 1, ab)),
        _edge("a new weight while one runs", ("allocate", 0, ab), ("reset",), ("lookup", ab), ("free", 0)),
        _edge("the same block after another beginning", ("allocate", 0, a), ("lookup", [1, 1, 1, 1, 0])),
        _edge("the second block alone", ("allocate", 0, a), ("lookup", [1, 1, 0])),
        _edge("two that share, and one ends", *both, ("free", 0), ("allocate", 2, b)),
        _edge("two that share, and both end", *both, ("free", 1), ("free", 0)),
        _edge("the tail is evicted first", *alone, ("allocate", 1, [1] * 6), ("lookup", [*ab, 1]), num_blocks=6),
        _edge("what was evicted is not hit", *alone, ("allocate", 1, [1] * 6), ("lookup", a), num_blocks=5),
        _edge("a partial block is given out next", ("allocate", 0, [0, 0, 1]), ("free", 0)),
        _edge("least recently used", ("allocate", 0, a), ("allocate", 1, b), ("free", 1), ("free", 0)),
        _edge(
            "computed twice, the first one evicted",
            *(("allocate", 0, a), ("allocate", 1, a), ("free", 0), ("allocate", 2, [1] * 6), ("lookup", ab)),
            num_blocks=6,
        ),
        _edge(
            "computed twice, both remembered",
            *(("allocate", 0, a), ("allocate", 1, a), ("lookup", ab), ("free", 1), ("free", 0), ("allocate", 2, ab)),
        ),
        _edge("filled by what is appended", ("allocate", 0, [0, 0, 1]), ("append", 0, [1, 0, 0]), ("lookup", [*ab, 1])),
        _edge("no room", ("allocate", 0, ab), ("allocate", 1, b), ("append", 0, a), ("free", 0), num_blocks=5),
        _edge("no room but for what is hit", *alone, ("allocate", 1, [*a, 1, 1]), num_blocks=4),
        _edge(
            "what is hit was free",
            *(("allocate", 0, a), ("allocate", 2, [1]), ("free", 0), ("allocate", 1, ab), ("lookup", ab)),
            num_blocks=4,
        ),
        _edge("the end of one that does not run", ("free", 2), ("append", 1, a), ("reset",), ("allocate", 2, [1])),
        _edge("one that runs already", ("allocate", 0, a), ("allocate", 0, b), ("free", 0), ("lookup", ab)),
        _edge(
            "one after the other", ("allocate", 0, ab), ("allocate", 1, b), ("free", 0), ("free", 1), ("append", 0, b)
        ),
        _edge(
            "a question leaves no trace",
            *(("allocate", 0, ab), ("allocate", 1, b), ("free", 0), ("free", 1), ("lookup", ab), ("allocate", 2, b)),
        ),
    )


# Probes ---------------------------------------------------------------------------------------------------------------


def _injected(run: Runner, case: Case) -> float | None:
    """Half of the operations, then all requests end and the weights change: the rest is as if it came first.

    The state to start from is an empty cache whose queue has another order; blocks are renamed by that order.
    """
    operations = np.asarray(case.inputs["operations"])
    half = len(operations) // 2
    words: list[tuple[Any, ...]] = [*(("free", request) for request in range(REQUESTS)), ("reset",)]
    emptied = np.concatenate([operations[:half], rows(words, OPERATIONS, LONGEST), operations[half:]])
    whole, fresh = (run(_with(case, given)) for given in (emptied, operations[half:]))
    start = half + len(words)
    names = np.arange(-1, 8)
    if "eviction_order" in whole.outputs:
        order = [block for block in whole.outputs["eviction_order"][start - 1].tolist() if block != PAD]
        names[2 : 2 + len(order)] = order
    worst = 0.0
    for key, array in fresh.outputs.items():
        blocks = key in ("eviction_order", "block_table")
        if blocks and "eviction_order" not in whole.outputs:
            continue
        known = array.max(initial=0) < len(names) - 1 and array.min(initial=0) >= PAD
        expected = names[array + 1] if blocks and known else array
        worst = max(worst, error(whole.outputs[key][start:], expected, exact=True))
    return worst


def _unasked(run: Runner, case: Case) -> float | None:
    """A lookup after every operation changes none of the others."""
    operations = np.asarray(case.inputs["operations"])
    question = rows([("lookup", [0, 0, 1, 1, 0])], OPERATIONS, LONGEST)[0]
    asked = np.stack([operations, np.broadcast_to(question, operations.shape)], axis=1).reshape(-1, len(question))
    with_questions, plain = run(_with(case, asked)), run(case)
    return max(error(with_questions.outputs[k][::2], array, exact=True) for k, array in plain.outputs.items())


def _query_left(run: Runner, case: Case) -> float | None:
    """What is cached and what is left to compute are the prompt, and at least one token is left."""
    found = run(case).outputs
    if not {"cached_tokens", "query_tokens"} <= set(found):
        return None
    for number, step in enumerate(steps(case.inputs["operations"], OPERATIONS)):
        cached, query = int(found["cached_tokens"][number]), int(found["query_tokens"][number])
        done = step.operation.name in ("allocate", "lookup") and cached + query > 0
        if done and (cached + query != len(step.arguments[-1]) or query < 1):  # type: ignore[arg-type]
            return float("inf")
    return 0.0


def _with(case: Case, operations: np.ndarray) -> Case:
    return replace(case, inputs={**case.inputs, "operations": operations}, label="")


PROBES = (
    Probe(
        "injection", "from an empty cache with a queue in another order, the rest goes as if it came first", _injected
    ),
    Probe("questions", "a lookup after every operation changes none of the others", _unasked),
    Probe("query-left", "cached and query tokens are the prompt, and at least one query is left", _query_left),
)


# Deviations -----------------------------------------------------------------------------------------------------------


def _variant(operations: Any, *, num_blocks: int, block_size: int, **methods: Any) -> Mapping[str, Any]:
    """The minimal version with some methods replaced."""
    from minimal.serving.prefix_cache import PrefixCache

    kind = type("Variant", (PrefixCache,), methods)
    return driven(kind, OPERATIONS, OUTPUTS)(operations=operations, num_blocks=num_blocks, block_size=block_size)


def _hit_in_full(self: Any, tokens: list[int]) -> list[int]:
    hit = []
    for name in self.block_hashes(tokens):
        if name not in self.blocks_of:
            break
        hit.append(self.remembered_block(name))
    return hit


def _with_partial(self: Any, tokens: list[int]) -> list[bytes]:
    hashes = [b""]
    for start in range(0, len(tokens), self.block_size):
        hashes.append(self.block_hash(hashes[-1], tokens[start : start + self.block_size]))
    return hashes[1:]


def _kept_reset(self: Any) -> None:
    self.show([], 0, 0)


def _forced_reset(self: Any) -> None:
    self.show([], 0, 0)
    self.hash_of.clear()
    self.blocks_of.clear()


def _taken_from_behind(self: Any, count: int) -> list[int]:
    taken = self.eviction_order[::-1][:count]
    self.eviction_order = self.eviction_order[: len(self.eviction_order) - len(taken)]
    for block in taken:
        self.forget(block)
        self.references[block] = 1
    return list(taken)


def _taken_with_names(self: Any, count: int) -> list[int]:
    taken, self.eviction_order = self.eviction_order[:count], self.eviction_order[count:]
    for block in taken:
        self.references[block] = 1
    return list(taken)


def _released(self: Any, blocks: list[int], *, order: int = -1, nameless_first: bool = True) -> None:
    freed = [block for block in blocks[::order] if self.unreferenced(block)]
    front = [block for block in freed if nameless_first and block not in self.hash_of]
    self.eviction_order = front + self.eviction_order + [block for block in freed if block not in front]


def _released_in_order(self: Any, blocks: list[int]) -> None:
    _released(self, blocks, order=1)


def _released_behind(self: Any, blocks: list[int]) -> None:
    _released(self, blocks, nameless_first=False)


def _let_go(self: Any, block: int) -> bool:
    """As if each block had one owner: freed while another request reads it."""
    self.references[block] = 0
    return block not in self.eviction_order


def _touched_uncounted(self: Any, block: int) -> None:
    if self.references[block] == 0:
        self.eviction_order.remove(block)
        self.references[block] = 1


def _touched_in_queue(self: Any, block: int) -> None:
    self.references[block] += 1


def _prompt_only(self: Any, held: Any) -> None:
    held.blocks = held.blocks + self.take(self.blocks_for(len(held.tokens)) - len(held.blocks))
    if not held.remembered and len(held.blocks) == self.blocks_for(len(held.tokens)) and not hasattr(held, "seen"):
        self.remember(held)
    held.seen = True


def _asked_and_moved(self: Any, tokens: list[int]) -> None:
    hit = self.longest_hit(tokens)
    for block in reversed(hit):
        if self.references[block] == 0:
            self.eviction_order.remove(block)
            self.eviction_order.append(block)
    cached = self.hit_tokens(tokens, hit)
    self.show([], cached, len(tokens) - cached)


def _deviation(
    name: str, wrong: str, right: str, *, zoo: int | None = None, seen_in: str = "", **parts: Any
) -> Deviation:
    return Deviation(name, wrong, right, functools.partial(_variant, **parts), seen_in=seen_in, zoo=zoo)


DEVIATIONS = (
    _deviation(
        "no-query-left",
        "a prompt that is remembered in full is taken over in full",
        "its last token is computed again, to have a logit",
        longest_hit=_hit_in_full,
        zoo=25,
        seen_in="vLLM #3239, nano-vllm #144",
    ),
    _deviation(
        "partial-block-hashed",
        "the last, partial block gets a hash too",
        "only full blocks have one",
        block_hashes=_with_partial,
        hit_tokens=lambda self, tokens, hit: len(tokens[:-1][: len(hit) * self.block_size]),
        zoo=25,
        seen_in="nano-vllm #211",
    ),
    _deviation(
        "cache-survives-update",
        "what was computed with the old weights is hit after an update",
        "all hashes go with the weights",
        reset=_kept_reset,
        zoo=26,
        seen_in="NeMo-RL #4018, lmdeploy #4917",
    ),
    _deviation(
        "reset-while-running",
        "hashes are cleared although requests run",
        "a reset is refused until all have ended",
        reset=_forced_reset,
    ),
    _deviation(
        "hash-without-parent",
        "a block's hash is that of its own tokens",
        "it covers the parent's hash too",
        block_hash=lambda self, parent, tokens: repr(tokens).encode(),
    ),
    _deviation(
        "most-recent-evicted",
        "blocks are given out from the end of the queue",
        "from its front: least recently used first",
        take=_taken_from_behind,
    ),
    _deviation(
        "evicted-block-hit",
        "a block keeps its hash when it is given out anew",
        "it loses the hash with its content",
        take=_taken_with_names,
    ),
    _deviation(
        "head-freed-first",
        "blocks are freed from the first to the last",
        "from the last to the first, so that the tail is evicted first",
        release=_released_in_order,
    ),
    _deviation(
        "nameless-freed-last",
        "a block without a hash goes to the end of the queue",
        "to its front: it cannot be hit",
        release=_released_behind,
    ),
    _deviation(
        "freed-while-shared",
        "a block is free once one of its requests ends",
        "once the last of them ends",
        unreferenced=_let_go,
    ),
    _deviation(
        "hit-not-counted",
        "a hit on a block in use adds no reference",
        "each request that refers to it counts",
        touch=_touched_uncounted,
    ),
    _deviation(
        "hit-stays-in-queue",
        "a free block that is hit stays in the queue, and is given out again",
        "it leaves the queue",
        touch=_touched_in_queue,
    ),
    _deviation(
        "free-hits-counted-twice",
        "whether it fits is told without the free blocks that are hit themselves",
        "those are no longer free for others",
        fits=lambda self, new, hit: new <= self.free_blocks,
    ),
    _deviation(
        "appended-not-remembered",
        "only the prompt's blocks are remembered",
        "those that generated tokens fill as well",
        grow=_prompt_only,
    ),
    _deviation(
        "latest-duplicate-hit",
        "of blocks with one content the latest is hit",
        "the one remembered first",
        remembered_block=lambda self, name: self.blocks_of[name][-1],
    ),
    _deviation(
        "lookup-touches",
        "a lookup moves what it finds to the end of the queue",
        "it changes nothing",
        lookup=_asked_and_moved,
    ),
)


def _whole_prefixes(self: Any, tokens: list[int]) -> list[bytes]:
    ends = range(self.block_size, len(tokens) + 1, self.block_size)
    return [repr(tokens[:end]).encode() for end in ends]


REWRITINGS = (
    Rewriting(
        "whole-prefix-as-name",
        "a block is named by all tokens up to its end, without hashing",
        functools.partial(_variant, block_hashes=_whole_prefixes),
        backend="numpy",
    ),
)


# Contract -------------------------------------------------------------------------------------------------------------

KNOBS = (
    Knob("num_blocks", 8, (4, 5, 6, 8), "Blocks of the pool, with block 0, which is never given out."),
    Knob("block_size", 2, (2, 3), "Tokens of a block."),
)

CONTRACT = Contract(
    name="prefix-cache",
    kind="trace",
    title="Blocks of the KV cache, and the prefixes remembered in them",
    doc=DOC,
    inputs=(
        Input(
            "operations",
            ("N", str(3 + LONGEST)),
            "int",
            "a row an operation: its number (allocate, append, free, lookup, reset), its arguments; padded with 0",
        ),
    ),
    outputs=OUTPUTS,
    knobs=KNOBS,
    cases=cases,
    edges=edges,
    implementations=IMPLEMENTATIONS,
    deviations=DEVIATIONS,
    probes=PROBES,
    operations=OPERATIONS,
    rewritings=REWRITINGS,
)
