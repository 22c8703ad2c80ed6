"""What the tests of minimal code share: a topic's twins behind one face, arrays in and NumPy out, in float64."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

FRAMEWORKS = ("torch", "jax")


@dataclass(frozen=True)
class Twin:
    """One of the two modules of a topic."""

    module: ModuleType
    array: Callable[[Any], Any]
    wide: Callable[[], AbstractContextManager[Any]]

    def __call__(self, function: str, *arguments: Any, **options: Any) -> Any:
        """Call a function with NumPy arrays as the framework's own; the result is NumPy again, tuples included."""
        with self.wide():
            given = [self.array(np.asarray(argument)) for argument in arguments]
            result = getattr(self.module, function)(*given, **options)
            return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)


def twin(topic: str, framework: str) -> Twin:
    """The twin of ``post_training.grpo`` and so on, in ``torch`` or ``jax``."""
    module = importlib.import_module(f"minimal.{topic}_{framework}")
    if framework == "torch":
        import torch

        return Twin(module, torch.from_numpy, nullcontext)
    import jax

    return Twin(module, jax.numpy.asarray, lambda: jax.enable_x64(True))
