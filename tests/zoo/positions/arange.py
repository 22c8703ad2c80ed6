import torch


def position_ids(attention_mask):
    batch, width = attention_mask.shape
    ids = torch.arange(width, device=attention_mask.device)
    return ids.unsqueeze(0).repeat(batch, 1)
