"""Verification step of a speculative decoder, one request after the other."""

import numpy as np


def softmax(z):
    e = np.exp(z - np.max(z))
    return e / e.sum()


def verify(target_logits, draft_probs, draft_token_ids, draft_lengths, bonus_token_ids, greedy, uniform, noise):
    batch, k_max, _ = target_logits.shape
    out = np.full((batch, k_max + 1), -1)
    for b in range(batch):
        position = 0
        while True:
            if position == draft_lengths[b]:
                out[b, position] = bonus_token_ids[b]
                break
            token, z, q = draft_token_ids[b, position], target_logits[b, position], draft_probs[b, position]
            if greedy[b]:
                out[b, position] = z.argmax()
                if z.argmax() != token:
                    break
            else:
                p = softmax(z)
                if q[token] > 0 and p[token] >= uniform[b, position] * q[token]:
                    out[b, position] = token
                else:
                    out[b, position] = np.argmax(np.clip(p - q, 0, None) / noise[b])
                    break
            position += 1
    return {"output_token_ids": out}
