import numpy as np


def advantages(r, v, terminated, truncated, last_values, gamma, lam):
    n, horizon = r.shape
    v_next = np.concatenate([v[:, 1:], last_values[:, None]], axis=1)
    live = (~terminated).astype(r.dtype)
    go_on = (~(terminated | truncated)).astype(r.dtype)
    delta = r + r.dtype.type(gamma) * v_next * live - v
    out = np.zeros_like(r)
    acc = np.zeros(n, dtype=r.dtype)
    for t in range(horizon - 1, -1, -1):
        acc = delta[:, t] + r.dtype.type(gamma) * r.dtype.type(lam) * go_on[:, t] * acc
        out[:, t] = acc
    return {"advantages": out, "returns": out + v}
