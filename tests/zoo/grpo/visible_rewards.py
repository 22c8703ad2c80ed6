import torch


def advantages(token_level_rewards, response_mask, group, eps):
    score = (token_level_rewards * response_mask).sum(dim=-1)
    result = torch.zeros_like(score)
    for g in torch.unique(group):
        members = (group == g).nonzero().flatten()
        values = score[members]
        if len(members) > 1:
            result[members] = (values - values.mean()) / (values.std() + eps)
        else:
            result[members] = values / (1 + eps)
    return result[:, None] * response_mask
