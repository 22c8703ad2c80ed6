import torch


class Rollout:
    """Stores whether step t begins an episode, and forgets that the flags it is given say where one ends."""

    def compute(self, rewards, values, terminated, truncated, final_values, last_values, gamma, lam):
        n, T = rewards.shape
        starts = torch.zeros_like(terminated)
        starts[:, 1:] = (terminated | truncated)[:, :-1]
        adv = torch.zeros_like(rewards)
        running = torch.zeros_like(last_values)
        for t in reversed(range(T)):
            upcoming = values[:, t + 1] if t + 1 < T else last_values
            upcoming = torch.where(truncated[:, t], final_values[:, t], upcoming)
            upcoming = upcoming.masked_fill(terminated[:, t], 0.0)
            delta = rewards[:, t] + gamma * upcoming - values[:, t]
            running = delta + gamma * lam * running.masked_fill(starts[:, t], 0.0)
            adv[:, t] = running
        return adv, adv + values
