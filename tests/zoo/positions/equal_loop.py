import numpy as np


def position_ids(attention_mask):
    result = np.zeros(attention_mask.shape, dtype=np.int64)
    for row, out in zip(attention_mask, result, strict=True):
        seen = 0
        for t, real in enumerate(row):
            seen += int(real)
            out[t] = max(seen - 1, 0)
    return result
