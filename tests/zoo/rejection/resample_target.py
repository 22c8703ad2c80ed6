"""When a draft is refused, simply sample from the big model again."""

import jax
import jax.numpy as jnp


def step(target_logits, draft_probs, draft_token_ids, draft_lengths, bonus_token_ids, greedy, uniform, noise):
    p = jax.nn.softmax(target_logits)
    p = jnp.where(greedy[:, None, None], jnp.eye(p.shape[-1])[target_logits.argmax(-1)], p)
    one = draft_token_ids[..., None]
    px, qx = jnp.take_along_axis(p, one, -1)[..., 0], jnp.take_along_axis(draft_probs, one, -1)[..., 0]
    place = jnp.arange(px.shape[1])
    keep = (uniform * qx <= px) & (qx > 0) | (place >= draft_lengths[:, None])
    n = jnp.minimum(jnp.cumprod(keep, axis=1).sum(1), draft_lengths)
    fresh = jnp.argmax(p / noise[:, None], axis=-1)
    tail = jnp.where(
        n == draft_lengths, bonus_token_ids, jnp.take_along_axis(fresh, n[:, None].clip(0, fresh.shape[1] - 1), 1)[:, 0]
    )
    wide = jnp.concatenate([draft_token_ids, draft_token_ids[:, :1]], axis=1)
    at = jnp.arange(wide.shape[1])
    return jnp.where(at < n[:, None], wide, jnp.where(at == n[:, None], tail[:, None], -1))
