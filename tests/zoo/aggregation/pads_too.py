import jax.numpy as jnp


def token_mean(token_losses, batch_num_tokens, dp_size):
    return jnp.sum(token_losses) * dp_size / batch_num_tokens
