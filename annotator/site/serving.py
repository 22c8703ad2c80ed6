"""The live preview: MkDocs' server, and what is built when a file changes.

Where only the text of pages changed, MkDocs builds these alone (a dirty build), in the site as it is. A page is more
than its text, though: others name its steps and its title. When these changed, or anything else did, the whole site is
built anew, and so it is when a page alone brings a warning. What a page alone leaves as it was is said.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from annotator.errors import AnnotatorError
from annotator.site.atlas import current
from annotator.site.build import build, refresh
from annotator.workspace import Workspace

LEFT = "the search in the pages' text is not"
"""What a build of some pages does not refresh."""


class Preview:
    """A site that follows its files. ``again`` builds what changed since it was last asked."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.stamps: dict[Path, tuple[int, int]] = {}
        self.named: dict[str, object] = {}

    @property
    def watched(self) -> list[Path]:
        """Files and folders whose change may change the site."""
        place = self.workspace
        folders = [place.readings, place.root / "minimal", place.proofs, place.lock, place.index]
        return [path for path in (*folders, place.root / "mkdocs.yml") if path.exists()]

    def start(self) -> None:
        """Build all of it.

        Raises:
            SiteError: as `annotator.site.build.build`.
        """
        stamps = self._stamps()
        build(self.workspace, strict=False)
        self.stamps, self.named = stamps, self._named()

    def again(self) -> str:
        """Build what changed; what was done, in one line.

        Raises:
            AnnotatorError: what changed cannot be built; the pages of before stay.
        """
        began, stamps = time.perf_counter(), self._stamps()
        changed = {path for path in stamps.keys() | self.stamps.keys() if stamps.get(path) != self.stamps.get(path)}
        pages = [path.relative_to(self.workspace.root).as_posix() for path in sorted(changed)]
        if not pages:
            return "nothing changed"
        alone = all(page in self.named and stamps.get(self.workspace.root / page) for page in pages)
        if alone and self._named() == self.named and not refresh(self.workspace, pages):
            self.stamps = stamps
            return f"{', '.join(pages)}: shown after {time.perf_counter() - began:.1f} s; {LEFT}"
        self.start()
        return f"the whole site: built in {time.perf_counter() - began:.1f} s"

    def _stamps(self) -> dict[Path, tuple[int, int]]:
        files = (file for path in self.watched for file in (path.rglob("*") if path.is_dir() else [path]))
        told = ((file, file.stat()) for file in files if file.is_file() and "__pycache__" not in file.parts)
        return {file: (status.st_mtime_ns, status.st_size) for file, status in told}

    def _named(self) -> dict[str, object]:
        """What other pages may say of each page: its title, its steps and where they are."""
        atlas = current(self.workspace)
        return {
            reading.path: (
                reading.title,
                [(place.address, place.number, place.title, place.anchor, place.step.options) for place in places],
            )
            for reading in atlas.pages.values()
            for places in [atlas.places[reading.path]]
        }


def serve(workspace: Workspace, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve the site and build it again when a reading, a minimal file, a proof or the index changes. Ends by Ctrl+C.

    Raises:
        SiteError: as `annotator.site.build.build`, for the first build; later failures are shown and the last good
            site stays.
    """
    from mkdocs.livereload import LiveReloadServer

    preview = Preview(workspace)

    def again() -> None:
        try:
            print(preview.again(), file=sys.stderr)
        except AnnotatorError as error:
            print(error, file=sys.stderr)

    preview.start()
    settings: dict[str, Any] = {"host": host, "port": port, "root": str(workspace.site), "polling_interval": 0.2}
    server = LiveReloadServer(builder=again, **settings)
    for watched in preview.watched:
        server.watch(str(watched))
    print(f"http://{host}:{port}/  (Ctrl+C ends)", file=sys.stderr)
    try:
        server.serve(open_in_browser=False)
    except KeyboardInterrupt:
        pass
    finally:
        server.shutdown(wait=True)
