"""Inference engines rebuilt small: what turns logits into the next token."""
