import numpy as np


class Adam:
    def __init__(self, b2_first=True):
        self.b2_first = b2_first

    def run(self, parameters, gradients, lr, beta1, beta2, eps, weight_decay):
        t = parameters.dtype.type
        b2, b1 = (beta1, beta2) if self.b2_first else (beta2, beta1)
        m, v, out, p = 0 * parameters, 0 * parameters, [], parameters
        for k, g in enumerate(gradients):
            p = p - t(lr * weight_decay) * p
            m = t(b1) * m + t(1 - b1) * g
            v = t(b2) * v + t(1 - b2) * g * g
            m_hat, v_hat = m / t(1 - b1 ** (k + 1)), v / t(1 - b2 ** (k + 1))
            p = p - t(lr) * m_hat / np.sqrt(v_hat + t(eps))
            out.append(p)
        return np.array(out)
