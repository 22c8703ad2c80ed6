import torch
from filters import min_p_mask, penalise, pick, top_k_mask


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
    logprobs = logits.log_softmax(-1)
    greedy = temperature < 1e-5
    pen = penalise(
        logits, prompt_token_ids, output_token_ids, presence_penalties, frequency_penalties, repetition_penalties
    )
    z = pen / torch.where(greedy, torch.ones_like(temperature), temperature)[:, None]
    on = ~greedy[:, None]
    z = z.masked_fill(min_p_mask(z, min_p) & on, -torch.inf)
    z = z.masked_fill(top_k_mask(z, top_k) & on, -torch.inf)
    best, order = z.sort(dim=-1, descending=True, stable=True)
    beyond = best.softmax(-1).cumsum(-1) >= top_p[:, None]
    beyond[:, 0] = False
    removed = torch.zeros_like(beyond).scatter(1, order, beyond) & on & (top_p[:, None] < 1)
    z = z.masked_fill(removed, -torch.inf)
    return {"kept": z > -torch.inf, "log_probabilities": logprobs, "probabilities": pick(greedy, pen, z.softmax(-1))}
