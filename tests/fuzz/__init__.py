"""Inputs that nobody wrote, against what the index promises of any input: `python -m tests.fuzz`."""
