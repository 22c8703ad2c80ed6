"""Where things lie: the checkout the tool works on, or what an installed wheel carries, and the user's cache.

Apart from the rest so that every package agrees on the places without knowing each other. In a checkout everything
that is written stays inside it, except the fetched trees, which all checkouts share in the user's cache.
"""

from __future__ import annotations

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
        for carried in (CARRIED, Path(__file__).parents[1]):
            if not given and (carried / "vendored_refs" / "pins.toml").is_file():
                return cls(root=carried, cache=cache, state=cache / "state")
        raise WorkspaceError(
            str(folder),
            expected="a folder with vendored_refs/pins.toml, here or above",
            found="none",
            remedy="run inside a checkout, or set ANNOTATOR_ROOT to one",
        )

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
