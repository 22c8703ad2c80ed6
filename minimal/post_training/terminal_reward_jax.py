"""Terminal reward: the score of a response becomes the reward of its last token (JAX twin).

A judge or a verifier scores whole responses; GAE and rewards to go want a reward at every token. The score goes to the
last token, for it is the one that completes what was judged:

    r_t = score if t is the last token of the response, else 0

One slot further lies the padding. Nothing that is masked takes part in a loss, so a reward there is lost, or comes back
through the value of a slot that nobody trained.

Axes: B responses, T padded response length. Scores and rewards are in reward units.

``place`` is static: ``jax.jit(terminal_rewards, static_argnames="place")``.
"""

import jax.numpy as jnp
from jax import Array


def last_places(response_mask: Array, *, place: str = "count") -> Array:
    """The column of each response's last token, [B, T] -> [B].

    ``place``: how it is found. ``"count"`` is the number of tokens less one, right where they stand at the left and
    without holes; ``"last"`` is the last column whose mask is on. A response without tokens has no last one: the first
    rule gives the last column then, the second the first.
    """
    width = response_mask.shape[1]
    if place == "count":
        return (response_mask.sum(axis=1) - 1) % width  # [B]
    columns = jnp.arange(width)  # [T]
    return jnp.where(response_mask, columns, 0).max(axis=1)  # [B]


def placed(scores: Array, places: Array, response_mask: Array) -> Array:
    """The score of each row in its column, 0 elsewhere, [B], [B] -> [B, T]."""
    columns = jnp.arange(response_mask.shape[1])  # [T]
    return jnp.where(columns == places[:, None], scores[:, None], 0.0)  # [B, T]


def terminal_rewards(scores: Array, response_mask: Array, *, place: str = "count") -> Array:
    """Token rewards out of the scores of responses, [B] -> [B, T]. ``place`` as in `last_places`."""
    return placed(scores, last_places(response_mask, place=place), response_mask)  # [B, T]
