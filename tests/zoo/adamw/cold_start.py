import numpy as np


def run(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    f = parameters.dtype.type
    p, m, v = parameters.copy(), np.zeros_like(parameters), np.zeros_like(parameters)
    rows = []
    for g in gradients:
        p = p * f(1 - lr * weight_decay)
        m = f(beta1) * m + f(1 - beta1) * g
        v = f(beta2) * v + f(1 - beta2) * g**2
        p = p - f(lr) * m / (np.sqrt(v) + f(eps))
        rows.append(p)
    return np.stack(rows)
