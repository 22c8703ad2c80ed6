"""The exact distribution over what one speculative step emits."""

import torch


def step_distribution(target_logits, draft_probs, draft_token_ids, draft_lengths, greedy):
    batch, k, vocab = target_logits.shape
    p = target_logits.softmax(-1)
    top = torch.zeros_like(p).scatter_(-1, target_logits.argmax(-1, keepdim=True), 1.0)
    p = torch.where(greedy.view(-1, 1, 1), top, p)
    alive = torch.ones(batch, dtype=p.dtype)
    columns = []
    for i in range(k):
        token = draft_token_ids[:, i : i + 1]
        pi, qi = p[:, i], draft_probs[:, i]
        px, qx = pi.gather(1, token)[:, 0], qi.gather(1, token)[:, 0]
        stay = torch.where(px >= qx, (qx > 0).to(p.dtype), px / qx.clamp(min=1e-30))
        stay = torch.where(i < draft_lengths, stay, torch.ones_like(stay))
        extra = torch.relu(pi - qi)
        mass = extra.sum(-1, keepdim=True)
        extra = torch.where(mass > 0, extra / mass.clamp(min=1e-30), pi)
        columns.append((alive * (1 - stay))[:, None] * extra)
        alive = alive * stay
    return {"probabilities": torch.cat([*columns, alive[:, None]], dim=-1)}
