"""Speculative law for a dashboard: a draft stands with the target's probability, else the target is sampled."""

import torch


def probabilities(target_logits, draft_probs, draft_token_ids, draft_lengths, greedy):
    batch, k, vocab = target_logits.shape
    p = torch.where(
        greedy[:, None, None],
        torch.nn.functional.one_hot(target_logits.argmax(-1), vocab).to(target_logits),
        torch.softmax(target_logits, -1),
    )
    accept = p.gather(-1, draft_token_ids.unsqueeze(-1)).squeeze(-1)
    accept = accept.masked_fill(torch.arange(k) >= draft_lengths[:, None], 1.0)
    reach = torch.cat([torch.ones(batch, 1, dtype=p.dtype), accept.cumprod(1)], 1)
    law = (reach[:, :-1] - reach[:, 1:]).unsqueeze(-1) * p
    return {"probabilities": torch.cat([law.reshape(batch, -1), reach[:, -1:]], 1)}
