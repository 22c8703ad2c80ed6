import jax
import jax.numpy as jnp


def one(z, prompt, output, temperature, k, top_p, min_p, presence, frequency, repetition):
    V = z.shape[0]
    n = (output[:, None] == jnp.arange(V)).sum(0)
    seen = (n > 0) | (prompt[:, None] == jnp.arange(V)).any(0)
    z = jnp.where(seen, jnp.where(z > 0, z / repetition, z * repetition), z) - frequency * n - presence * (n > 0)
    greedy = temperature < 1e-5
    scaled = z / jnp.where(greedy, 1.0, temperature)
    low = (jnp.exp(scaled - scaled.max()) < min_p) | (scaled < jnp.sort(scaled)[V - k])
    left = jnp.where(low, -jnp.inf, scaled)
    p = jax.nn.softmax(left)
    ahead = ((left[None, :] > left[:, None]) * p[None, :]).sum(1)  # of all that are likelier
    tied = ((left[None, :] == left[:, None]) & (jnp.arange(V)[None, :] < jnp.arange(V)[:, None])) * p[None, :]
    left = jnp.where((ahead + tied.sum(1) >= top_p) & (top_p < 1), -jnp.inf, left)
    final = jnp.where(greedy, z, left)
    logp = jax.nn.log_softmax(final)
    return final > -jnp.inf, logp, jnp.where(greedy, jax.nn.one_hot(z.argmax(), V, dtype=z.dtype), jnp.exp(logp))


def sample(
    logits,
    prompt_token_ids,
    output_token_ids,
    temperature,
    top_k,
    top_p,
    min_p,
    presence_penalties,
    frequency_penalties,
    repetition_penalties,
):
    return jax.vmap(one)(
        logits,
        prompt_token_ids,
        output_token_ids,
        temperature,
        top_k,
        top_p,
        min_p,
        presence_penalties,
        frequency_penalties,
        repetition_penalties,
    )
