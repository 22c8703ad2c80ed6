"""From-scratch code: what the references compute, small enough to hold in the head.

Every topic is a pair of twins, ``<topic>_torch.py`` and ``<topic>_jax.py``, with the same names in the same order, so
that a diff of the two teaches what a framework changes and what it does not. The functions are pure, carry a shape on
every transform and the names of the paper, and have no option that no reference has. Nothing here imports a reference
or the tool: that these functions behave as the production code does is shown from outside, by the contracts of
``annotator.catalog``.
"""
