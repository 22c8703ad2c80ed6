"""GAE: how rewards and a critic's values become advantages and returns (JAX twin).

Generalised advantage estimation (Schulman et al., arXiv 1506.02438, equations 11, 12 and 16) weighs all n-step
estimates of the advantage geometrically. With V the critic and V' the value of what follows,

    delta_t = r_t + gamma V'_t - V_t
    A_t     = delta_t + gamma lambda A_{t+1},        R_t = A_t + V_t

lambda = 0 leaves the one-step estimate delta_t (TD(0)), lambda = 1 the discounted rewards minus V_t (Monte Carlo).

What follows is not always the next column. Where an episode terminated nothing follows and V' is 0. Where it was
truncated (a time limit) the world went on unseen: V' is the value of the observation that was seen last, and the sum
is cut all the same, for the next column belongs to another episode. Slots whose mask is off (the words of a tool,
padding) are no steps: they are skipped, as if the columns around them adjoined.

Axes: B responses or environments, T steps. Values, rewards and returns are in reward units; whitened advantages have
no unit.

Both recursions run from right to left as a ``lax.scan`` over columns. ``whitened`` and ``masked`` are static:
``jax.jit(gae, static_argnames=("whitened", "masked"))``.
"""

import jax
import jax.numpy as jnp
from jax import Array


def following_values(
    values: Array,
    response_mask: Array,
    terminated: Array,
    truncated: Array,
    final_values: Array,
    last_values: Array,
) -> Array:
    """V'_t, the value of what follows each step, [B, T] -> [B, T].

    ``last_values`` [B] stands after the last column. ``final_values`` is read where ``truncated`` alone is set: an
    episode that terminated at its time limit has terminated.
    """

    def step(following: Array, column: tuple[Array, ...]) -> tuple[Array, Array]:
        value, real, ended, limited, final = column  # [B] each; following: V of the next real column
        at_limit = jnp.where(limited, final, following)
        return jnp.where(real, value, following), jnp.where(ended, 0.0, at_limit)

    columns = (values.T, response_mask.T, terminated.T, truncated.T, final_values.T)  # [T, B] each
    return jax.lax.scan(step, last_values, columns, reverse=True)[1].T  # [T, B] -> [B, T]


def td_errors(token_level_rewards: Array, values: Array, next_values: Array, *, gamma: float = 0.99) -> Array:
    """delta_t = r_t + gamma V'_t - V_t, [B, T] -> [B, T]."""
    return token_level_rewards + gamma * next_values - values  # [B, T]


def discounted_sums(
    deltas: Array,
    response_mask: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Array:
    """A_t = delta_t + gamma lambda A_{t+1}, cut after an episode's last step, [B, T] -> [B, T].

    A masked slot passes on what it gets: it holds the advantage of the next real column, or 0 after the last one.
    """

    def step(ahead: Array, column: tuple[Array, ...]) -> tuple[Array, Array]:
        delta, real, over = column  # [B] each; ahead: A of the next real column
        here = delta + gamma * lam * jnp.where(over, 0.0, ahead)
        ahead = jnp.where(real, here, ahead)
        return ahead, ahead

    columns = (deltas.T, response_mask.T, (terminated | truncated).T)  # [T, B] each
    return jax.lax.scan(step, jnp.zeros_like(deltas[:, 0]), columns, reverse=True)[1].T  # [T, B] -> [B, T]


def whiten(advantages: Array, response_mask: Array, *, eps: float = 1e-8, count_eps: float = 1e-8) -> Array:
    """(A - mean) / sqrt(var + eps), with the statistics of the real slots of the batch, [B, T] -> [B, T].

    The variance has Bessel's correction. ``count_eps`` is added to the number of slots where it divides a sum. With
    fewer than two slots there is no variance.
    """
    count = response_mask.sum().astype(advantages.dtype)  # []
    real = jnp.where(response_mask, advantages, 0.0)  # [B, T]
    mean = real.sum() / (count + count_eps)  # []
    squares = jnp.where(response_mask, (advantages - mean) ** 2, 0.0)  # [B, T]
    variance = squares.sum() / (count + count_eps) * count / (count - 1)  # []
    return (advantages - mean) * jax.lax.rsqrt(variance + eps)  # [B, T]


def lambda_returns(raw_advantages: Array, values: Array, response_mask: Array, *, masked: str = "carry") -> Array:
    """R_t = A_t + V_t, what the critic is taught, [B, T] -> [B, T]. ``masked`` as in `finished_advantages`."""
    returns = raw_advantages + values  # [B, T]
    return jnp.where(response_mask, returns, 0.0) if masked == "zero" else returns


def finished_advantages(
    raw_advantages: Array,
    response_mask: Array,
    *,
    whitened: bool = True,
    eps: float = 1e-8,
    count_eps: float = 1e-8,
    masked: str = "carry",
) -> Array:
    """The advantages as they leave, [B, T] -> [B, T].

    ``masked``: what masked slots hold. ``"carry"`` the value that they passed on, whitened as the others are, so that
    whoever uses it must mask it again; ``"zero"`` nothing.
    """
    advantages = raw_advantages
    if whitened:
        advantages = whiten(advantages, response_mask, eps=eps, count_eps=count_eps)
    return jnp.where(response_mask, advantages, 0.0) if masked == "zero" else advantages


def gae(
    token_level_rewards: Array,
    values: Array,
    response_mask: Array,
    terminated: Array,
    truncated: Array,
    final_values: Array,
    last_values: Array,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
    whitened: bool = True,
    eps: float = 1e-8,
    count_eps: float = 1e-8,
    masked: str = "carry",
) -> tuple[Array, Array]:
    """Advantages and returns, [B, T] each. Weights and targets, not paths for gradients: both are detached.

    The returns come of the advantages before whitening. Options as in `whiten` and `finished_advantages`.
    """
    next_values = following_values(values, response_mask, terminated, truncated, final_values, last_values)
    deltas = td_errors(token_level_rewards, values, next_values, gamma=gamma)
    raw = discounted_sums(deltas, response_mask, terminated, truncated, gamma=gamma, lam=lam)
    returns = lambda_returns(raw, values, response_mask, masked=masked)
    advantages = finished_advantages(raw, response_mask, whitened=whitened, eps=eps, count_eps=count_eps, masked=masked)
    return jax.lax.stop_gradient(advantages), jax.lax.stop_gradient(returns)
