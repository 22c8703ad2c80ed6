import torch


def advantages(token_level_rewards, response_mask, group, eps):
    """Rows come prompt after prompt, as our sampler yields them."""
    scores = token_level_rewards.sum(-1)
    per_prompt = int((group == group[0]).sum())
    chunks = []
    for chunk in scores.split(per_prompt):
        if len(chunk) == 1:
            chunks.append(chunk / (1 + eps))
        else:
            chunks.append((chunk - chunk.mean()) / (chunk.std() + eps))
    return torch.cat(chunks)[:, None] * response_mask
