"""Where source comes from: the lock, fetching, safe unpacking, and import of references from their pinned bytes.

The first link of the chain. Everything later reads trees; only this package knows artifacts, digests and networks.
"""

from annotator.pins.fetching import Fetched, fetch, pin_of, relock, tree
from annotator.pins.lock import Pin, read_lock
from annotator.pins.progress import Progress

__all__ = ["Fetched", "Pin", "Progress", "fetch", "pin_of", "read_lock", "relock", "tree"]
