"""Archives to files, trusting nothing that an archive says of itself.

Apart from fetching because it is the one place where foreign bytes choose file names and sizes. Every member of an
archive is judged, kept or not: a hostile one makes the whole archive suspect.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from annotator.errors import DigestError, UnsafeArchiveError

CHUNK = 1 << 18


@dataclass(frozen=True)
class Limits:
    """How many bytes, really read, a member and an archive may have."""

    member: int = 64 << 20
    total: int = 2 << 30


@dataclass
class Writer:
    """Writes kept members below a folder and keeps their digests.

    Attributes:
        archive: file name of the archive, for messages.
        into: the folder; it must be fresh.
        manifest: path to sha256 of what was written.
    """

    archive: str
    into: Path
    limits: Limits = field(default_factory=Limits)
    manifest: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _total: int = 0

    def refuse(
        self, member: str, found: str, expected: str = "plain files inside the archive's own folder"
    ) -> UnsafeArchiveError:
        """The error that names the archive and the member."""
        remedy = "nothing was unpacked; check where this archive comes from"
        place = f"{self.archive}: {member!r}" if member else self.archive
        return UnsafeArchiveError(place, expected=expected, found=found, remedy=remedy)

    def admit(self, member: str) -> str:
        """The member's path, once it is known to stay inside the folder and to be new.

        Raises:
            UnsafeArchiveError: an absolute path, a way upwards, a backslash or drive, or a name seen before.
        """
        parts = member.rstrip("/").split("/")
        if member.startswith("/") or re.match(r"[A-Za-z]:", member) or "\\" in member or "\0" in member:
            raise self.refuse(member, "a path that is absolute or not portable")
        if ".." in parts:
            raise self.refuse(member, "a path that leaves the folder")
        path = posixpath.normpath(member)
        if path in self._seen:
            raise self.refuse(member, "a second member of that name", expected="each name once")
        self._seen.add(path)
        return path

    def write(self, path: str, source: IO[bytes]) -> None:
        """Write one member, counting its bytes as they come.

        Raises:
            UnsafeArchiveError: the member, or all together, are larger than the limits.
        """
        target = self.into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with target.open("xb") as file:
            while chunk := source.read(CHUNK):
                size += len(chunk)
                self._total += len(chunk)
                if size > self.limits.member or self._total > self.limits.total:
                    bound = self.limits.member if size > self.limits.member else self.limits.total
                    raise self.refuse(path, "more", expected=f"at most {bound:,} bytes")
                digest.update(chunk)
                file.write(chunk)
        # The cache is shared by all checkouts: nobody edits a tree by accident.
        os.chmod(target, 0o444)
        self.manifest[path] = digest.hexdigest()


def unpack_zip(archive: Path, keep: Callable[[str], bool], writer: Writer, *, record: str | None = None) -> None:
    """Unpack the kept members of a wheel.

    Args:
        archive: the wheel; of kind ``members`` only the kept ranges need to be there.
        keep: which paths to keep.
        writer: where they go.
        record: sha256 that RECORD must have; then each member must have the digest that RECORD states.

    Raises:
        UnsafeArchiveError: a member that must not be unpacked, or an unreadable archive.
        DigestError: RECORD, or a member, is not the lock's.
    """
    with _readable(writer), zipfile.ZipFile(archive) as opened:
        admitted = [(_admit_zip(info, writer), info) for info in opened.infolist()]
        for path, info in admitted:
            if keep(path) and not info.is_dir():
                with opened.open(info) as source:
                    writer.write(path, source)
        if record is not None:
            _check_record(writer, record)


def _admit_zip(info: zipfile.ZipInfo, writer: Writer) -> str:
    path = writer.admit(info.orig_filename)
    mode = info.external_attr >> 16
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and stat.S_IFMT(mode):
        raise writer.refuse(info.orig_filename, "a link" if stat.S_ISLNK(mode) else "a device")
    if info.flag_bits & 0x1:
        raise writer.refuse(info.orig_filename, "an encrypted member")
    return path


def _check_record(writer: Writer, record: str) -> None:
    """Compare what was written with RECORD, and RECORD with the lock."""
    path = next((path for path in writer.manifest if re.fullmatch(r"[^/]+\.dist-info/RECORD", path)), None)
    found = writer.manifest.get(path or "", "no RECORD")
    if path is None or found != record:
        raise DigestError(f"{writer.archive}: RECORD", expected=f"sha256 {record}", found=found)
    stated = dict(_record_digests((writer.into / path).read_text(encoding="utf-8")))
    for member, digest in writer.manifest.items():
        if member != path and digest != stated.get(member):
            raise DigestError(
                f"{writer.archive}: {member}", expected=f"sha256 {stated.get(member, 'in RECORD')}", found=digest
            )


def _record_digests(text: str) -> Iterator[tuple[str, str]]:
    """Member and sha256 in hexadecimal of each line of a RECORD that states one."""
    for row in csv.reader(io.StringIO(text)):
        if len(row) == 3 and row[1].startswith("sha256="):
            yield row[0], base64.urlsafe_b64decode(row[1][7:] + "=").hex()


def unpack_tar(archive: Path, keep: Callable[[str], bool], writer: Writer) -> None:
    """Unpack the kept members of a source archive (``.tar.gz``), without its top folder.

    Raises:
        UnsafeArchiveError: a member that must not be unpacked, or an unreadable archive.
    """
    tops: set[str] = set()
    with _readable(writer), gzip.open(archive) as stream:
        # tarfile reads through it, so that bytes of members that are not kept count as well.
        bounded = _Bounded(stream, writer)
        with tarfile.open(fileobj=bounded, mode="r|") as opened:
            for member in opened:
                path = _admit_tar(member, writer)
                top, _, rest = path.partition("/")
                tops.add(top)
                if len(tops) > 1:
                    raise writer.refuse(member.name, f"{len(tops)} top folders", expected="one top folder")
                source = opened.extractfile(member) if member.isfile() and keep(rest) else None
                if source is not None:
                    writer.write(rest, source)


def _admit_tar(member: tarfile.TarInfo, writer: Writer) -> str:
    path = writer.admit(member.name)
    if member.issym() or member.islnk():
        raise writer.refuse(member.name, f"a link to {member.linkname!r}")
    if not (member.isfile() or member.isdir()):
        raise writer.refuse(member.name, "a device or another special file")
    return path


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than the archive's limit."""

    def __init__(self, stream: gzip.GzipFile, writer: Writer) -> None:
        self.stream, self.writer, self.count = stream, writer, 0

    def readable(self) -> bool:
        """It can be read; nothing else."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, counted."""
        chunk = self.stream.read(size)
        self.count += len(chunk)
        if self.count > self.writer.limits.total:
            bound = f"at most {self.writer.limits.total:,} bytes"
            raise self.writer.refuse("", "more", expected=bound)
        return chunk


@contextmanager
def _readable(writer: Writer) -> Iterator[None]:
    """Translate what the archive modules raise on damaged bytes."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError, NotImplementedError) as error:
        raise UnsafeArchiveError(
            writer.archive, expected="a readable archive", found=str(error) or "its end"
        ) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UnsafeArchiveError(writer.archive, expected="names that fit together", found=str(error)) from error
