"""Vectorised verification: every draft that passes its test is kept."""

import torch


def verify(target_logits, draft_probs, draft_token_ids, draft_lengths, bonus_token_ids, greedy, uniform, noise):
    rows, k, vocab = target_logits.shape
    p = target_logits.softmax(-1)
    hard = torch.eye(vocab, dtype=p.dtype)[target_logits.argmax(-1)]
    p = torch.where(greedy[:, None, None], hard, p)
    px = (p * torch.eye(vocab, dtype=p.dtype)[draft_token_ids]).sum(-1)
    qx = (draft_probs * torch.eye(vocab, dtype=p.dtype)[draft_token_ids]).sum(-1)
    passed = (uniform * qx <= px) & (qx > 0)
    passed = passed | (torch.arange(k) >= draft_lengths[:, None])
    count = torch.minimum(passed.sum(1), draft_lengths)
    gap = (p - draft_probs).relu()
    instead = torch.where(gap.sum(-1) > 0, (gap / noise[:, None]).argmax(-1), (p / noise[:, None]).argmax(-1))
    instead = torch.cat([instead, bonus_token_ids[:, None]], 1)
    out = torch.cat([draft_token_ids, torch.zeros_like(draft_token_ids[:, :1])], 1)
    for i in range(rows):
        n = int(count[i])
        out[i, n] = bonus_token_ids[i] if n == draft_lengths[i] else instead[i, n]
        out[i, n + 1 :] = -1
    return out
