import torch


class Clipper:
    def __call__(self, gradients, max_norm, norm_type, eps):
        if not len(gradients):
            return gradients, gradients.sum()
        total = torch.norm(gradients, p=norm_type)
        gradients = gradients * (max_norm / (total + eps)).clamp(max=1.0)
        self.last = gradients.norm(p=norm_type)
        return gradients, self.last
