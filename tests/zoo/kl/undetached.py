import torch


class Penalty:
    def __init__(self, cap=10.0):
        self.cap = cap

    def value(self, d, estimator):
        table = {
            "k1": lambda: d,
            "k2": lambda: d * d / 2,
            "abs": lambda: d.abs(),
            "low_var_kl": lambda: (torch.exp(torch.clamp(-d, -20, 20)) - 1 - torch.clamp(-d, -20, 20)).clamp(
                max=self.cap
            ),
        }
        return table[estimator]()

    def __call__(self, log_prob, ref_log_prob, estimator, gradient):
        d = log_prob - ref_log_prob
        value = self.value(d, estimator)
        if gradient == "k2":
            straight = self.value(d, "k2")
            value = value + straight - straight.detach()
        return value


def kl(log_prob, ref_log_prob, estimator, gradient):
    return Penalty()(log_prob, ref_log_prob, estimator, gradient)
