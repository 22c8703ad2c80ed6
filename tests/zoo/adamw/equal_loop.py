import torch


class AdamW:
    def __init__(self, p, lr, b1, b2, eps, wd):
        self.p, self.lr, self.b1, self.b2, self.eps, self.wd, self.t = p, lr, b1, b2, eps, wd, 0
        self.m, self.v = torch.zeros_like(p), torch.zeros_like(p)

    def step(self, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        m_hat, v_hat = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        self.p = self.p - self.lr * self.wd * self.p - self.lr * m_hat / (v_hat.sqrt() + self.eps)
        return self.p


def trajectory(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    optimiser = AdamW(parameters, lr, beta1, beta2, eps, weight_decay)
    return torch.stack([optimiser.step(g) for g in gradients])
