"""What a small engine keeps in one place; its samplers import it."""

import torch


def count(ids, size):
    """ids [B, N], padded with size -> [B, size]"""
    return torch.zeros(len(ids), size + 1, dtype=torch.long).scatter_add_(1, ids, torch.ones_like(ids))[:, :size]


def penalise(logits, prompt, output, presence, frequency, repetition):
    n = count(output, logits.shape[1])
    seen = (n + count(prompt, logits.shape[1])) > 0
    rep = torch.where(seen, repetition[:, None], torch.ones_like(logits))
    logits = torch.where(logits > 0, logits / rep, logits * rep)
    return logits - frequency[:, None] * n - presence[:, None] * (n > 0)


def min_p_mask(z, min_p):
    p = torch.softmax(z, -1)
    return p < min_p[:, None] * p.max(-1, keepdim=True).values


def top_k_mask(z, k):
    ordered, _ = torch.sort(z, dim=-1, descending=True)
    return z < ordered.gather(1, (k - 1)[:, None])


def top_p_mask(z, top_p):
    ordered, order = torch.sort(z, dim=-1, descending=True, stable=True)
    p = torch.softmax(ordered, -1)
    drop = (p.cumsum(-1) - p >= top_p[:, None]) & (top_p[:, None] < 1)
    return torch.zeros_like(drop).scatter(1, order, drop)


def pick(greedy, penalised, p):
    """One certain token where a row is greedy."""
    sure = torch.nn.functional.one_hot(penalised.argmax(-1), p.shape[1]).to(p.dtype)
    return torch.where(greedy[:, None], sure, p)
