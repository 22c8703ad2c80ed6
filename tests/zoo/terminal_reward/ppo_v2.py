import torch


def rewards(scores, mask):
    sequence_lengths = mask.long().sum(1) - 1
    sequence_lengths_p1 = sequence_lengths + 1
    out = torch.zeros(mask.shape, dtype=scores.dtype)
    actual_end = torch.where(sequence_lengths_p1 < out.size(1), sequence_lengths_p1, sequence_lengths)
    actual_start = torch.arange(out.size(0))
    out[actual_start, actual_end] += scores
    return out
