"""One decoding step of vLLM's sampler for B requests over V words: one greedy, the others each with a filter.

The logits fall from word to word; every request has a prompt of 2 tokens and has written 3.
"""

from typing import Any

from annotator import catalog

SIZES = ({"B": 4, "V": 8, "prompt": 2, "written": 3}, {"B": 6, "V": 13, "prompt": 5, "written": 7})


def run(B: int, V: int, prompt: int, written: int) -> Any:
    """The sampler draws; nothing is differentiated."""
    import torch

    row = torch.arange(B)
    catalog.contract("token-sampling").implementation("vllm").call(
        logits=3.0 - 0.5 * torch.arange(V).float().expand(B, V) + 0.1 * row[:, None],
        prompt_token_ids=(torch.arange(prompt) % V).expand(B, prompt),
        output_token_ids=(torch.arange(written) % 3).expand(B, written),
        temperature=torch.where(row == 0, 0.0, 0.7),
        top_k=torch.where(row == 1, 3, V).to(torch.int32),
        top_p=torch.where(row == 2, 0.8, 1.0),
        min_p=torch.where(row == 3, 0.1, 0.0),
        presence_penalties=torch.where(row == 2, 0.4, 0.0),
        frequency_penalties=torch.where(row == 2, 0.2, 0.0),
        repetition_penalties=torch.where(row == 3, 1.2, 1.0),
    )
