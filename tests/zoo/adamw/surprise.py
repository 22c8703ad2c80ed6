import torch


def adabelief(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    p, m, s, out = parameters, torch.zeros_like(parameters), torch.zeros_like(parameters), []
    for t, g in enumerate(gradients, 1):
        p = p.mul(1 - lr * weight_decay)
        m = m.lerp(g, 1 - beta1)
        s = s.lerp((g - m).square(), 1 - beta2)
        p = p - lr * (m / (1 - beta1**t)) / ((s / (1 - beta2**t)).sqrt() + eps)
        out.append(p)
    return torch.stack(out)
