import numpy as np


def positions(mask):
    out = np.zeros(mask.shape, dtype=np.int64)
    for i, row in enumerate(mask):
        start = int(row.argmax()) if row.any() else len(row)
        out[i, start:] = np.arange(len(row) - start)
    return out
