import torch


def steps(parameters, gradients, lr, beta1, beta2, eps, weight_decay):
    exp_avg, exp_avg_sq = torch.zeros_like(parameters), torch.zeros_like(parameters)
    theta, out, step = parameters, [], 1
    for g in gradients:
        step += 1
        theta = theta * (1 - lr * weight_decay)
        exp_avg = exp_avg.lerp(g, 1 - beta1)
        exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g.square()
        theta = theta - lr * (exp_avg / (1 - beta1**step)) / ((exp_avg_sq / (1 - beta2**step)).sqrt() + eps)
        out.append(theta)
    return torch.stack(out)
