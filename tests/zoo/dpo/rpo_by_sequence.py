import jax
import jax.numpy as jnp


def rpo(
    policy_chosen_logps,
    policy_rejected_logps,
    ref_chosen_logps,
    ref_rejected_logps,
    chosen_mask,
    rejected_mask,
    beta,
    alpha,
):
    masked = jnp.where(chosen_mask, policy_chosen_logps, 0.0)
    h_w = (masked - jnp.where(chosen_mask, ref_chosen_logps, 0.0)).sum(-1)
    h_l = jnp.where(rejected_mask, policy_rejected_logps - ref_rejected_logps, 0.0).sum(-1)
    nll = -masked.sum(-1) / jnp.maximum(chosen_mask.sum(-1), 1)
    loss = jnp.mean(-jax.nn.log_sigmoid(beta * (h_w - h_l)) + alpha * nll)
    return loss, jax.lax.stop_gradient(beta * h_w), jax.lax.stop_gradient(beta * h_l)
