"""Artifacts of the package registry, whole or in ranges, brought here so that a broken line costs little.

Apart from fetching because it alone speaks HTTP. The index is the one pip uses (``PIP_INDEX_URL``, ``PIP_CERT``, else
the public one), read through pypi-simple, so no host stands in this code.
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from annotator.errors import DigestError, FetchError
from annotator.pins.lock import Pin
from annotator.pins.progress import Progress
from annotator.pins.trees import file_digest

if TYPE_CHECKING:
    import requests
    from _typeshed import WriteableBuffer
    from pypi_simple import DistributionPackage

T = TypeVar("T")
CHUNK = 1 << 17
ATTEMPTS = 4
PAUSE = 0.5
"""Seconds before the second attempt; doubled for each further one."""
TIMEOUT = (10, 60)
PARTIAL, BEYOND_THE_END = 206, 416
TAIL = 1 << 16
"""Enough of a zip's end to hold its end record."""
GAP = 1 << 16
"""Ranges nearer than this are fetched as one: a request costs about as much as so many bytes."""
PIECE = 4 << 20


@dataclass
class Remote:
    """One artifact, as the registry has it.

    Attributes:
        pin: whose artifact.
        offline: never ask the network.
        received: bytes that came over the network.
    """

    pin: Pin
    offline: bool = False
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @cached_property
    def session(self) -> requests.Session:
        """A session with pip's certificate bundle."""
        import requests

        session = requests.Session()
        session.verify = os.environ.get("PIP_CERT") or True
        return session

    @cached_property
    def package(self) -> DistributionPackage:
        """What the index says of the artifact.

        Raises:
            FetchError: no network, no such project or no such artifact.
            DigestError: the index states another digest than the lock.
        """
        packages = self.attempt(self._packages)
        found = next((item for item in packages if item.filename == self.pin.artifact), None)
        if found is None:
            remedy = "it may have been withdrawn; give it with --mirror NAME=PATH"
            raise FetchError(
                self.pin.artifact,
                expected=f"it in the registry's {self.pin.project}",
                found="none of that name",
                remedy=remedy,
            )
        stated = (found.digests or {}).get("sha256", self.pin.sha256)
        if self.pin.sha256 and stated != self.pin.sha256:
            raise wrong_digest(self.pin, f"{stated} in the registry's index")
        return found

    def _packages(self) -> list[DistributionPackage]:
        from pypi_simple import PYPI_SIMPLE_ENDPOINT, NoSuchProjectError, PyPISimple

        endpoint = os.environ.get("PIP_INDEX_URL") or PYPI_SIMPLE_ENDPOINT
        try:
            return list(
                PyPISimple(endpoint, session=self.session).get_project_page(self.pin.project, timeout=TIMEOUT).packages
            )
        except NoSuchProjectError as error:
            raise FetchError(
                self.pin.project, expected="a project of the registry", found="none of that name"
            ) from error

    def attempt(self, work: Callable[[], T]) -> T:
        """Do ``work``; again, after a pause, where the failure may pass.

        Raises:
            FetchError: it failed for good.
        """
        import requests

        for turn in range(ATTEMPTS):
            if self.offline:
                raise no_network(self.pin, "the network is not to be used")
            try:
                return work()
            except requests.RequestException as error:
                status = getattr(error.response, "status_code", None)
                last = turn == ATTEMPTS - 1 or (status is not None and status < 500 and status != 429)
                if last and status is not None:
                    raise FetchError(
                        self.pin.artifact, expected="the registry to give it", found=f"HTTP status {status}"
                    ) from error
                if last:
                    raise no_network(self.pin, f"no answer from the registry ({type(error).__name__})") from error
            time.sleep(PAUSE * 2**turn)
        raise AssertionError("the last attempt returns or raises")

    def read(self, start: int, stop: int | None) -> tuple[int, Generator[bytes, None, None]]:
        """Bytes from ``start`` to ``stop`` (exclusive), and where they start: 0 if the server ignores ranges."""
        end = "" if stop is None else stop - 1
        ranged = {"Range": f"bytes={start}-{end}"} if start or stop else {}
        answer = self._get(ranged)
        if answer.status_code == BEYOND_THE_END and stop is None:
            # What is here is longer than what the server has: begin anew.
            answer.close()
            answer = self._get({})
        if not answer.ok:
            answer.close()  # before it is raised: an open connection would outlive the error
            answer.raise_for_status()
        return (start if answer.status_code == PARTIAL else 0), self._counted(answer)

    def _get(self, headers: dict[str, str]) -> requests.Response:
        plain = {"Accept-Encoding": "identity"}
        return self.session.get(self.package.url, headers=plain | headers, stream=True, timeout=TIMEOUT)

    def _counted(self, answer: requests.Response) -> Generator[bytes, None, None]:
        with answer:
            for chunk in answer.iter_content(CHUNK):
                with self._lock:
                    self.received += len(chunk)
                yield chunk

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "session" in self.__dict__:
            self.session.close()


