"""ReMax: the reward of the greedy reply is what a sampled one has to beat (PyTorch twin).

REINFORCE needs a baseline that does not depend on what was sampled. ReMax (Li et al., arXiv 2310.10505, section 3)
takes the reward of the reply that greedy decoding gives to the same prompt, at the price of one more generation and
instead of a critic. With r_s the rewards of a reply's tokens, b the greedy reply's reward and t a token,

    R_t = sum over s >= t of r_s,        A_t = R_t - b

Where the reward comes with the last token, as in the paper, R_t is the same for all of them.

Axes: B responses, T padded response length. All quantities are in reward units.
"""

import torch
from torch import Tensor


def rewards_to_go(token_level_rewards: Tensor, response_mask: Tensor) -> Tensor:
    """R_t, the rewards of token t and all later ones, [B, T] -> [B, T]. Rewards of masked slots do not count."""
    real = torch.where(response_mask, token_level_rewards, 0.0)  # [B, T]
    return real.flip(-1).cumsum(dim=-1).flip(-1)  # [B, T]


def less_baseline(returns: Tensor, reward_baselines: Tensor, response_mask: Tensor) -> Tensor:
    """A_t = R_t - b at real tokens, R_t elsewhere, [B, T] -> [B, T]."""
    return returns - torch.where(response_mask, reward_baselines[:, None], 0.0)  # [B, T]


def remax_advantages(
    token_level_rewards: Tensor, reward_baselines: Tensor, response_mask: Tensor, *, masked: str = "carry"
) -> tuple[Tensor, Tensor]:
    """Advantages and returns, [B, T] each. Weights, not paths for gradients: both are detached.

    ``reward_baselines`` [B] is the reward of the greedy reply to each row's prompt. ``masked``: what masked slots hold,
    ``"carry"`` the rewards yet to come (nothing after the last token), ``"zero"`` nothing anywhere.
    """
    returns = rewards_to_go(token_level_rewards, response_mask)  # [B, T]
    advantages = less_baseline(returns, reward_baselines, response_mask)  # [B, T]
    if masked == "zero":
        advantages, returns = (torch.where(response_mask, item, 0.0) for item in (advantages, returns))
    return advantages.detach(), returns.detach()
