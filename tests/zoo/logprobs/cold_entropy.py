import torch


def score(model_logits, ids, temp):
    """log p at the sampling temperature; the entropy is logged from the logits as they come."""
    z = model_logits[:, :-1, :]
    logp = torch.log_softmax(z / temp, -1)
    logp = torch.gather(logp, -1, ids[:, 1:, None])[..., 0]
    ent = torch.distributions.Categorical(logits=z).entropy()
    return logp, ent