def download(remote: Remote, target: Path, progress: Progress) -> None:
    """Bring a whole artifact to ``target``; what an earlier, broken download left in ``.part`` is continued.

    Raises:
        FetchError: no network, or fewer bytes than the lock says.
        DigestError: other bytes than the lock says; they are removed.
    """
    pin, part = remote.pin, target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    if not part.exists() or part.stat().st_size < pin.size:
        try:
            remote.attempt(lambda: _continue(remote, part, progress))
        except FetchError as error:
            raise _truncated(pin, part, error) from error
        finally:
            progress.finish(pin.name)
    if part.stat().st_size < pin.size:
        raise _truncated(pin, part, None)
    try:
        check_artifact(pin, part)
    except DigestError:
        part.unlink()
        raise
    os.replace(part, target)


def _continue(remote: Remote, part: Path, progress: Progress) -> None:
    """One attempt: append what is missing. Ends early, without an error, when more comes than the lock says."""
    have = part.stat().st_size if part.exists() else 0
    start, chunks = remote.read(have, None)
    progress.start(remote.pin.name, remote.pin.size)
    progress.advance(remote.pin.name, start)
    with closing(chunks), part.open("r+b" if part.exists() else "wb") as file:
        file.seek(start)
        file.truncate()
        for chunk in chunks:
            file.write(chunk)
            progress.advance(remote.pin.name, len(chunk))
            if file.tell() > remote.pin.size:
                return


def _truncated(pin: Pin, part: Path, error: FetchError | None) -> FetchError:
    have = part.stat().st_size if part.exists() else 0
    if error is not None and not have:
        return error
    remedy = f"the part is kept; run `annotator fetch {pin.name}` again to continue"
    return FetchError(
        pin.artifact, expected=f"{pin.size:,} bytes", found=f"{have:,} before the line broke", remedy=remedy
    )


def measure(pin: Pin) -> dict[str, str | int]:
    """Digest and size of an artifact as the registry states them; used to write a lock, never to check one.

    Raises:
        FetchError: no such artifact, or the registry states no sha256 or no size.
    """
    remote = Remote(pin)
    with remote.session:
        digest = remote.package.digests.get("sha256")
        answer = remote.attempt(lambda: remote.session.head(remote.package.url, allow_redirects=True, timeout=TIMEOUT))
    size = int(remote.package.size or answer.headers.get("Content-Length") or 0)
    if not digest or not size:
        raise FetchError(pin.artifact, expected="a registry that states sha256 and size", found=f"{digest}, {size}")
    return {"sha256": digest, "size": size}


def check_artifact(pin: Pin, path: Path) -> None:
    """Compare a file with the lock.

    Raises:
        DigestError: another size or sha256.
    """
    if path.stat().st_size != pin.size:
        raise DigestError(
            pin.artifact, expected=f"{pin.size:,} bytes", found=f"{path.stat().st_size:,}", remedy=_UNTRUSTED
        )
    found = file_digest(path)
    if found != pin.sha256:
        raise wrong_digest(pin, found)


_UNTRUSTED = "nothing was unpacked; fetch again, and if it stays so do not trust the source"


def wrong_digest(pin: Pin, found: str) -> DigestError:
    """The error for an artifact of another sha256."""
    return DigestError(pin.artifact, expected=f"sha256 {pin.sha256}", found=found, remedy=_UNTRUSTED)


def no_network(pin: Pin, found: str) -> FetchError:
    """The error for a pin that is not cached and cannot be asked for."""
    remedy = "connect once and run `annotator fetch`, or give the source with --mirror NAME=PATH"
    return FetchError(
        pin.name, expected="its artifact in the cache, or a network", found=f"nothing cached and {found}", remedy=remedy
    )


