import jax
import jax.numpy as jnp


def kto(policy_logps, ref_logps, mask, policy_kl_logps, ref_kl_logps, kl_mask, good, beta):
    h = jnp.where(mask, policy_logps - ref_logps, 0).sum(1)
    kl = jnp.where(kl_mask, policy_kl_logps - ref_kl_logps, 0).sum(1)
    z = jax.lax.stop_gradient(kl.mean())
    sign = jnp.where(good, 1, -1)
    return jax.nn.sigmoid(-beta * sign * (h - z)).mean()
