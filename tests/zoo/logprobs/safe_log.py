import torch


class Scorer:
    """Log-probabilities through probabilities, with a guard against log(0)."""

    def __init__(self, eps=1e-8):
        self.eps = eps

    def __call__(self, logits, token_ids, temperature):
        probs = torch.softmax(logits[:, :-1] / temperature, dim=-1)
        p = torch.gather(probs, -1, token_ids[:, 1:].unsqueeze(-1)).squeeze(-1)
        log_all = torch.log_softmax(logits[:, :-1] / temperature, dim=-1)
        return {"log_probs": torch.log(p + self.eps), "entropy": -(probs * log_all).sum(-1)}


scorer = Scorer()


def score(logits, token_ids, temperature):
    return scorer(logits, token_ids, temperature)
