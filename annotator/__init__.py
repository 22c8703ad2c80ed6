"""The annotator: pins production RL code, indexes it, tells it in readings, and shows what behaves the same.

One way through: ``pins < index < readings < contracts < catalog < observations < site < cli``. A later link imports
earlier ones, never the other way; ``errors``, ``lazy`` and ``workspace`` lie below all of them. Nothing here imports
torch, jax or mkdocs at import time.
"""

__version__ = "0.1.0"
