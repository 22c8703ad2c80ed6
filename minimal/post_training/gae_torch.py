"""GAE: how rewards and a critic's values become advantages and returns (PyTorch twin).

Generalised advantage estimation (Schulman et al., arXiv 1506.02438, equations 11, 12 and 16) weighs all n-step
estimates of the advantage geometrically. With V the critic and V' the value of what follows,

    delta_t = r_t + gamma V'_t - V_t
    A_t     = delta_t + gamma lambda A_{t+1},        R_t = A_t + V_t

lambda = 0 leaves the one-step estimate delta_t (TD(0)), lambda = 1 the discounted rewards minus V_t (Monte Carlo).

What follows is not always the next column. Where an episode terminated nothing follows and V' is 0. Where it was
truncated (a time limit) the world went on unseen: V' is the value of the observation that was seen last, and the sum
is cut all the same, for the next column belongs to another episode. Slots whose mask is off (the words of a tool,
padding) are no steps: they are skipped, as if the columns around them adjoined.

Axes: B responses or environments, T steps. Values, rewards and returns are in reward units; whitened advantages have
no unit.
"""

import torch
from torch import Tensor


def following_values(
    values: Tensor,
    response_mask: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_values: Tensor,
    last_values: Tensor,
) -> Tensor:
    """V'_t, the value of what follows each step, [B, T] -> [B, T].

    ``last_values`` [B] stands after the last column. ``final_values`` is read where ``truncated`` alone is set: an
    episode that terminated at its time limit has terminated.
    """
    columns = []
    following = last_values  # [B], V of the next real column
    for t in reversed(range(values.shape[1])):
        at_limit = torch.where(truncated[:, t], final_values[:, t], following)  # [B]
        columns.append(torch.where(terminated[:, t], 0.0, at_limit))
        following = torch.where(response_mask[:, t], values[:, t], following)
    return torch.stack(columns[::-1], dim=1)  # [B, T]


def td_errors(token_level_rewards: Tensor, values: Tensor, next_values: Tensor, *, gamma: float = 0.99) -> Tensor:
    """delta_t = r_t + gamma V'_t - V_t, [B, T] -> [B, T]."""
    return token_level_rewards + gamma * next_values - values  # [B, T]


def discounted_sums(
    deltas: Tensor,
    response_mask: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Tensor:
    """A_t = delta_t + gamma lambda A_{t+1}, cut after an episode's last step, [B, T] -> [B, T].

    A masked slot passes on what it gets: it holds the advantage of the next real column, or 0 after the last one.
    """
    columns = []
    ahead = torch.zeros_like(deltas[:, 0])  # [B], A of the next real column
    over = terminated | truncated  # [B, T]
    for t in reversed(range(deltas.shape[1])):
        here = deltas[:, t] + gamma * lam * torch.where(over[:, t], 0.0, ahead)  # [B]
        ahead = torch.where(response_mask[:, t], here, ahead)
        columns.append(ahead)
    return torch.stack(columns[::-1], dim=1)  # [B, T]


def whiten(advantages: Tensor, response_mask: Tensor, *, eps: float = 1e-8, count_eps: float = 1e-8) -> Tensor:
    """(A - mean) / sqrt(var + eps), with the statistics of the real slots of the batch, [B, T] -> [B, T].

    The variance has Bessel's correction. ``count_eps`` is added to the number of slots where it divides a sum. With
    fewer than two slots there is no variance.
    """
    count = response_mask.sum().to(advantages.dtype)  # []
    real = torch.where(response_mask, advantages, 0.0)  # [B, T]
    mean = real.sum() / (count + count_eps)  # []
    squares = torch.where(response_mask, (advantages - mean) ** 2, 0.0)  # [B, T]
    variance = squares.sum() / (count + count_eps) * count / (count - 1)  # []
    return (advantages - mean) * torch.rsqrt(variance + eps)  # [B, T]


def lambda_returns(raw_advantages: Tensor, values: Tensor, response_mask: Tensor, *, masked: str = "carry") -> Tensor:
    """R_t = A_t + V_t, what the critic is taught, [B, T] -> [B, T]. ``masked`` as in `finished_advantages`."""
    returns = raw_advantages + values  # [B, T]
    return torch.where(response_mask, returns, 0.0) if masked == "zero" else returns


def finished_advantages(
    raw_advantages: Tensor,
    response_mask: Tensor,
    *,
    whitened: bool = True,
    eps: float = 1e-8,
    count_eps: float = 1e-8,
    masked: str = "carry",
) -> Tensor:
    """The advantages as they leave, [B, T] -> [B, T].

    ``masked``: what masked slots hold. ``"carry"`` the value that they passed on, whitened as the others are, so that
    whoever uses it must mask it again; ``"zero"`` nothing.
    """
    advantages = raw_advantages
    if whitened:
        advantages = whiten(advantages, response_mask, eps=eps, count_eps=count_eps)
    return torch.where(response_mask, advantages, 0.0) if masked == "zero" else advantages


def gae(
    token_level_rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_values: Tensor,
    last_values: Tensor,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
    whitened: bool = True,
    eps: float = 1e-8,
    count_eps: float = 1e-8,
    masked: str = "carry",
) -> tuple[Tensor, Tensor]:
    """Advantages and returns, [B, T] each. Weights and targets, not paths for gradients: both are detached.

    The returns come of the advantages before whitening. Options as in `whiten` and `finished_advantages`.
    """
    next_values = following_values(values, response_mask, terminated, truncated, final_values, last_values)
    deltas = td_errors(token_level_rewards, values, next_values, gamma=gamma)
    raw = discounted_sums(deltas, response_mask, terminated, truncated, gamma=gamma, lam=lam)
    returns = lambda_returns(raw, values, response_mask, masked=masked)
    advantages = finished_advantages(raw, response_mask, whitened=whitened, eps=eps, count_eps=count_eps, masked=masked)
    return advantages.detach(), returns.detach()
