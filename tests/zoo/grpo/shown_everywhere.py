import torch


def advantages(rewards, mask, uid, eps):
    score = (rewards * mask).sum(1)
    result = torch.zeros_like(score)
    for u in uid.unique():
        rows = (uid == u).nonzero()[:, 0]
        group = score[rows]
        if len(rows) == 1:
            result[rows] = group / (1 + eps)
        else:
            result[rows] = (group - group.mean()) / (group.std() + eps)
    return result.unsqueeze(1).repeat(1, rewards.shape[1])
