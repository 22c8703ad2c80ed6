"""How far the policy has moved from the reference, told from one token at a time (PyTorch twin).

The divergence KL(pi || ref) = sum_y pi(y) (log pi(y) - log ref(y)) needs the whole vocabulary; a training step has the
one token y that was drawn from pi. With d = log pi(y) - log ref(y) (J. Schulman, Approximating KL divergence, 2020):

    k1 = d        k2 = d^2 / 2        k3 = exp(-d) - 1 + d        abs = |d|

k1 and k3 have the divergence as their mean over y ~ pi; k3 is never negative and varies less. Their *gradients* are
another matter. The gradient of a mean is not the mean of the gradients, since y is drawn from what is being moved:

    mean of grad k1 = 0        mean of grad k2 = grad KL(pi || ref)        mean of grad k3 = grad KL(ref || pi)

so that k1 as a loss term teaches nothing of the reference, and k3 pulls on the other divergence. Either let the value
keep its estimator and the gradient be that of k2, or weigh the estimator by the importance ratio pi(y) / pi_drawn(y),
which is 1 and has a gradient. For the reward, where no gradient flows, none of this matters.

Axes: B sequences, T tokens; all in nats. ``log_prob`` may carry a gradient, ``ref_log_prob`` is a constant.
"""

from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Where verl holds log ref - log pi before the exponential, so that it cannot overflow."""

LARGEST_K3 = 10.0
"""Where verl holds k3 itself; beyond it there is no gradient either."""


def log_ratio(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """d = log pi(y) - log ref(y), [B, T] -> [B, T]; positive where the policy has come to like the token better."""
    return log_prob - ref_log_prob  # [B, T]


def low_variance_kl(log_ratio: Tensor, *, clamp: bool = False) -> Tensor:
    """k3 = exp(-d) - 1 + d, [B, T] -> [B, T]: k1 less a term whose mean is 0, exp(-d) - 1.

    ``clamp``: -d is held within 20 and the result within 10. For d far below 0 k3 is unbounded; held, it is a constant.
    """
    backwards = -log_ratio  # [B, T]
    if clamp:
        backwards = backwards.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)  # [B, T]
    kl = backwards.exp() - backwards - 1  # [B, T]
    return kl.clamp(-LARGEST_K3, LARGEST_K3) if clamp else kl  # [B, T]


def kl_estimate(log_ratio: Tensor, *, estimator: str = "k3") -> Tensor:
    """One of the estimators, [B, T] -> [B, T]: ``"k1"``, ``"abs"``, ``"k2"``, ``"k3"`` or ``"low_var_kl"``.

    The last is verl's name for its k3, which is clamped; TRL's is not.
    """
    if estimator == "k1":
        return log_ratio  # [B, T]
    if estimator == "abs":
        return log_ratio.abs()  # [B, T]
    if estimator == "k2":
        return log_ratio**2 / 2  # [B, T]
    return low_variance_kl(log_ratio, clamp=estimator == "low_var_kl")  # [B, T]


def straight_through(value: Tensor, slope: Tensor) -> Tensor:
    """The value of one with the gradient of the other, [B, T], [B, T] -> [B, T]."""
    return value.detach() + (slope - slope.detach())  # [B, T]


def importance_weighted(value: Tensor, log_prob: Tensor) -> Tensor:
    """value * pi(y) / pi_drawn(y) where pi_drawn is pi itself: only the gradient changes, [B, T], [B, T] -> [B, T]."""
    return value * (log_prob - log_prob.detach()).exp()  # [B, T]


def token_kl(
    log_prob: Tensor,
    ref_log_prob: Tensor,
    *,
    estimator: str = "k3",
    gradient: str = "own",
) -> Tensor:
    """The estimate at each token, [B, T], [B, T] -> [B, T].

    ``gradient``: ``"own"`` that of the estimator, ``"k2"`` that of k2 whatever the value is (verl's names that end in
    "+"), ``"importance"`` that of the estimator weighed by the ratio (TRL's bias correction, DeepSeek-V3.2). The second
    has the gradient of KL(pi || ref) as its mean, and so has the third for k1 and k3. ``estimator``: `kl_estimate`.
    """
    ratio = log_ratio(log_prob, ref_log_prob)  # [B, T]
    value = kl_estimate(ratio, estimator=estimator)  # [B, T]
    if gradient == "k2":
        return straight_through(value, kl_estimate(ratio, estimator="k2"))  # [B, T]
    if gradient == "importance":
        return importance_weighted(value, log_prob)  # [B, T]
    return value  # [B, T]
