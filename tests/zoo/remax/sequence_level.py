import torch


def remax(rewards, greedy, mask):
    score = rewards.masked_fill(~mask, 0).sum(1, keepdim=True)
    returns = score.expand(-1, mask.shape[1])
    return returns - greedy.unsqueeze(1) * mask, returns
