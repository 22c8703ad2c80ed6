import torch


def clip(gradients, shard, max_norm, norm_type, eps):
    out = gradients.clone()
    for rank in range(int(shard.max()) + 1 if shard.numel() else 0):
        mine = (shard == rank).nonzero().flatten()
        if mine.numel() == 0:
            continue
        local = gradients[mine]
        norm = torch.linalg.vector_norm(local, norm_type)
        out[mine] = local * torch.clamp(max_norm / (norm + eps), max=1.0)
    return {"clipped": out}