@dataclass
class Slices:
    """A large artifact of which only some ranges are here, in a sparse file of the full size.

    Attributes:
        remote: where missing ranges come from.
        path: the file; beside it, ``.ranges`` lists what of it is here, so that a broken fetch continues.
    """

    remote: Remote
    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.here: list[tuple[int, int]] = self._stored()
        if not self.here:
            with self.path.open("wb") as file:
                file.truncate(self.remote.pin.size)

    @property
    def _list(self) -> Path:
        return self.path.with_name(self.path.name + ".ranges")

    def _stored(self) -> list[tuple[int, int]]:
        try:
            stored = [(int(start), int(stop)) for start, stop in json.loads(self._list.read_bytes())]
        except (OSError, ValueError, TypeError):
            return []
        whole = self.path.is_file() and self.path.stat().st_size == self.remote.pin.size
        return stored if whole else []

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of a range that are not here."""
        gaps, at = [], start
        for first, last in self.here:
            if last <= at or first >= stop:
                continue
            if first > at:
                gaps.append((at, first))
            at = max(at, last)
        return [*gaps, (at, stop)] if at < stop else gaps

    def ensure(self, spans: Iterable[tuple[int, int]], progress: Progress | None = None) -> None:
        """Bring all ranges here, several at once.

        Raises:
            FetchError: no network, or a range came short.
        """
        gaps = [gap for span in spans for gap in self.missing(*span)]
        pieces = [(at, min(at + PIECE, stop)) for start, stop in gaps for at in range(start, stop, PIECE)]
        if not pieces:
            return
        if progress:
            progress.start(self.remote.pin.name, sum(stop - start for start, stop in pieces))
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda piece: self.remote.attempt(lambda: self._bring(piece, progress)), pieces))
        finally:
            self._list.write_text(json.dumps(self.here), encoding="utf-8")
            if progress:
                progress.finish(self.remote.pin.name)

    def _bring(self, piece: tuple[int, int], progress: Progress | None) -> None:
        start, stop = piece
        at, chunks = self.remote.read(start, stop)
        first = at
        with closing(chunks), self.path.open("r+b") as file:
            file.seek(at)
            for chunk in chunks:
                file.write(chunk)
                at += len(chunk)
                if progress:
                    progress.advance(self.remote.pin.name, len(chunk))
        if at < stop or at > self.remote.pin.size:
            raise FetchError(
                self.remote.pin.artifact,
                expected=f"bytes {start:,} to {stop:,}",
                found=f"them up to {at:,}",
                remedy="fetch again to continue",
            )
        with self._lock:
            self.here = _merge([*self.here, (first, at)])

    def members(self) -> list[zipfile.ZipInfo]:
        """The central directory of the wheel, read from its end."""
        size = self.remote.pin.size
        self.ensure([(max(0, size - TAIL), size)])
        with zipfile.ZipFile(io.BufferedReader(_View(self))) as opened:
            return opened.infolist()


def bring_members(slices: Slices, keep: Callable[[str], bool], progress: Progress) -> None:
    """Bring the ranges of a wheel that hold its kept members.

    Raises:
        FetchError: no network, or a range came short.
    """
    slices.ensure(plan(slices.members(), keep, slices.remote.pin.size), progress)


def plan(members: list[zipfile.ZipInfo], keep: Callable[[str], bool], size: int) -> list[tuple[int, int]]:
    """The ranges that hold the kept members: each from its header to the next member's, near ones as one."""
    ordered = sorted(members, key=lambda member: member.header_offset)
    ends = [member.header_offset for member in ordered[1:]] + [size]
    spans = [
        (m.header_offset, end) for m, end in zip(ordered, ends, strict=True) if keep(m.filename) and not m.is_dir()
    ]
    return _merge(spans, GAP)


def _merge(spans: Iterable[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Sorted ranges; those at most ``gap`` apart become one."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


class _View(io.RawIOBase):
    """A file as zipfile wants it; reading where nothing is here yet fetches."""

    def __init__(self, slices: Slices) -> None:
        self.slices, self.at = slices, 0
        self.file = slices.path.open("rb")

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought in."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; returns the new place."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.slices.remote.pin.size}[whence]
        self.at = base + offset
        return self.at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer from here."""
        view = memoryview(buffer)
        stop = min(self.at + len(view), self.slices.remote.pin.size)
        if stop <= self.at:
            return 0
        self.slices.ensure([(self.at, stop)])
        self.file.seek(self.at)
        count = self.file.readinto(view[: stop - self.at])
        self.at += count
        return count

    def close(self) -> None:
        """Close the file beneath."""
        self.file.close()
        super().close()
