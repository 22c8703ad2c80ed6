"""From lock to trees: cached or downloaded, verified, unpacked beside the place and moved there in one step.

Holds the order of things. How bytes come is in `registry` and `gitsource`, what may be unpacked in `unpack`, what
a tree is in `trees`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from annotator.errors import DigestError, FetchError, PinError, did_you_mean, near_matches
from annotator.pins import gitsource, registry, trees
from annotator.pins.lock import Pin, read_lock
from annotator.pins.progress import Progress, Silent
from annotator.pins.unpack import Writer, unpack_tar, unpack_zip
from annotator.workspace import Workspace

Mirrors = Mapping[str, str | Path]
"""Pin name to another source: a file or folder that holds the artifact, or (kind ``git``) a repository."""


@dataclass(frozen=True)
class Fetched:
    """What became of one pin: its tree, and what it took. ``skipped`` when the tree was already there."""

    name: str
    path: Path
    skipped: bool
    received: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class _Job:
    """One pin on its way."""

    workspace: Workspace
    pin: Pin
    offline: bool
    mirror: str | Path | None
    progress: Progress
    repair: bool

    @property
    def artifact(self) -> Path:
        return self.workspace.cache / "artifacts" / self.pin.artifact


def pin_of(workspace: Workspace, name: str) -> Pin:
    """The pin of that name.

    Raises:
        PinError: the lock has none; near matches are suggested.
    """
    pins = read_lock(workspace.lock)
    if name not in pins:
        remedy = did_you_mean(near_matches(name, pins)) or f"the lock has {', '.join(pins)}"
        raise PinError(name, expected="a pin of vendored_refs/pins.toml", found="none of that name", remedy=remedy)
    return pins[name]


def tree(workspace: Workspace, name: str) -> Path:
    """The unpacked tree of a pin.

    Raises:
        PinError: no such pin, or it was not fetched.
    """
    return trees.locate(workspace, pin_of(workspace, name))


def verify(workspace: Workspace, name: str) -> None:
    """Hash every file of a pin's tree and compare with the lock.

    Raises:
        PinError: no such pin, or it was not fetched.
        DigestError: a file is changed, missing or extra; the message names the first.
    """
    trees.verify(workspace, pin_of(workspace, name))


def fetch(
    workspace: Workspace,
    names: Iterable[str] | None = None,
    *,
    offline: bool = False,
    mirrors: Mirrors | None = None,
    progress: Progress | None = None,
    repair: bool = False,
) -> list[Fetched]:
    """Bring the trees of pins into place, several at once; what is there is skipped.

    Args:
        workspace: whose lock and whose places.
        names: which pins; all but the optional ones by default.
        offline: use the cache and mirrors only.
        mirrors: other sources than the registry.
        progress: told about bytes.
        repair: hash the trees that are there, and replace those that are damaged.

    Raises:
        PinError: a pin is unknown, or could not be fetched. Others are fetched all the same; when several fail, the
            message has one line for each reason.
    """
    pins = read_lock(workspace.lock)
    chosen = (
        [pin for pin in pins.values() if not pin.optional] if names is None else [pin_of(workspace, n) for n in names]
    )
    others = dict(mirrors or {})
    for name in others:
        pin_of(workspace, name)
    jobs = [
        _Job(workspace, pin, offline, others.get(pin.name), progress or Silent(), repair)
        for pin in dict.fromkeys(chosen)
    ]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        outcomes = list(pool.map(_attempt, jobs))
    failed = [outcome for outcome in outcomes if isinstance(outcome, PinError)]
    if failed:
        raise _joined(failed)
    return [outcome for outcome in outcomes if isinstance(outcome, Fetched)]


def _attempt(job: _Job) -> Fetched | PinError:
    """One job; its error is kept, so that the others go on."""
    try:
        return _bring(job)
    except PinError as error:
        return error
    except OSError as error:
        return PinError(job.pin.name, expected="a cache that can be written", found=str(error))


def _joined(errors: list[PinError]) -> PinError:
    """One error for several pins: those with the same reason share a line."""
    grouped: dict[tuple[str, str, str], list[PinError]] = {}
    for error in errors:
        grouped.setdefault((error.expected, error.found, error.remedy), []).append(error)
    if len(grouped) == 1:
        (expected, found, remedy), same = next(iter(grouped.items()))
        return type(same[0])(", ".join(error.place for error in same), expected=expected, found=found, remedy=remedy)
    return PinError("\n".join(str(error) for error in errors))


def _bring(job: _Job) -> Fetched:
    """Make sure that the tree of one pin is in place."""
    began, damaged = time.monotonic(), False
    if trees.is_current(job.workspace, job.pin):
        damaged = job.repair and _is_damaged(job)
        if not damaged:
            return Fetched(job.pin.name, job.workspace.tree(job.pin.name).resolve(), skipped=True)
    with _alone(job.workspace.cache / "locks" / job.pin.slug) as held:
        received = 0
        if held:
            _sweep(job)
        if damaged or not _is_cached(job):
            received = _make(job, damaged)
        _place(job)
    path = trees.locate(job.workspace, job.pin)
    return Fetched(job.pin.name, path, skipped=False, received=received, seconds=time.monotonic() - began)


def _is_damaged(job: _Job) -> bool:
    try:
        trees.verify(job.workspace, job.pin)
    except DigestError:
        if not trees.is_ours(job.workspace, job.pin):
            raise
        return True
    return False


def _is_cached(job: _Job) -> bool:
    cached = trees.cached_tree(job.workspace, job.pin)
    return cached.is_dir() and trees.manifest_beside(cached).is_file()


def _sweep(job: _Job) -> None:
    """Remove drafts that a killed fetch of this pin left; nobody else can be at work on it while the lock is held."""
    for draft in (job.workspace.cache / "trees").glob(f".{job.pin.slug}.*"):
        shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink()


def _make(job: _Job, damaged: bool) -> int:
    """Unpack a fresh tree beside its place in the cache, compare its digest, move it there. Returns bytes received."""
    cached = trees.cached_tree(job.workspace, job.pin)
    cached.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{job.pin.slug}.", dir=cached.parent))
    try:
        writer = Writer(job.pin.artifact or job.pin.name, draft / "tree")
        writer.into.mkdir()
        received = _fill(job, writer, draft)
        check_tree(job.pin, writer)
        cached_without_manifest = cached.is_dir() and not trees.manifest_beside(cached).is_file()
        # The manifest first: a tree without one would be hashed at every load.
        trees.write_manifest(trees.manifest_beside(cached), writer.manifest)
        if damaged or cached_without_manifest:
            os.replace(cached, draft / "old")
        _move(writer.into, cached)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return received


def check_tree(pin: Pin, writer: Writer) -> None:
    """Compare the digest of what was unpacked with the lock.

    Raises:
        DigestError: it is another.
    """
    found = trees.tree_digest(writer.manifest)
    if pin.tree and found != pin.tree:
        remedy = f"if paths of the pin changed, run `annotator fetch {pin.name} --relock`"
        raise DigestError(
            f"{pin.name}: {len(writer.manifest)} kept files",
            expected=f"tree digest {pin.tree}",
            found=found,
            remedy=remedy,
        )


def _move(fresh: Path, place: Path) -> None:
    """Move a tree to its place; where another process was quicker, its tree stays."""
    try:
        os.replace(fresh, place)
    except OSError:
        if not place.is_dir():
            raise


def _fill(job: _Job, writer: Writer, draft: Path) -> int:
    """Write the kept files of the pin's source; returns bytes received over the network."""
    pin, keep = job.pin, trees.keeper(job.pin.paths)
    if pin.kind == "git":
        if job.offline and job.mirror is None:
            raise registry.no_network(pin, "the network is not to be used")
        job.progress.start(pin.name, None)
        try:
            gitsource.checkout(pin, job.mirror, keep, writer, draft / "git")
        finally:
            job.progress.finish(pin.name)
        return 0
    remote = registry.Remote(pin, offline=job.offline)
    try:
        archive = _artifact(job, remote, keep)
    finally:
        remote.close()
    if pin.kind == "sdist":
        unpack_tar(archive, keep, writer)
    else:
        unpack_zip(archive, keep, writer, record=pin.record)
    return remote.received


