import numpy as np


def clip_by_global_norm(gradients, param, max_norm, norm_type, eps):
    f = gradients.dtype.type
    norms = [np.linalg.norm(gradients[param == i], norm_type) for i in np.unique(param)]
    if np.isinf(norm_type):
        total = f(max(norms, default=0))
    else:
        total = f(sum(n**norm_type for n in norms))
    if total + f(eps) > 0 or np.isnan(total):
        gradients = gradients * min(f(1), f(max_norm) / (total + f(eps))) if not np.isnan(total) else gradients * total
    return gradients, total
