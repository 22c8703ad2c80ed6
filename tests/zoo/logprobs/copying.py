import torch


def token_scores(logits, token_ids, temperature):
    # drop the last position, it predicts a token we do not have
    logits = logits[:, :-1] / temperature
    token_ids = token_ids[:, :-1]
    probs = logits.softmax(dim=-1)
    lse = torch.logsumexp(logits, dim=-1)
    chosen = torch.gather(logits, 2, token_ids[:, :, None]).squeeze(2)
    entropy = lse - (probs * logits).sum(dim=-1)
    return {"log_probs": chosen - lse, "entropy": entropy}
