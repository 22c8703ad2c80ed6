import torch


def rescale(gradients, shard, max_norm, norm_type, eps):
    scale = torch.ones_like(gradients)
    for s in shard.unique():
        piece = gradients[shard == s]
        scale[shard == s] = max_norm / (torch.linalg.vector_norm(piece, norm_type) + eps)
    return {"clipped": gradients * scale}
