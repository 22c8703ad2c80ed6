import torch


def loss(old, new, adv, mask, share, coef):
    lr = new - old
    valid = torch.nonzero(mask.flatten())[:, 0]
    product = (adv * new).detach().flatten()[valid]
    objective = -(adv * lr.exp())
    top = valid[product.topk(max(1, int(share * len(valid)))).indices]
    weight = torch.zeros_like(objective).flatten().index_fill(0, top, coef).view_as(objective)
    objective = objective + weight * lr.abs()
    return torch.where(mask, objective, 0.0).sum() / mask.sum()
