"""How adapters call code that was not written to be called: quietly, and in the dtype of the case.

Apart from the contracts because the same care is needed for every reference.
"""

from __future__ import annotations

import contextlib
import functools
import random
import warnings
from collections.abc import Iterator
from typing import Any

from annotator import pins


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Import and build third-party code without its warnings, and leave the random state alone.

    Importing TRL loads ``torch.compile``, which warns that parts of torch itself are deprecated; constructors seed
    every generator. Neither says anything about a contract.
    """
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


@functools.cache
def pinned(symbol: str) -> Any:
    """The module of a pin that a symbol lies in (`pins.load`), imported once and quietly."""
    with quiet():
        return pins.load(symbol)


CORE = "verl:verl.trainer.ppo.core_algos"
"""verl's module of losses and advantages, which most contracts call."""


@contextlib.contextmanager
def default_dtype(like: Any) -> Iterator[None]:
    """Make the floating dtype of the tensor ``like`` torch's default one.

    Code that divides integer counts, or makes tensors from Python floats, gets the default dtype from torch. With
    float64 inputs it would otherwise multiply by factors that are only right to float32.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(like.dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
