import torch


def train(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    m = v = torch.zeros_like(parameters)
    p, seen = parameters, []
    for t, g in enumerate(gradients, start=1):
        g = g + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p - lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)
        seen.append(p)
    return torch.stack(seen)
