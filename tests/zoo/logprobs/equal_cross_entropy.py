import torch
import torch.nn.functional as F


def score(logits, ids, temp):
    z = (logits / temp)[:, :-1]
    nll = F.cross_entropy(z.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    logp = F.log_softmax(z, -1)
    ent = torch.einsum("btv,btv->bt", -logp.exp(), logp)
    return -nll.view(ids.shape[0], -1), ent
