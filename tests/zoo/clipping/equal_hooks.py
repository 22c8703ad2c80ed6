import torch


def clip(gradients, tensor, max_norm, norm_type, eps):
    params = []
    for name in tensor.unique():
        p = torch.nn.Parameter(torch.empty_like(gradients[tensor == name]))
        p.grad = gradients[tensor == name]
        params.append(p)
    if not params:
        return gradients, gradients.sum()
    total = torch.stack([p.grad.norm(norm_type) for p in params]).norm(norm_type)
    coefficient = max_norm / (total + eps)
    if not coefficient > 1:
        for p in params:
            p.grad.mul_(coefficient)
    out = torch.empty_like(gradients)
    for name, p in zip(tensor.unique(), params, strict=True):
        out[tensor == name] = p.grad
    return out, total
