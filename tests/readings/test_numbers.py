"""The numbers that the readings state, computed again with the pinned code.

A row: the reading, words of its page, and what must come out. So a number in the prose cannot outlive the code, nor a
row here the prose.
"""
# ruff: noqa: E501 (rows of a table)

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from annotator.errors import PinError
from annotator.pins import load
from annotator.workspace import Workspace

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

ROOT = Path(__file__).parents[2]
GRPO, DPO, SAMPLING, ADAMW = (
    "verl/grpo-advantage",
    "trl/dpo-loss",
    "vllm/token-sampling",
    "pytorch/adamw-step",
)


def pinned(symbol: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load(symbol, Workspace.find(ROOT))
        except PinError as error:
            pytest.skip(str(error))


# verl


def algos() -> ModuleType:
    return pinned("verl:verl.trainer.ppo.core_algos")


def advantages(rewards: list[float], rejected: tuple[int, ...] = ()) -> list[float]:
    slots, mask = torch.zeros(len(rewards), 2), torch.ones(len(rewards), 2)
    slots[:, -1] = torch.tensor(rewards)
    for row in rejected:
        mask[row] = 0
    group = np.zeros(len(rewards), dtype=int)
    found: list[float] = algos().compute_grpo_outcome_advantage(slots, mask, group)[0][:, 0].tolist()
    return found


def aggregated(mode: str, **kwargs: Any) -> float:
    """Responses of ten tokens and of one, losses 1 and -1."""
    mask = torch.zeros(2, 10)
    mask[0], mask[1, 0] = 1, 1
    loss = torch.tensor([[1.0], [-1.0]]).expand(2, 10)
    return float(algos().agg_loss(loss, mask, mode, **kwargs))


def split_in_two() -> float:
    losses = [
        algos().agg_loss(torch.full((1, n), v), torch.ones(1, n), "token-mean") for n, v in ((10, 1.0), (1, -1.0))
    ]
    return float(sum(losses) / 2)


class Actor(dict[str, Any]):
    clip_ratio, clip_ratio_low, clip_ratio_high = 0.2, None, None
    global_batch_info: dict[str, Any] = {}  # noqa: RUF012


def policy_gradient(ratios: Any, weights: Any) -> tuple[float, Any]:
    leaf = torch.as_tensor(ratios).log().requires_grad_()
    ones = torch.ones_like(leaf)
    loss, _ = algos().compute_policy_loss_vanilla(torch.zeros_like(leaf), leaf, weights, ones, config=Actor())
    loss.backward()
    return float(loss.detach()), leaf.grad


def one_gradient(advantage: float, ratio: float) -> float:
    return float(policy_gradient([[ratio]], torch.tensor([[advantage]]))[1])


def first_update() -> list[float]:
    weights = torch.tensor(advantages([1, 0, 0, 0]))[:, None].expand(4, 2)
    loss, gradient = policy_gradient(torch.ones(4, 2), weights)
    return [loss, *gradient[:2, 0].tolist()]


# DPO: arithmetic of the page


def logistic_weight(margin: float) -> float:
    return 0.1 / (1 + math.exp(0.1 * margin))


# vLLM


def survivors(probabilities: list[float], k: int | None = None, p: float | None = None) -> int:
    sampler = pinned("vllm:vllm.v1.sample.ops.topk_topp_sampler")
    logits = torch.tensor([probabilities]).log()
    options = [None if value is None else torch.tensor([value]) for value in (k, p)]
    masked = sampler.apply_top_k_top_p_pytorch(logits, *options, allow_cpu_sync=True)
    return int(masked.isfinite().sum())


def underflow() -> list[int]:
    """Tokens kept of logits 0 and -200: at p = 1 beside a row with p below 1, and alone."""
    sampler = pinned("vllm:vllm.v1.sample.ops.topk_topp_sampler")
    logits = torch.tensor([[0.0, -200.0], [0.0, -1.0]])
    beside = sampler.apply_top_k_top_p_pytorch(logits.clone(), None, torch.tensor([1.0, 0.9]))[:1]
    alone = sampler.apply_top_k_top_p_pytorch(logits[:1].clone(), None, None)
    return [int(kept.isfinite().sum()) for kept in (beside, alone)]


def repetition(shift: float, penalty: float) -> float:
    ops = pinned("vllm:vllm._custom_ops")
    logits = torch.tensor([[2.0, 1.0, 0.0]]) + shift
    first = torch.tensor([[True, False, False]])
    ops.apply_repetition_penalties_torch(logits, first, torch.zeros_like(first), torch.tensor([penalty]))
    return float(logits.softmax(-1)[0, 0])


def kept_by_min_p(temperature: float) -> int:
    builtin = pinned("vllm:vllm.v1.sample.logits_processor.builtin")
    processor = builtin.MinPLogitsProcessor.__new__(builtin.MinPLogitsProcessor)
    processor.min_p_count, processor.min_p = 1, torch.tensor([[0.3]])
    return int(processor.apply(torch.tensor([[2.0, 1.0, 0.0]]) / temperature).isfinite().sum())


def reported(temperature: float) -> float:
    return float((torch.tensor([2.0, 1.0, 0.0]) / temperature).softmax(-1)[0])


# PyTorch


def moved(
    start: float, gradient: float, steps: int = 1, dtype: str = "float64", cls: str = "AdamW", **options: Any
) -> float:
    weight = torch.tensor([start], dtype=getattr(torch, dtype), requires_grad=True)
    optimizer = getattr(torch.optim, cls)([weight], **options)
    for _ in range(steps):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    return weight.item()


def after_spike(steps: int) -> float:
    """How far the weight moves, in learning rates, ``steps`` after a gradient of 1,000 among gradients of 1."""
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=1.0, weight_decay=0)
    before = 0.0
    for step in range(1001 + steps):
        before = weight.item()
        weight.grad = torch.tensor([1000.0 if step == 1000 else 1.0], dtype=torch.float64)
        optimizer.step()
    return before - weight.item()


