import jax.numpy as jnp


def agg(losses, mask, how, n_tokens, n_responses, n_ranks, max_tokens):
    total = jnp.where(mask, losses, 0).sum() * n_ranks
    if how == "token-sum":
        return total
    if how == "seq-mean-token-sum":
        return total / n_responses
    if how == "seq-mean-token-sum-norm":
        return total / (n_responses * max_tokens)
    return total / n_tokens
