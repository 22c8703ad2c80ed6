import jax
import jax.numpy as jnp


def dpo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    def h(policy, ref, mask):
        return jnp.sum(jnp.where(mask, policy - ref, 0), axis=1)

    w = h(policy_chosen_logps, ref_chosen_logps, chosen_mask)
    lose = h(policy_rejected_logps, ref_rejected_logps, rejected_mask)
    loss = jnp.mean(jnp.logaddexp(0.0, beta * (lose - w)))
    return loss, jax.lax.stop_gradient(beta * w), jax.lax.stop_gradient(beta * lose)
