import jax
import jax.numpy as jnp


def grpo(token_level_rewards, response_mask, group, *, eps):
    score = jnp.einsum("bt->b", token_level_rewards)
    ids = jnp.argmax(group[:, None] == group[None, :], axis=1)  # the first row of the same prompt stands for it
    B = score.shape[0]
    total = jax.ops.segment_sum
    n = total(jnp.ones_like(score), ids, B)[ids]
    d = score - total(score, ids, B)[ids] / n
    std = jnp.sqrt(total(d * d, ids, B)[ids] / jnp.maximum(n - 1, 1))
    d, std = jnp.where(n == 1, score, d), jnp.where(n == 1, 1.0, std)
    return (d / (std + eps))[:, None] * response_mask
