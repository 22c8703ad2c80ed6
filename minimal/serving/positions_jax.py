"""Position ids: where in its text each token of a padded batch stands (JAX twin).

A decoder with rotary or learned positions must be told that the first real token stands at 0. Prompts are padded on the
left for generation, so that a token's slot and its position differ by the padding of its row:

    position(t) = #{s < t : s is real}            for every real slot t.

With slots for positions every row but the longest is shifted. Under rotary embeddings, which only see differences, that
is nearly harmless, which is how it stays unnoticed; training on another layout than generation then gives other
log-probabilities for the same text. What a *padded* slot holds means nothing, and libraries differ in it.

Axes: B rows, T padded length. Positions are counts of tokens, from 0. ``padding`` chooses
code, so it is static under ``jax.jit``.
"""

import jax.numpy as jnp
from jax import Array


def tokens_up_to(attention_mask: Array) -> Array:
    """How many real tokens there are up to and including each slot, [B, T] -> [B, T].

    Counted in JAX's widest integers: a mask kept in eight bits must not be summed in them.
    """
    return attention_mask.astype(int).cumsum(axis=-1)  # [B, T]


def place(counts: Array, attention_mask: Array, *, padding: str = "held") -> Array:
    """From counts to positions, and something harmless where there is no token, [B, T], [B, T] -> [B, T].

    ``padding`` says what a padded slot holds: ``"held"`` the position of the last real token before it, 0 at the front
    (verl); ``"next"`` the position that the next real token would have (TRL's reward model); ``"one"`` 1 (verl, models
    with images); ``"zero"`` 0 (Transformers' generation).
    """
    if padding == "next":
        return counts - attention_mask.astype(counts.dtype)
    held = jnp.maximum(counts - 1, 0)  # [B, T]
    if padding == "held":
        return held
    return jnp.where(attention_mask, held, 1 if padding == "one" else 0)


def position_ids(attention_mask: Array, *, padding: str = "held") -> Array:
    """The position of every token; ``padding`` as in `place`, [B, T] bool -> [B, T] int."""
    return place(tokens_up_to(attention_mask), attention_mask, padding=padding)


def next_position(attention_mask: Array) -> Array:
    """The position of the token that generation appends to each row: its number of real tokens, [B, T] -> [B].

    Not the last position plus 1, which depends on what a padded slot holds.
    """
    return tokens_up_to(attention_mask)[:, -1]  # [B]
