"""Post-training: how rewards and preferences become gradients. One topic a pair of twins (torch and JAX)."""
