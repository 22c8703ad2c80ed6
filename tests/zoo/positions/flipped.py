import torch


def positions(m):
    from_right = torch.flip(torch.cumsum(torch.flip(m.long(), [1]), 1), [1])
    return from_right.clamp_min(1)  # starts at one, as the table does
