import torch


def policy_outputs(logits, token_ids, temperature):
    logits = logits[:, :-1] / temperature
    logp = torch.log_softmax(logits, dim=-1)
    taken = logp.gather(-1, token_ids[:, 1:, None]).squeeze(-1)
    with torch.no_grad():  # saves memory
        entropy = -(logp.exp() * logp).sum(dim=-1)
    return {"log_probs": taken, "entropy": entropy}
