import numpy as np


def trajectory(start, grads, lr, beta1, beta2, eps, decay):
    f = start.dtype.type
    m, v, p = np.zeros_like(start), np.zeros_like(start), start
    rows = np.empty_like(grads)
    for t in range(1, len(grads) + 1):
        g = grads[t - 1]
        p = p - f(lr * decay) * p
        m = f(beta1) * m + f(1 - beta1) * g
        v = f(beta2) * v + f(1 - beta2) * g * g
        p = p - f(lr) * (m / f(1 - beta1**t)) / (np.sqrt(v / f(1 - beta2**t)) + f(eps))
        rows[t - 1] = p
    return rows
