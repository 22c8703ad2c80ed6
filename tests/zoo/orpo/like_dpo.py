import jax
import jax.numpy as jnp


def log1mexp(x):
    near = x > -0.7
    a = jnp.log(-jnp.expm1(jnp.where(near, x, -1.0)))
    b = jnp.log1p(-jnp.exp(jnp.where(near, -1.0, x)))
    return jnp.where(near, a, b)


def orpo(policy_chosen_logps, policy_rejected_logps, chosen_attention, chosen_mask, rejected_mask, lam):
    w = jnp.where(chosen_mask, policy_chosen_logps, 0).sum(1) / chosen_mask.sum(1)
    r = jnp.where(rejected_mask, policy_rejected_logps, 0).sum(1) / rejected_mask.sum(1)
    odds = w - r - (log1mexp(w) - log1mexp(r))
    sft = -jnp.where(chosen_attention, policy_chosen_logps, 0).sum() / chosen_attention.sum()
    return sft - jax.nn.log_sigmoid(lam * odds).mean()
