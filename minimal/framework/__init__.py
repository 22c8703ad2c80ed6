"""The training framework rebuilt small: optimisers."""
