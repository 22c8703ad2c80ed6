"""The collator had moved the labels; the loss moves them once more."""

import torch
import torch.nn.functional as F


def forward(logits, token_ids, temperature):
    labels = torch.cat([token_ids[:, 1:], token_ids[:, :1]], dim=1)  # as the collator hands them over
    shift_logits = logits[..., :-1, :].contiguous() / temperature
    shift_labels = torch.cat([labels[:, 1:], labels[:, :1]], dim=1)[:, :-1]
    nll = F.cross_entropy(shift_logits.transpose(1, 2), shift_labels, reduction="none")
    logp = F.log_softmax(shift_logits, dim=-1)
    return {"log_probs": -nll, "entropy": -(logp.exp() * logp).sum(dim=-1)}
