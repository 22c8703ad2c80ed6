import torch


def clip(gradients, tensor, max_norm, norm_type, eps):
    total = gradients.new_zeros(())
    for name in tensor.unique():
        total = total + torch.linalg.vector_norm(gradients[tensor == name], norm_type)
    factor = torch.clamp(max_norm / torch.clamp(total, min=eps), max=1.0)
    return factor * gradients, total
