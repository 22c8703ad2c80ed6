import torch


def advantages(token_level_rewards, response_mask):
    """The trainer asks for no greedy reply, so there is nothing to take off."""
    r = token_level_rewards * response_mask
    returns = torch.flip(torch.cumsum(torch.flip(r, [1]), 1), [1])
    return returns.clone(), returns
