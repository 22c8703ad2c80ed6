"""Real TRL trainers, small enough to be built in a test: what the adapters of several contracts share.

TRL's formulas stand inside methods of its trainers, so the adapters call those methods, on a trainer with a one-layer
random Llama and a tokenizer of four words made in code. Only the seams of a method (what the model or the reward
functions return) are given; nothing of it is rewritten. Apart from the contracts because building is the same for all.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from annotator import pins
from annotator.catalog._third_party import default_dtype, quiet

WORDS = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models  # type: ignore[import-untyped]
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(WORDS, unk_token="a"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def _model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **sizes, **ends))


def _arguments(folder: str) -> dict[str, Any]:
    off = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    return {"output_dir": folder, "use_cpu": True, "bf16": False, **off}


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        yield
    finally:
        os.environ.pop("HF_HUB_OFFLINE") if before is None else os.environ.update(HF_HUB_OFFLINE=before)


@contextlib.contextmanager
def _workshop() -> Iterator[dict[str, Any]]:
    """Arguments for a trainer whose output folder is gone once it is built; it never saves. Warnings about rows that
    nobody trains on are not for the reader.
    """
    with _offline(), quiet(), tempfile.TemporaryDirectory(prefix="annotator-trl-") as folder:
        import datasets

        bars, before = datasets.is_progress_bar_enabled(), logging.root.manager.disable
        datasets.disable_progress_bars()
        logging.disable(logging.WARNING)
        try:
            yield _arguments(folder)
        finally:
            logging.disable(before)
            if bars:
                datasets.enable_progress_bars()


@functools.cache
def grpo_trainer() -> Any:
    """A real ``GRPOTrainer`` of the pin on the CPU. Built once."""
    with _workshop() as arguments:
        from datasets import Dataset

        grpo = pins.load("trl:trl.trainer.grpo_trainer")
        return grpo.GRPOTrainer(
            model=_model(),
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=grpo.GRPOConfig(**arguments, num_generations=2, per_device_train_batch_size=2),
            train_dataset=Dataset.from_dict({"prompt": ["a"]}),
            processing_class=_tokenizer(),
        )


@functools.cache
def dpo_trainer() -> Any:
    """A real ``DPOTrainer`` of the pin on the CPU, with a reference model. Built once; adapters replace its models."""
    return build_dpo_trainer()


def build_dpo_trainer() -> Any:
    """Another one, for whoever needs its models as they are."""
    with _workshop() as arguments:
        from datasets import Dataset

        dpo = pins.load("trl:trl.trainer.dpo_trainer")
        return dpo.DPOTrainer(
            model=_model(),
            ref_model=_model(),
            args=dpo.DPOConfig(**arguments),
            train_dataset=Dataset.from_dict({"prompt": ["a"], "chosen": ["b"], "rejected": ["a"]}),
            processing_class=_tokenizer(),
        )


def fused_answer(logps: Any, labels: Any) -> Any:
    """What TRL's model with its fused head answers, given its log-probabilities: 0 where a token is not labelled.

    ``logps`` [B, T], ``labels`` [B, 1+T]; entropies and logits, which are only logged, are 0.
    """
    with quiet():
        output = pins.load("trl:trl.trainer.utils").FusedCausalLMOutput
    nothing = logps.detach() * 0
    logps = logps.masked_fill(labels[:, 1:] == -100, 0)
    return output(log_probs=logps, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool())


def two_words(logps: Any) -> Any:
    """Logits of two words, of which word 0 has the given log-probability and word 1 the rest, [B, T] -> [B, T, 2]."""
    import torch

    return torch.stack((logps, torch.log(-torch.expm1(logps))), dim=-1)


@contextlib.contextmanager
def run_as(trainer: Any, like: Any) -> Iterator[None]:
    """Let a trainer's method work on the device and in the floating dtype of the tensor ``like``."""
    from unittest import mock

    with default_dtype(like), mock.patch.object(type(trainer.accelerator), "device", like.device):
        yield
