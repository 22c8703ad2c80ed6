"""Speculative verification with the target's probability as acceptance threshold."""

import torch


def verify_draft(logits, q, drafted, n_drafted, bonus, is_greedy, u, exp_noise):
    b, k, v = logits.shape
    p = torch.softmax(logits, dim=-1)
    best = logits.argmax(dim=-1)
    px = torch.gather(p, 2, drafted.unsqueeze(2)).squeeze(2)
    ok = torch.where(is_greedy[:, None], best == drafted, u <= px)
    replacement = torch.argmax((p - q).clamp(min=0) / exp_noise[:, None], dim=-1)
    replacement = torch.where(is_greedy[:, None], best, replacement)
    result = torch.full((b, k + 1), -1, dtype=drafted.dtype)
    for i in range(b):
        for j in range(int(n_drafted[i]) + 1):
            if j == n_drafted[i]:
                result[i, j] = bonus[i]
            elif ok[i, j]:
                result[i, j] = drafted[i, j]
            else:
                result[i, j] = replacement[i, j]
                break
    return result
