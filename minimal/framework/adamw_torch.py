"""One AdamW step, and K of them in a row, on a flat vector of parameters.

Apart from an optimiser class because the rule is a pure function of parameters, gradient and state: every tensor of
a model takes the same elementwise step, so that one flat vector says it all.

    P  number of parameters         K  number of steps         t = 1..K  the step, counted from 1

Names of the papers: m (first moment, ``exp_avg``), v (second moment, ``exp_avg_sq``), v_max (its running
maximum, AMSGrad); ``lr`` is their alpha. Twin of `adamw_jax`: same names, same order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class State(NamedTuple):
    """What the optimiser carries from step to step.

    Attributes:
        exp_avg: [P] m, in units of the gradient.
        exp_avg_sq: [P] v, in units of the gradient squared.
        max_exp_avg_sq: [P] v_max; stays 0 without AMSGrad.
    """

    exp_avg: Tensor
    exp_avg_sq: Tensor
    max_exp_avg_sq: Tensor


class Correction(NamedTuple):
    """Bias corrections of one step; both moments start at 0 and are too small at first.

    Attributes:
        first: ``1 - beta1^t``.
        second: ``1 - beta2^t``.
    """

    first: Tensor
    second: Tensor


def initial_state(parameters: Tensor) -> State:
    """All moments 0, each of the shape [P] of ``parameters``."""
    zeros = torch.zeros_like(parameters)
    return State(zeros, zeros, zeros)


def corrections(beta1: float, beta2: float, steps: int, dtype: torch.dtype) -> Correction:
    """``1 - beta^t`` for t = 1..K, computed in float64 and rounded last.

    In float32 ``1 - 0.999`` is off by 5e-5 of itself, which would be the error of the first updates.

    Args:
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        steps: K.
        dtype: of the parameters.

    Returns:
        `Correction` of two [K] arrays.
    """
    t = torch.arange(1, steps + 1, dtype=torch.float64)  # [K]
    return Correction((1 - beta1**t).to(dtype), (1 - beta2**t).to(dtype))


def update_moments(gradient: Tensor, state: State, beta1: float, beta2: float, amsgrad: bool) -> State:
    """Exponential moving averages of the gradient and of its square.

    ``m <- m + (1 - beta1) (g - m)``; ``v <- beta2 v + (1 - beta2) g^2``; with AMSGrad ``v_max <- max(v_max, v)``, of
    the raw v, before its bias is corrected.

    Args:
        gradient: [P] g.
        state: the state before.
        beta1: decay of m.
        beta2: decay of v.
        amsgrad: keep the maximum.

    Returns:
        The state after.

    Source: Kingma and Ba, Adam, arXiv 1412.6980, algorithm 1; Reddi et al., On the Convergence of Adam and Beyond,
    arXiv 1904.09237, algorithm 2.
    """
    m = state.exp_avg + (1 - beta1) * (gradient - state.exp_avg)  # [P]
    v = beta2 * state.exp_avg_sq + (1 - beta2) * gradient**2  # [P]
    v_max = torch.maximum(state.max_exp_avg_sq, v) if amsgrad else state.max_exp_avg_sq  # [P]
    return State(m, v, v_max)


def adamw_step(
    parameters: Tensor,
    gradient: Tensor,
    state: State,
    correction: Correction,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
) -> tuple[Tensor, State]:
    """Decay the parameters, then move them against the corrected first moment, scaled by the second.

    ``theta <- theta (1 - lr lambda) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)``

    The decay is decoupled: it never enters m or v. It is scaled by ``lr``, as everywhere in PyTorch, where the paper
    scales it by the schedule alone. ``eps`` stands outside the root and after the correction.

    Args:
        parameters: [P] theta.
        gradient: [P] g.
        state: the state before the step.
        correction: of this step, two numbers.
        lr: learning rate, at least 0.
        beta1: decay of m.
        beta2: decay of v.
        eps: in units of the gradient.
        weight_decay: lambda, at least 0.
        amsgrad: use v_max in place of v.
        maximize: climb instead of descend.

    Returns:
        Parameters [P] and state after the step.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, arXiv 1711.05101, algorithm 2;
    torch:torch.optim.adam._single_tensor_adam.
    """
    state = update_moments(-gradient if maximize else gradient, state, beta1, beta2, amsgrad)
    parameters = parameters * (1 - lr * weight_decay)  # [P]
    v = state.max_exp_avg_sq if amsgrad else state.exp_avg_sq  # [P]
    denominator = v.sqrt() / correction.second**0.5 + eps  # [P]
    return parameters - lr / correction.first * (state.exp_avg / denominator), state


def adamw_trajectory(
    parameters: Tensor,
    gradients: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    amsgrad: bool,
    maximize: bool,
) -> tuple[Tensor, State]:
    """K steps from rest on given gradients.

    Args:
        parameters: [P] at the start.
        gradients: [K, P], a row for each step.
        lr: as in `adamw_step`, like all that follow.
        beta1: decay of m.
        beta2: decay of v.
        eps: in units of the gradient.
        weight_decay: lambda.
        amsgrad: use v_max in place of v.
        maximize: climb instead of descend.

    Returns:
        Parameters after each step [K, P], and the `State` after each, every field [K, P].
    """
    state, history = initial_state(parameters), []
    factors = corrections(beta1, beta2, len(gradients), gradients.dtype)  # [K] each
    for gradient, correction in zip(gradients, map(Correction, *factors), strict=True):
        parameters, state = adamw_step(
            parameters, gradient, state, correction, lr, beta1, beta2, eps, weight_decay, amsgrad, maximize
        )
        history.append((parameters, *state))
    values = [torch.stack(column) for column in zip(*history, strict=True)]  # 4 of [K, P]
    return values[0], State(*values[1:])
