import torch
import torch.nn.functional as F


class RPO:
    def __call__(self, batch):
        raise NotImplementedError

    def loss(self, pi_w, pi_l, ref_w, ref_l, m_w, m_l, beta, alpha):
        keep = torch.stack([m_w, m_l])
        pi, ref = torch.stack([pi_w, pi_l]), torch.stack([ref_w, ref_l])
        apart = (pi - ref).masked_fill(~keep, 0)
        reward = beta * torch.einsum("sbt->sb", apart)
        loss = F.binary_cross_entropy_with_logits(reward[0] - reward[1], torch.ones_like(reward[0]))
        tokens = pi_w[m_w]
        if alpha:
            loss = loss - alpha * tokens.sum() / tokens.numel()
        return loss, reward[0].detach(), reward[1].detach()
