import torch


def k3(log_prob, ref_log_prob):
    x = ref_log_prob - log_prob
    return torch.clamp(torch.exp(x) - x - 1, max=10.0)
