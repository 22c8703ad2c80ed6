"""Where things lie: the checkout the tool works on, or what an installed wheel carries, and the user's cache.

Apart from the rest so that every package agrees on the places without knowing each other. In a checkout everything
that is written stays inside it, except the fetched trees, which all checkouts share in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from annotator.errors import WorkspaceError

CARRIED = Path(__file__).parent / "_carried"
"""What a wheel carries of the checkout: the lock, the readings, the proofs."""


@dataclass(frozen=True)
class Workspace:
    """The places of one checkout, or of an installed wheel.

    Attributes:
        root: the checkout's folder, or the carried folder of a wheel.
        cache: the user's cache; artifacts and unpacked trees live there. ``ANNOTATOR_CACHE`` moves it.
        state: where what is derived from the pins is written (links to trees, the index).
    """

    root: Path
    cache: Path
    state: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Workspace:
        """The nearest folder with a lock upwards from ``start`` (default: ``ANNOTATOR_ROOT``, else the working folder).

        Raises:
            WorkspaceError: no checkout is found and no wheel carries the lock.
        """
        given = start or os.environ.get("ANNOTATOR_ROOT")
        folder = Path(given or Path.cwd()).resolve()
        usual = platformdirs.user_cache_dir("annotated-rl-stack", appauthor=False)
        cache = Path(os.environ.get("ANNOTATOR_CACHE") or usual)
        for candidate in (folder, *folder.parents):
            if (candidate / "vendored_refs" / "pins.toml").is_file():
                return cls(root=candidate, cache=cache, state=candidate / "vendored_refs")
        if not given and (CARRIED / "vendored_refs" / "pins.toml").is_file():
            return cls(root=CARRIED, cache=cache, state=cache / "state" / _brief_digest(CARRIED))
        editable = Path(__file__).parents[1]
        if not given and (editable / "vendored_refs" / "pins.toml").is_file():
            return cls(root=editable, cache=cache, state=editable / "vendored_refs")
        raise WorkspaceError(
            str(folder),
            expected="a folder with vendored_refs/pins.toml, here or above",
            found="none",
            remedy="run inside a checkout, or set ANNOTATOR_ROOT to one",
        )

    @property
    def is_carried(self) -> bool:
        """Whether it is what a wheel carries; nothing may be written there."""
        return self.root == CARRIED

    def ask_for_checkout(self, what: str) -> None:
        """Refuses what only makes sense in a checkout.

        Raises:
            WorkspaceError: this is an installed wheel.
        """
        if self.is_carried:
            remedy = "run inside a checkout, or set ANNOTATOR_ROOT to one"
            raise WorkspaceError(what, expected="a checkout to write to", found="an installed wheel", remedy=remedy)

    @property
    def lock(self) -> Path:
        """``pins.toml``, the lock."""
        return self.root / "vendored_refs" / "pins.toml"

    @property
    def readings(self) -> Path:
        """The folder of the readings."""
        return self.root / "walkthroughs"

    @property
    def anchors(self) -> Path:
        """``anchors.lock``, the redundant form of every anchor."""
        return self.readings / "anchors.lock"

    @property
    def proofs(self) -> Path:
        """The folder of the recorded proofs, one file a device."""
        return self.root / "tests" / "proofs"

    @property
    def index(self) -> Path:
        """The SQLite file of the index."""
        return self.state / "index.sqlite"

    @property
    def site(self) -> Path:
        """Where the built site goes."""
        return self.root / "site"

    def tree(self, pin: str) -> Path:
        """The unpacked tree of a pin (a link into the cache, made by ``annotator fetch``). It may not exist yet."""
        return self.state / pin

    def place(self, pin: str, path: str) -> str:
        """A file of a pin as it is shown: from the checkout's root, or in full where there is no checkout."""
        return f"vendored_refs/{pin}/{path}" if not self.is_carried else str(self.tree(pin) / path)


def _brief_digest(root: Path) -> str:
    """Of the lock: wheels with other pins, all of one user, have other links and another index."""
    return hashlib.sha256((root / "vendored_refs" / "pins.toml").read_bytes()).hexdigest()[:12]
