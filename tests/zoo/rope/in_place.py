import numpy as np


def rotate_qk(positions, q, k, theta):
    d = q.shape[-1]
    freq = theta ** (-np.arange(0, d, 2) / d)
    angle = (positions[:, None] * freq)[:, None, :].astype(q.dtype)
    cos, sin = np.cos(angle), np.sin(angle)
    q, k = q.copy(), k.copy()
    for x in (q, k):
        x[..., : d // 2] = x[..., : d // 2] * cos - x[..., d // 2 :] * sin
        x[..., d // 2 :] = x[..., d // 2 :] * cos + x[..., : d // 2] * sin
    return q, k
