import torch


class Trainer:
    @staticmethod
    def logp(values, mask):
        return (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def dpo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    w = Trainer.logp(policy_chosen_logps, chosen_mask) - Trainer.logp(ref_chosen_logps, chosen_mask)
    x = Trainer.logp(policy_rejected_logps, rejected_mask) - Trainer.logp(ref_rejected_logps, rejected_mask)
    return -torch.nn.functional.logsigmoid(beta * (w - x)).mean(), beta * w.detach(), beta * x.detach()
