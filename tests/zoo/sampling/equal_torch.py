import torch
from filters import min_p_mask, penalise, pick, top_k_mask, top_p_mask


def sample(
    logits,
    prompt_token_ids,
    output_token_ids,
    temperature,
    top_k,
    top_p,
    min_p,
    presence_penalties,
    frequency_penalties,
    repetition_penalties,
):
    greedy = temperature < 1e-5
    t = torch.where(greedy, torch.ones_like(temperature), temperature)[:, None]
    pen = penalise(
        logits, prompt_token_ids, output_token_ids, presence_penalties, frequency_penalties, repetition_penalties
    )
    z = pen / t
    for mask in (min_p_mask(z, min_p), top_k_mask(z, top_k)):
        z = z.masked_fill(mask & ~greedy[:, None], float("-inf"))
    z = z.masked_fill(top_p_mask(z, top_p) & ~greedy[:, None], float("-inf"))
    logprobs = torch.log_softmax(z, -1)
    return {
        "kept": torch.isfinite(z),
        "log_probabilities": logprobs,
        "probabilities": pick(greedy, pen, logprobs.exp()),
    }
