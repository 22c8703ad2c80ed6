import numpy as np


def clip(g, c, p, eps):
    f = g.dtype.type
    total = np.linalg.norm(g, p) if g.size else f(0)
    with np.errstate(divide="ignore"):
        factor = np.minimum(f(c) / (total + f(eps)), f(1))
    return {"clipped": factor * g, "total_norm": total}
