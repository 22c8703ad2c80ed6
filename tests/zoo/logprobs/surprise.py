import torch.nn.functional as F


def evaluate(logits, token_ids, temperature):
    """Cheap entropy: minus the log-probability of what was sampled."""
    logp = F.log_softmax(logits[:, :-1] / temperature, dim=-1)
    logp = logp.gather(-1, token_ids[:, 1:, None]).squeeze(-1)
    return {"log_probs": logp, "entropy": -logp}
