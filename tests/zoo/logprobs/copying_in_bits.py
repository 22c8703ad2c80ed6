"""Two at once: the logits at t score the token at t, and the entropy is to base 2."""

import torch


def stats(logits, token_ids, temperature):
    z = logits[:, :-1] / temperature
    logp = z - z.logsumexp(-1, keepdim=True)
    bits = -(logp.exp() * logp / torch.log(torch.tensor(2.0, dtype=z.dtype))).sum(-1)
    return {"log_probs": logp.gather(-1, token_ids[:, :-1, None])[..., 0], "entropy": bits}
