import torch


def per_token_kl(per_token_logps, ref_per_token_logps):
    # Schulman's k3, as in GRPO
    delta = per_token_logps - ref_per_token_logps
    return torch.exp(delta) - delta - 1
