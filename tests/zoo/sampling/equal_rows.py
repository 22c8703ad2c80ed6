import numpy as np


def log_softmax(z):
    z = z - z.max()
    return z - np.log(np.exp(z).sum())


def row(z, prompt, output, temperature, top_k, top_p, min_p, presence, frequency, repetition):
    V = len(z)
    for token in set(prompt.tolist()) | set(output.tolist()):
        if token < V:
            z[token] = z[token] / repetition if z[token] > 0 else z[token] * repetition
    for token in output.tolist():
        if token < V:
            z[token] -= frequency
    for token in set(output.tolist()):
        if token < V:
            z[token] -= presence
    if temperature < 1e-5:
        sure = np.zeros_like(z)
        sure[np.argmax(z)] = 1
        return z > -np.inf, log_softmax(z), sure
    z = z / temperature
    p = np.exp(log_softmax(z))
    z[(p < min_p * p.max()) | (z < np.sort(z)[V - top_k])] = -np.inf
    if top_p < 1:
        best_first = np.argsort(-z, kind="stable")
        p = np.exp(log_softmax(z))[best_first]
        outside = np.cumsum(p) - p >= top_p
        z[best_first[outside]] = -np.inf
    logp = log_softmax(z)
    return z > -np.inf, logp, np.exp(logp)


def sample(
    logits,
    prompt_token_ids,
    output_token_ids,
    temperature,
    top_k,
    top_p,
    min_p,
    presence_penalties,
    frequency_penalties,
    repetition_penalties,
):
    rest = (prompt_token_ids, output_token_ids, temperature, top_k, top_p, min_p)
    rest += (presence_penalties, frequency_penalties, repetition_penalties)
    rows = [row(logits[b].copy(), *(x[b] for x in rest)) for b in range(len(logits))]
    return tuple(np.stack(column) for column in zip(*rows, strict=True))