def second_moment_kept() -> bool:
    """Whether v of a bfloat16 weight is the same after a gradient of 1 as after 5,000 further ones of 0."""
    weight = torch.ones(1, dtype=torch.bfloat16, requires_grad=True)
    optimizer = torch.optim.AdamW([weight])
    seen = []
    for step in range(5001):
        weight.grad = torch.full_like(weight, float(step == 0))
        optimizer.step()
        seen.append(optimizer.state[weight]["exp_avg_sq"].item())
    return bool(seen[0] == seen[-1] > 0)


def uncorrected(step: int) -> float:
    return float((1 - 0.9**step) / math.sqrt(1 - 0.999**step))


def foreach_differs() -> float:
    def run(foreach: bool) -> Any:
        draw = torch.Generator().manual_seed(0)
        weight = torch.randn(7, 5, generator=draw).requires_grad_()
        optimizer = torch.optim.AdamW([weight], lr=1e-2, foreach=foreach)
        for _ in range(20):
            weight.grad = torch.randn(7, 5, generator=draw)
            optimizer.step()
        return weight.detach()

    return float((run(False) - run(True)).abs().max())


Row = tuple[str, str, Callable[[], Any], Any]
NUMBERS: list[Row] = [
    (GRPO, "the other three get −0.5 each", lambda: advantages([1, 0, 0, 0], rejected=(0,)), [0, -0.5, -0.5, -0.5]),
    (GRPO, "so the advantage is the raw reward", lambda: advantages([0.3]), [0.3]),
    (GRPO, "differ by a factor 1.155", lambda: torch.tensor([1.0, 0, 0, 0]).std().item() / np.std([1, 0, 0, 0]), 1.155),
    (GRPO, "n/(n−1) on every advantage, 1.33 at n = 4", lambda: 4 / 3, 1.33),
    (GRPO, "the failure gets −2.47 and each success +0.35", lambda: advantages([1] * 7 + [0])[6:], [0.354, -2.475]),
    (GRPO, "everybody gets ±0.94", lambda: advantages([0, 1] * 4)[:2], [-0.935, 0.935]),
    (GRPO, "rewards 1, 1, 1 and 1.00001 give +1.25 to the last", lambda: advantages([1, 1, 1, 1.00001])[3], 1.25),
    (GRPO, "receive −0.1875 and three times +0.0625", first_update, [0, -0.1875, 0.0625]),
    (GRPO, "At A = 1 and ratio 1.3 the gradient is 0", lambda: one_gradient(1, 1.3), 0),
    (GRPO, "at ratio 0.7 it is not", lambda: one_gradient(1, 0.7), -0.7),
    (GRPO, "at a ratio of 5 the gradient is 0", lambda: one_gradient(-1, 5), 0),
    (GRPO, "At a ratio of 2.9 it is still the full 2.9", lambda: one_gradient(-1, 2.9), 2.9),
    (GRPO, "`token-mean` gives 0.82", lambda: aggregated("token-mean"), 0.82),
    (GRPO, "and `seq-mean-token-mean` 0", lambda: aggregated("seq-mean-token-mean"), 0),
    (GRPO, "this same pair gives 0 instead of 0.82", split_in_two, 0),
    (DPO, "take 10 GB in float32", lambda: 16 * 1024 * 151_936 * 4 / 1e9, 9.96),
    (DPO, "the first step must log 0.6931", lambda: -math.log(0.5), 0.6931),
    (DPO, "0.05 at the start, 0.027 at a margin of 10", lambda: [logistic_weight(m) for m in (0, 10)], [0.05, 0.0269]),
    (DPO, "and 0.0018 at 40", lambda: logistic_weight(40), 0.0018),
    (DPO, "log(1 + e^−15) has six zeros behind the point", lambda: -math.log10(math.log1p(math.exp(-15))), 6.51),
    (DPO, "at x = −104 the latter is log 0", lambda: torch.sigmoid(torch.tensor(-104.0)).item(), 0),
    (DPO, "With the default beta = 0.1 it is 5 nats", lambda: 1 / (2 * 0.1), 5),
    (DPO, "the loss starts at 25", lambda: (0 - 1 / (2 * 0.1)) ** 2, 25),
    (SAMPLING, "the first token probability 0.87, but 0.67", lambda: [reported(0.5), reported(1)], [0.867, 0.665]),
    (SAMPLING, "Between 16 and 32 its numbers are 1/8 apart", lambda: 16 * torch.finfo(torch.bfloat16).eps, 1 / 8),
    (SAMPLING, "a step of 1/8 into a factor of 3.5", lambda: math.exp(1 / 8 / 0.1), 3.49),
    (SAMPLING, "as 2 and leaves it as 1.67", lambda: (1 + 1) / 1.2, 1.667),
    (SAMPLING, "its probability goes from 0.67 to 0.59", lambda: [reported(1), repetition(0, 1.2)], [0.665, 0.587]),
    (SAMPLING, "the same penalty takes it to 0.21", lambda: repetition(10, 1.2), 0.212),
    (SAMPLING, "one token survives at temperature 0.5, two at 1", lambda: [kept_by_min_p(t) for t in (0.5, 1, 2)], [1, 2, 3]),
    (SAMPLING, "one token is left", lambda: survivors([0.5, 0.25, 0.15, 0.1], k=2, p=0.6), 1),
    (SAMPLING, "would have kept both", lambda: survivors([0.5, 0.25, 0.15, 0.1], p=0.6), 2),
    (SAMPLING, "with k = 2 three survive", lambda: survivors([0.3, 0.3, 0.3, 0.1], k=2), 3),
    (SAMPLING, "still exactly 0 in float32, 200 below the best", underflow, [1, 2]),
    (SAMPLING, "keeps the best token whatever p says", lambda: survivors([0.5, 0.25, 0.15, 0.1], p=1e-9), 1),
    (ADAMW, "that is 56 GB beside 28 GB", lambda: [7 * 4 * 2, 7 * 4], [56, 28]),
    (ADAMW, "one gradient of 1 and 5,000 of 0 later it is what it was", second_moment_kept, True),
    (ADAMW, "Adam with L2 ends at 0.0002", lambda: moved(1, 100, 1000, cls="Adam", weight_decay=0.1), 0.0002),
    (ADAMW, "without any decay at 0.0000", lambda: moved(1, 100, 1000, cls="Adam"), 0.0000),
    (ADAMW, "AdamW at −0.047", lambda: moved(1, 100, 1000, weight_decay=0.1), -0.0468),
    (ADAMW, "half of a weight is gone after 69,315 steps", lambda: (1 - 1e-3 * 1e-2) ** 69_315, 0.5),
    (ADAMW, "a weight of 1.0 is still 1.0, to the bit", lambda: moved(1, 0, 1000, "float32", lr=1e-6) == 1.0, True),
    (ADAMW, "takes nothing even at lr = 0.1", lambda: moved(1, 0, 1000, "bfloat16", lr=0.1) == 1.0, True),
    (ADAMW, "One with a gradient of zeros decays", lambda: moved(1, 0, 1, lr=0.1), 0.999),
    (ADAMW, "moves the weight 2.5 times the learning rate", lambda: after_spike(0), 2.537),
    (ADAMW, "is 37 times *smaller* than before", lambda: 1 / after_spike(100), 36.7),
    (ADAMW, "would be 3.2 and soon 6.5 times too large", lambda: [uncorrected(1), uncorrected(10)], [3.162, 6.528]),
    (ADAMW, "steps are a third of what they were", lambda: 10 * math.sqrt(1 - 0.999), 0.316),
    (ADAMW, "0.001 for a gradient of 1,000", lambda: [moved(0, g, weight_decay=0) for g in (1e3, 1e-3)], [-1e-3, -1e-3]),
    (ADAMW, "at 1e-8 the move is half, at 1e-10 a hundredth", lambda: [moved(0, g, weight_decay=0) for g in (1e-8, 1e-10)], [-5e-4, -1e-5]),
    (ADAMW, "up to 32 times larger in effect", lambda: 1 / math.sqrt(1 - 0.999), 31.6),
    (ADAMW, "after 100 steps as after one", lambda: moved(1, 1, 100, "bfloat16", weight_decay=0) == 1.0, True),
    (ADAMW, "20 steps gave the very same bits", foreach_differs, 0),
]  # fmt: skip


@pytest.mark.parametrize(("reading", "words", "compute", "expected"), NUMBERS, ids=[row[1] for row in NUMBERS])
def test_a_number_of_a_page(reading: str, words: str, compute: Callable[[], Any], expected: Any) -> None:
    page = " ".join((ROOT / "walkthroughs" / f"{reading}.md").read_text(encoding="utf-8").split())
    assert words in page
    assert compute() == pytest.approx(expected, rel=0.01, abs=5e-5)


def test_a_wrong_number_would_be_seen() -> None:
    """The negative control of the table: the population's deviation is not what verl divides by."""
    rewards = np.array([1.0, 0, 0, 0])
    assert advantages([1, 0, 0, 0]) != pytest.approx(list((rewards - rewards.mean()) / rewards.std()), rel=0.01)
