"""Two steps of torch's AdamW, by the loop over tensors and by the fused lists, on a matrix and a vector.

The gradient of the matrix is 100 times that of the vector: after one step both have moved by the same lr.
"""

from typing import Any

from annotator import pins

SIZES = ({"N": 2, "M": 3, "K": 4}, {"N": 5, "M": 7, "K": 9})


def run(N: int, M: int, K: int) -> Any:
    """Both ways from equal parameters."""
    import torch

    adamw = pins.load("torch:torch.optim.adamw").AdamW
    for foreach in (False, True):
        parameters = [torch.ones(N, M), torch.ones(K)]
        optimiser = adamw(parameters, lr=1e-3, weight_decay=0.1, foreach=foreach)
        for _ in range(2):
            for parameter, scale in zip(parameters, (100.0, 1.0), strict=True):
                parameter.grad = scale * torch.linspace(0.5, 1.5, parameter.numel()).reshape(parameter.shape)
            optimiser.step()
