import torch


def score(logits, token_ids, temperature):
    log_probs, entropies = [], []
    for row, ids in zip(logits, token_ids, strict=True):
        scores, spread = [], []
        for t in range(1, len(ids)):
            p = torch.softmax(row[t - 1] / temperature, dim=0)
            logp = torch.log_softmax(row[t - 1] / temperature, dim=0)
            scores.append(logp[ids[t]])
            spread.append(-torch.dot(p, logp))
        log_probs.append(torch.stack(scores))
        entropies.append(torch.stack(spread))
    return {"log_probs": torch.stack(log_probs), "entropy": torch.stack(entropies)}
