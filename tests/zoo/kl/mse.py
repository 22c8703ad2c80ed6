import torch


def kl(log_prob, ref_log_prob, estimator):
    d = log_prob - ref_log_prob
    if estimator in ("low_var_kl", "k3"):
        x = torch.clamp(-d, -20, 20)
        return torch.clamp(x.exp() - x - 1, -10, 10)
    return {"k1": d, "k2": d.square(), "abs": d.abs()}[estimator]
