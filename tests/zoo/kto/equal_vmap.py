import jax
import jax.numpy as jnp


def drift(policy, ref, kept):
    return jnp.dot(jnp.where(kept, policy - ref, 0), kept.astype(policy.dtype))


def one(h, good, z, beta, up, down):
    sign = 2 * good.astype(h.dtype) - 1
    return jnp.where(good, up, down) * (1 - jnp.tanh(sign * beta * (h - z) / 2)) / 2


def batch_loss(
    policy_logps,
    ref_logps,
    lengthwise,
    policy_kl_logps,
    ref_kl_logps,
    kl_mask,
    desirable,
    beta,
    desirable_weight,
    undesirable_weight,
):
    h = jax.vmap(drift)(policy_logps, ref_logps, lengthwise)
    z = jax.lax.stop_gradient(jax.nn.relu(jax.vmap(drift)(policy_kl_logps, ref_kl_logps, kl_mask).mean()))
    rows = jax.vmap(one, in_axes=(0, 0, None, None, None, None))
    return rows(h, desirable, z, beta, desirable_weight, undesirable_weight).mean()
