import torch


class ORPO:
    def __init__(self, lam):
        self.lam = lam

    def average(self, logps, mask):
        return (logps * mask).sum(dim=1) / mask.sum(dim=1)

    def loss(self, policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask):
        w = self.average(policy_chosen_logps, chosen_mask)
        r = self.average(policy_rejected_logps, rejected_mask)
        log_odds = (w - r) - (torch.log(1 - torch.exp(w)) - torch.log(1 - torch.exp(r)))
        ratio = torch.nn.functional.logsigmoid(log_odds)
        sft = -(policy_chosen_logps * chosen_attention).sum() / chosen_attention.sum()
        return sft - self.lam * ratio.mean()
