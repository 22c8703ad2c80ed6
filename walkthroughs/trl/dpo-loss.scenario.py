"""One batch through TRL's own DPO trainer: its collator, a tiny random Llama and the reference beside it.

P pairs; the prompt has 2 tokens, the chosen answer c and the rejected one r. The policy's weights are a little off the
reference's, as after some steps.
"""

import functools
from typing import Any

from annotator.catalog import _trl

SIZES = ({"P": 2, "T": 8, "c": 3, "r": 5}, {"P": 3, "T": 11, "c": 4, "r": 8})


@functools.cache
def trainer_of_its_own() -> Any:
    """Not the one of the contract, whose models are stand-ins."""
    return _trl.build_dpo_trainer()


def run(P: int, T: int, c: int, r: int) -> Any:
    """The loss of a batch; every sequence fits into T + 1 tokens, of which T are predicted."""
    import torch

    trainer = trainer_of_its_own()
    word = _trl.WORDS
    examples = [
        {
            "prompt_ids": [word["a"], word["b"]],
            "chosen_ids": [word["a"]] * (c - pair % 2) + [word["<eos>"]],
            "rejected_ids": [word["b"]] * (r - pair % 2) + [word["<eos>"]],
        }
        for pair in range(P)
    ]
    trainer.data_collator.max_length = T
    batch = trainer.data_collator(examples)
    pairs = zip(trainer.model.parameters(), trainer.ref_model.parameters(), strict=True)
    with torch.no_grad():
        for number, (ours, theirs) in enumerate(pairs):
            wave = torch.arange(theirs.numel(), dtype=torch.float32).add(number).sin().reshape(theirs.shape)
            theirs.copy_(0.3 * wave)
            ours.copy_(0.3 * wave + 0.05 * wave.roll(1))
    trainer.model.zero_grad()
    return trainer._compute_loss(trainer.model, batch, return_outputs=False)
