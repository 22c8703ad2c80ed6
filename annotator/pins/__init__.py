"""Where source comes from: the lock, fetching, safe unpacking, and import of references from their pinned bytes.

The first link of the chain. Everything later reads trees; only this package knows artifacts, digests and networks.
"""

from __future__ import annotations

from annotator.pins import trees
from annotator.pins.fetching import Fetched, fetch, pin_of, relock, tree
from annotator.pins.loading import load
from annotator.pins.lock import Pin, read_lock
from annotator.pins.progress import Progress
from annotator.workspace import Workspace

__all__ = ["Fetched", "Pin", "Progress", "fetch", "load", "pin_of", "read_lock", "relock", "tree", "verify"]


def verify(workspace: Workspace, name: str) -> None:
    """Hash every file of a pin's tree and compare with the lock.

    Raises:
        PinError: no such pin, or it was not fetched.
        DigestError: a file is changed, missing or extra; the message names the first.
    """
    trees.verify(workspace, pin_of(workspace, name))
