import numpy as np


def rope(positions, query, key, base, rotary_dim, is_neox_style):
    d = query.shape[-1]
    r = d if rotary_dim is None else rotary_dim
    out = []
    for x in (query, key):
        y = np.empty_like(x)
        for t, m in enumerate(positions):
            turn = np.eye(d)
            for i in range(r // 2):
                a, b = (i, i + r // 2) if is_neox_style else (2 * i, 2 * i + 1)
                angle = m * base ** (-2 * i / r)
                turn[a, a] = turn[b, b] = np.cos(angle)
                turn[b, a] = np.sin(angle)
                turn[a, b] = -np.sin(angle)
            y[t] = x[t] @ turn.T.astype(x.dtype)
        out.append(y)
    return tuple(out)
