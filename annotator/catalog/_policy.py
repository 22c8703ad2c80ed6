"""The references' policy losses, called at the level of token log-probabilities.

verl's is a function, Liger's a static method, TRL's the middle of a method of its trainer: the seam that is given there
is the one where the model's log-probabilities come back. Apart from the contracts because more than one is about them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from annotator.catalog import _trl
from annotator.catalog._third_party import CORE, pinned

Outputs = Mapping[str, Any]

TRL_LOSSES = {
    ("token-mean", "global"): "dapo",
    ("token-mean", "local"): "bnpo",
    ("seq-mean-token-sum", "global"): "luspo",
    ("seq-mean-token-sum", "local"): "luspo",
    ("seq-mean-token-sum-norm", "global"): "dr_grpo",
    ("seq-mean-token-sum-norm", "local"): "dr_grpo",
    ("seq-mean-token-mean", "global"): "grpo",
    ("seq-mean-token-mean", "local"): "grpo",
}
"""TRL's name of an aggregation. What Liger has of them it calls the same."""


def _actor_config() -> Any:
    return pinned("verl:verl.workers.config.actor").ActorConfig


def _liger() -> Any:
    return pinned("liger-kernel:liger_kernel.chunked_loss.grpo_loss").LigerFusedLinearGRPOFunction


def _finite(bound: float) -> float | None:
    """No bound is None in TRL and Liger."""
    return bound if math.isfinite(bound) else None


def share(logged: Any, mask: Any, like: Any) -> Any:
    """A fraction of the mask's tokens that a library logs as a float32 number, in the dtype of the tensor ``like``.

    It is a count over a known number of tokens, so the count can be told.
    """
    tokens = max(int(mask.sum()), 1)
    return like.new_tensor(round(float(logged) * tokens)) / tokens


def verl_loss(
    log_probs: Any,
    old_log_probs: Any,
    advantages: Any,
    response_mask: Any,
    rollout_weights: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    weighted: bool,
    aggregation: str,
    horizon: float,
    counts: str,
) -> Outputs:
    """``compute_policy_loss_vanilla``."""
    sizes = {"dp_size": dp_size, "batch_num_tokens": batch_num_tokens, "global_batch_size": global_batch_size}
    config = _actor_config()(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=clip_low,
        clip_ratio_high=clip_high,
        clip_ratio_c=dual_clip,
        global_batch_info={
            "loss_scale_factor": horizon,
            **({name: int(size) for name, size in sizes.items()} if counts == "global" else {}),
        },
    )
    loss, metrics = pinned(CORE).compute_policy_loss_vanilla(
        old_log_prob=old_log_probs,
        log_prob=log_probs,
        advantages=advantages,
        response_mask=response_mask,
        loss_agg_mode=aggregation,
        config=config,
        rollout_is_weights=rollout_weights if weighted else None,
    )
    return {"loss": loss, "clip_fraction": share(metrics["actor/pg_clipfrac"], response_mask, log_probs)}


def trl_loss(
    log_probs: Any,
    old_log_probs: Any,
    advantages: Any,
    response_mask: Any,
    ref_log_probs: Any,
    rollout_weights: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    weighted: bool,
    kl_coef: float,
    kl_by_ratio: bool,
    aggregation: str,
    horizon: float,
    counts: str,
) -> Outputs:
    """``GRPOTrainer._compute_loss``: the model's answer is given, and how many micro-batches and processes there are.

    A micro-batch of B rows on each of dp processes, accumulated n times, is a batch of B dp n rows.
    """
    from unittest import mock

    trainer, rows = _trl.grpo_trainer(), len(log_probs)
    steps = int(global_batch_size) // (rows * int(dp_size)) if counts == "global" else 1
    settings: dict[str, Any] = {
        "_get_per_token_logps_and_entropies": lambda *_, **__: (log_probs, log_probs.detach() * 0, None),
        "loss_type": TRL_LOSSES[aggregation, counts],
        "epsilon_low": clip_low,
        "epsilon_high": clip_high,
        "beta": kl_coef,
        "use_vllm": weighted,
        "vllm_importance_sampling_correction": weighted,
        "max_completion_length": horizon,
        "current_gradient_accumulation_steps": steps,
    }
    options: dict[str, Any] = {
        "delta": _finite(dual_clip),
        "use_bias_correction_kl": kl_by_ratio,
        "steps_per_generation": steps,
    }
    processes = int(dp_size) if counts == "global" else 1
    batch = _trl_batch(response_mask) | {
        "advantages": advantages,
        "old_per_token_logps": old_log_probs,
        "ref_per_token_logps": ref_log_probs,
        "importance_sampling_ratio": rollout_weights,
        "num_items_in_batch": batch_num_tokens,
    }
    with (
        _trl.run_as(trainer, log_probs),
        mock.patch.multiple(trainer, create=True, **settings),
        mock.patch.multiple(trainer.args, **options),
        mock.patch.object(type(trainer.accelerator), "num_processes", processes),
    ):
        trainer.model.train()
        loss = trainer._compute_loss(trainer.model, batch)
    clipped = trainer._metrics["train"]["clip_ratio/region_mean"][-1]
    trainer._metrics["train"].clear()
    return {"loss": loss, "clip_fraction": share(clipped, response_mask, log_probs)}


def _trl_batch(response_mask: Any) -> dict[str, Any]:
    """Tokens that nobody looks at: the model's answer is given."""
    import torch

    mask = response_mask.long()  # [B, T]
    prompt = torch.ones_like(mask[:, :1])  # [B, 1]
    return {"prompt_ids": prompt, "prompt_mask": prompt, "completion_ids": mask, "completion_mask": mask}


def liger_loss(
    log_probs: Any,
    old_log_probs: Any,
    advantages: Any,
    response_mask: Any,
    ref_log_probs: Any,
    rollout_weights: Any,
    batch_num_tokens: Any,
    global_batch_size: Any,
    dp_size: Any,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    weighted: bool,
    kl_coef: float,
    kl_by_ratio: bool,
    aggregation: str,
    horizon: float,
    counts: str,
) -> Outputs:
    """``LigerFusedLinearGRPOFunction.ppo_loss_fn``, one chunk of a batch whose mask it is given for the divisors.

    It takes one advantage a response. Without a process group its ranks are one, so the divisor is given per rank.
    """
    mask = response_mask.to(log_probs.dtype)
    whole, tokens = mask, None
    if counts == "global":
        whole = mask.new_zeros(int(global_batch_size) // int(dp_size), mask.shape[1])  # only its rows are read
        tokens = batch_num_tokens / dp_size
    loss, metrics = _liger().ppo_loss_fn(
        log_probs,
        mask,
        advantages.gather(1, mask.argmax(dim=1, keepdim=True))[:, 0],  # of each row's first token
        whole,
        ref_per_token_logps=ref_log_probs,
        old_per_token_logps=old_log_probs,
        epsilon_low=clip_low,
        epsilon_high=clip_high,
        beta=kl_coef,
        loss_type=TRL_LOSSES[aggregation, counts],
        max_completion_length=horizon,
        vllm_is_ratio=rollout_weights if weighted else None,
        delta=_finite(dual_clip),
        use_bias_correction_kl=kl_by_ratio,
        num_items_in_batch=tokens,
    )
    counted = float(metrics[-1]) * max(float(whole.sum()), 1.0) / max(float(mask.sum()), 1.0)
    return {"loss": loss, "clip_fraction": share(counted, response_mask, log_probs)}
