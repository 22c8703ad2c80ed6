"""Files of a git repository at one commit, only those of interest.

Apart from the registry because git is another protocol with its own dangers: hooks, filters, links and transports that
run commands. None of them is let in.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from annotator.errors import DigestError, FetchError
from annotator.pins.lock import FORGE, Pin
from annotator.pins.unpack import Writer

if TYPE_CHECKING:
    from git import Repo

TIMEOUT = 1800
_SAFE = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:https:ssh",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""No questions, no transport that runs a command, no filters of the user's configuration."""


def checkout(pin: Pin, source: str | Path | None, keep: Callable[[str], bool], writer: Writer, scratch: Path) -> None:
    """Write the kept files of the pin's commit: one commit deep, without the blobs of other files.

    Args:
        pin: of kind ``git``.
        source: another repository to take it from, path or URL.
        keep: which paths to keep.
        writer: where they go.
        scratch: a fresh folder for the repository.

    Raises:
        FetchError: git is absent, the repository cannot be reached or does not have the commit.
        DigestError: the tag names another commit than the lock.
        UnsafeArchiveError: a kept path is a link or a submodule.
    """
    try:
        from git import GitCommandError, Repo
    except ImportError as error:
        raise FetchError(pin.name, expected="git and GitPython", found=str(error).splitlines()[0]) from error
    repository = Repo.init(scratch)
    try:
        with repository.git.custom_environment(**_SAFE):
            _bring(repository, pin, source)
            paths = _kept(repository, pin, keep, writer)
            _sparse(repository, pin, list(paths))
            for path, blob in paths.items():
                _write(pin, path, blob, scratch, writer)
    except GitCommandError as error:
        remedy = f"connect and run `annotator fetch {pin.name}`, or give a clone with --mirror {pin.name}=PATH"
        found = (str(error.stderr).strip().removeprefix("stderr: ").strip("' \n").splitlines() or ["no answer"])[-1]
        raise FetchError(
            pin.name, expected=f"commit {pin.commit} of {source or pin.repository}", found=found, remedy=remedy
        ) from error
    finally:
        repository.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _url(pin: Pin, source: str | Path | None) -> str:
    """Where git looks. A local path becomes a URL, because git makes no shallow copy of a path."""
    if source is None:
        return f"{FORGE}/{pin.repository}"
    path = Path(source).expanduser()
    return path.resolve().as_uri() if path.exists() else str(source)


def _bring(repository: Repo, pin: Pin, source: str | Path | None) -> None:
    """Fetch the commit; a server that does not give commits by name is asked for the tag."""
    from git import GitCommandError

    url = _url(pin, source)
    repository.git.config("core.hooksPath", os.devnull)
    repository.git.config("core.autocrlf", "false")
    repository.git.config("core.symlinks", "false")
    repository.git.remote("add", "--", "origin", url)
    repository.git.config("remote.origin.promisor", "true")
    options = {"depth": 1, "filter": "blob:none", "no_tags": True, "kill_after_timeout": TIMEOUT}
    try:
        repository.git.fetch("origin", str(pin.commit), **options)
    except GitCommandError:
        repository.git.fetch("origin", f"refs/tags/{pin.ref}", **options)
    found = repository.git.rev_parse("FETCH_HEAD^{commit}")
    if found != pin.commit:
        raise DigestError(
            f"{pin.name}: tag {pin.ref}",
            expected=f"commit {pin.commit}",
            found=found,
            remedy="the tag was moved; do not trust it",
        )


def _kept(repository: Repo, pin: Pin, keep: Callable[[str], bool], writer: Writer) -> dict[str, str]:
    """The kept paths of the commit and their blobs, each judged like a member of an archive."""
    paths: dict[str, str] = {}
    for entry in repository.git.ls_tree("-r", "-z", "--full-tree", str(pin.commit)).split("\0"):
        if not entry:
            continue
        mode, _, rest = entry.partition(" ")
        blob, path = rest.removeprefix("blob ").split("\t", 1)
        if keep(path):
            if not mode.startswith("100"):
                raise writer.refuse(path, "a link" if mode == "120000" else "a submodule")
            paths[writer.admit(path)] = blob
    if not paths:
        raise FetchError(pin.name, expected=f"files of {', '.join(pin.paths)}", found="none in that commit")
    return paths


def _sparse(repository: Repo, pin: Pin, paths: list[str]) -> None:
    """Check out just these paths; git asks for their blobs in one request."""
    listing = Path(repository.git_dir, "info", "sparse-checkout")
    listing.parent.mkdir(exist_ok=True)
    escaped = ["/" + "".join("\\" + c if c in "*?[]\\!#" else c for c in path) for path in paths]
    listing.write_text("\n".join(escaped) + "\n", encoding="utf-8")
    # The repository's own attributes must not change bytes on their way out.
    attributes = "* -text -ident -filter !eol !working-tree-encoding\n"
    Path(repository.git_dir, "info", "attributes").write_text(attributes, encoding="utf-8")
    repository.git.config("core.sparseCheckout", "true")
    repository.git.config("core.sparseCheckoutCone", "false")
    repository.git.checkout("--detach", str(pin.commit))


def _write(pin: Pin, path: str, blob: str, scratch: Path, writer: Writer) -> None:
    """Write one file, once its bytes are known to be the commit's."""
    data = (scratch / path).read_bytes()
    header = f"blob {len(data)}\0".encode()
    # A name of 40 digits is a SHA-1, git's own; a longer one a SHA-256.
    found = hashlib.new("sha1" if len(blob) == 40 else "sha256", header + data).hexdigest()
    if found != blob:
        raise DigestError(f"{pin.name}: {path}", expected=f"blob {blob}", found=found)
    writer.write(path, io.BytesIO(data))