def _artifact(job: _Job, remote: registry.Remote, keep: Callable[[str], bool]) -> Path:
    """The artifact on this machine: from the mirror, the cache or the registry, its digest checked."""
    if job.mirror is not None:
        return _mirrored(job)
    if job.artifact.is_file():
        try:
            registry.check_artifact(job.pin, job.artifact)
        except DigestError:
            if job.offline:
                raise
            job.artifact.unlink()
        else:
            return job.artifact
    if job.pin.kind == "members":
        slices = registry.Slices(remote, job.artifact.with_name(job.artifact.name + ".members"))
        registry.bring_members(slices, keep, job.progress)
        return slices.path
    registry.download(remote, job.artifact, job.progress)
    return job.artifact


def _mirrored(job: _Job) -> Path:
    """The artifact in the file or folder that the user gave."""
    given = Path(job.mirror or "").expanduser()
    path = given / job.pin.artifact if given.is_dir() else given
    if not path.is_file():
        raise FetchError(
            f"--mirror {job.pin.name}={job.mirror}", expected=f"{job.pin.artifact} or its folder", found="no such file"
        )
    registry.check_artifact(job.pin, path)
    return path


def _place(job: _Job) -> None:
    """Put the cached tree at ``vendored_refs/NAME``: as a link, or as a copy where links cannot be made."""
    cached, place = trees.cached_tree(job.workspace, job.pin), job.workspace.tree(job.pin.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{job.pin.name}.", dir=place.parent))
    try:
        _remove_ours(job, place, draft / "old")
        try:
            os.symlink(cached.absolute(), draft / "new", target_is_directory=True)
        except OSError:
            shutil.copytree(cached, draft / "new")
            shutil.copy2(trees.manifest_beside(cached), trees.manifest_beside(place))
        try:
            os.replace(draft / "new", place)
        except OSError:
            # Another process put it there in between.
            if not trees.is_current(job.workspace, job.pin):
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_ours(job: _Job, place: Path, aside: Path) -> None:
    """Take away a stale copy of ours. A link needs no removal: replacing it is one step."""
    if place.is_dir() and not place.is_symlink() and trees.is_ours(job.workspace, job.pin):
        trees.manifest_beside(place).unlink()
        os.replace(place, aside)


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Hold a lock file, so that two processes do not download the same bytes; waits for the other one.

    Gives False on systems without such locks. Moving into place is one step there too; only a download may be doubled.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as file:
        try:
            import fcntl
        except ImportError:
            yield False
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield True


def relock(
    workspace: Workspace, name: str, *, mirror: str | Path | None = None, progress: Progress | None = None
) -> str:
    """Compute the digests of a pin whose table has everything else, as lines to paste into its table.

    Raises:
        PinError: no such pin, or its source cannot be had.
    """
    pins = read_lock(workspace.lock, unmeasured=name)
    if name not in pins:
        pin_of(workspace, name)
    pin = replace(pins[name], sha256="", size=0, record=None, tree="")
    with tempfile.TemporaryDirectory(prefix="relock-") as folder:
        measured = _measure(pin, Path(folder), mirror, progress or Silent())
    return "\n".join(
        f"{key} = {value:_}" if isinstance(value, int) else f'{key} = "{value}"' for key, value in measured.items()
    )


def _measure(pin: Pin, folder: Path, mirror: str | Path | None, progress: Progress) -> dict[str, str | int]:
    """The `MEASURED` fields of a pin, from its source."""
    measured: dict[str, str | int] = {}
    if pin.kind != "git":
        if mirror is not None:
            path = Path(mirror) / pin.artifact if Path(mirror).is_dir() else Path(mirror)
            measured = {"sha256": trees.file_digest(path), "size": path.stat().st_size}
        else:
            measured = registry.measure(pin)
        pin = replace(pin, sha256=str(measured["sha256"]), size=int(measured["size"]))
    job = _Job(Workspace(folder, folder / "cache", folder / "state"), pin, False, mirror, progress, False)
    writer = Writer(pin.artifact or pin.name, folder / "tree")
    writer.into.mkdir()
    _fill(job, writer, folder)
    if pin.kind == "members":
        measured["record"] = next(
            digest for path, digest in writer.manifest.items() if path.endswith(".dist-info/RECORD")
        )
    return {**measured, "tree": trees.tree_digest(writer.manifest)}
