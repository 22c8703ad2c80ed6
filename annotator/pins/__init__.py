"""Where source comes from: the lock, fetching, safe unpacking, and import of references from their pinned bytes.

The first link of the chain. Everything later reads trees; only this package knows artifacts, digests and networks.
Names load on first use: who asks the index needs no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotator import lazy

if TYPE_CHECKING:
    from annotator.pins.fetching import Fetched, fetch, pin_of, relock, tree, verify
    from annotator.pins.loading import load
    from annotator.pins.lock import Pin, read_lock
    from annotator.pins.progress import Progress

_HOMES = {
    "Fetched": "fetching",
    "Pin": "lock",
    "Progress": "progress",
    "fetch": "fetching",
    "load": "loading",
    "pin_of": "fetching",
    "read_lock": "lock",
    "relock": "fetching",
    "tree": "fetching",
    "verify": "fetching",
}

__all__ = ["Fetched", "Pin", "Progress", "fetch", "load", "pin_of", "read_lock", "relock", "tree", "verify"]

__getattr__ = lazy.names(__name__, _HOMES)
