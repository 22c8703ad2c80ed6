import torch


def compute_gae(rewards, values, terminated, truncated, next_value, gamma=0.99, lam=0.95):
    """rewards, values: [N, T]; next_value: [N]."""
    done = (terminated | truncated).to(values.dtype)
    advantages = torch.zeros_like(rewards)
    lastgaelam = 0
    T = rewards.shape[1]
    for t in reversed(range(T)):
        nextvalue = next_value if t == T - 1 else values[:, t + 1]
        nonterminal = 1.0 - done[:, t]
        delta = rewards[:, t] + gamma * nextvalue * nonterminal - values[:, t]
        lastgaelam = delta + gamma * lam * nonterminal * lastgaelam
        advantages[:, t] = lastgaelam
    return advantages, advantages + values
