import torch


def fit(theta, grads, lr, beta1, beta2, eps, wd):
    mean, square = torch.zeros_like(theta), torch.zeros_like(theta)
    path = []
    for grad in grads:
        mean = mean + (1 - beta1) * (grad - mean)
        square = square + (1 - beta2) * (grad**2 - square)
        theta = theta - wd * theta
        theta = theta - lr * mean / (square.sqrt() + eps)
        path.append(theta)
    return torch.stack(path)
