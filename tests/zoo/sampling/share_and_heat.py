import torch
from filters import penalise, pick, top_k_mask, top_p_mask


class Sampler:
    def __init__(self, greedy_below):
        self.greedy_below = greedy_below

    def filter(self, z, min_p, top_k, top_p):
        p = z.softmax(-1)
        unlikely = p < min_p[:, None]
        unlikely[p == p.amax(-1, keepdim=True)] = False
        z = z.masked_fill(unlikely, float("-inf"))
        z = z.masked_fill(top_k_mask(z, top_k), float("-inf"))
        return z.masked_fill(top_p_mask(z, top_p), float("-inf"))

    def forward(
        self,
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
        greedy = temperature < self.greedy_below
        penalised = penalise(
            logits, prompt_token_ids, output_token_ids, presence_penalties, frequency_penalties, repetition_penalties
        )
        filtered = torch.where(greedy[:, None], penalised, self.filter(penalised, min_p, top_k, top_p))
        heat = torch.where(greedy, torch.ones_like(temperature), temperature)
        log_p = torch.log_softmax(filtered / heat[:, None], -1)
        return filtered > float("-inf"), log_p, pick(greedy, penalised, log_p.exp())
