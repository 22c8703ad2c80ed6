import torch
import torch.nn.functional as F


def unpaired(policy_logps, ref_logps, mask, policy_kl_logps, ref_kl_logps, kl_mask, desirable, beta):
    logratios = policy_logps.masked_fill(~mask, 0).sum(1) - ref_logps.masked_fill(~mask, 0).sum(1)
    with torch.no_grad():
        kl = (policy_kl_logps.masked_fill(~kl_mask, 0) - ref_kl_logps.masked_fill(~kl_mask, 0)).sum(1).mean()
    margin = beta * (logratios - kl.clamp(min=0))
    return -F.logsigmoid(torch.where(desirable, margin, -margin)).mean()
