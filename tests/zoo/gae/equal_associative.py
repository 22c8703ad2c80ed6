import jax
import jax.numpy as jnp


def gae(rewards, values, terminated, truncated, final_values, last_values, *, gamma, lam):
    nxt = jnp.concatenate((values[:, 1:], last_values[:, None]), axis=1)
    nxt = jnp.where(truncated, final_values, nxt) * ~terminated
    delta = rewards + gamma * nxt - values
    keep = gamma * lam * (1.0 - (terminated | truncated).astype(values.dtype))

    def join(right, left):
        return left[0] * right[0], left[1] + left[0] * right[1]

    _, adv = jax.lax.associative_scan(join, (keep, delta), reverse=True, axis=1)
    return {"advantages": adv, "returns": adv + values}
