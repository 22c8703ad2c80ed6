import jax.numpy as jnp


def dpo(
    policy_chosen_logps, policy_rejected_logps, ref_chosen_logps, ref_rejected_logps, chosen_mask, rejected_mask, beta
):
    h_w = jnp.where(chosen_mask, policy_chosen_logps - ref_chosen_logps, 0.0).sum(axis=-1)
    h_l = jnp.where(rejected_mask, policy_rejected_logps - ref_rejected_logps, 0.0).sum(axis=-1)
    return jnp.logaddexp(0.0, -beta * (h_w - h_l)).sum()
