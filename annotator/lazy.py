"""Public names of a package that load on first use, so that who needs one of them does not pay for all.

Below all packages, like ``errors``: three of them offer much and are imported for little.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__``: ``homes`` tells in which module of the package each public name lives.

    A name that is its own home is that module.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    return load
