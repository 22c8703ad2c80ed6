import torch


def position_ids(attention_mask):
    width = attention_mask.shape[-1]
    upto = torch.ones(width, width, dtype=torch.long).triu()
    ids = attention_mask.long() @ upto - 1
    ids[~attention_mask] = 1
    return ids
