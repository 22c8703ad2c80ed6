"""Nothing that an archive says of itself is trusted."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from annotator.errors import DigestError, UnsafeArchiveError
from annotator.pins.unpack import Limits, Writer, unpack_tar, unpack_zip
from tests.pins.support import INFO, sdist, sha256, wheel

SMALL = Limits(member=1000, total=3000)
PADDED = Limits(member=1000, total=30_000)
"""tar fills up to 10,240 bytes."""
PLAIN = "expected plain files inside the archive's own folder"


def unzip(
    tmp_path: Path, data: bytes, keep: Callable[[str], bool] = lambda path: True, record: str | None = None
) -> Writer:
    (tmp_path / "a.whl").write_bytes(data)
    writer = Writer("a.whl", tmp_path / "tree", SMALL)
    unpack_zip(tmp_path / "a.whl", keep, writer, record=record)
    return writer


def untar(tmp_path: Path, data: bytes, keep: Callable[[str], bool] = lambda path: True) -> Writer:
    (tmp_path / "a.tar.gz").write_bytes(data)
    writer = Writer("a.tar.gz", tmp_path / "tree", PADDED)
    unpack_tar(tmp_path / "a.tar.gz", keep, writer)
    return writer


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def special(mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("toy/odd")
    info.external_attr = (mode | 0o644) << 16
    return info


def lying() -> bytes:
    """A member of 5,000 bytes whose directory entry says 10."""
    buffer = io.BytesIO()
    archive = zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED)
    archive.writestr("toy/bomb.py", b"0" * 5000)
    archive.filelist[0].file_size = 10
    archive.close()
    return buffer.getvalue()


def renamed(old: str, new: str) -> bytes:
    """A wheel in which a name was changed behind the back of the module that wrote it."""
    return zipped((old, b"x")).replace(old.encode(), new.encode())


ZIPS = [
    ("up", zipped(("toy/../../evil.py", b"x")), f"a.whl: 'toy/../../evil.py': {PLAIN}, found a path that leaves"),
    ("absolute", zipped(("/evil.py", b"x")), "found a path that is absolute or not portable"),
    ("drive", zipped(("C:/evil.py", b"x")), "a path that is absolute or not portable"),
    ("backslash", renamed("toy/evil.py", "toy\\evil.py"), "a path that is absolute or not portable"),
    ("zero byte", renamed("toy/evil.py", "toy/e\0il.py"), "a path that is absolute or not portable"),
    ("link", zipped((special(stat.S_IFLNK), b"/etc/passwd")), f"a.whl: 'toy/odd': {PLAIN}, found a link; nothing was"),
    ("device", zipped((special(stat.S_IFCHR), b"")), "found a device"),
    ("pipe", zipped((special(stat.S_IFIFO), b"")), "found a device"),
    ("twice, spelt anew", zipped(("toy/a.py", b"1"), ("toy/./a.py", b"2")), "'toy/./a.py': expected each name once"),
    ("member too large", zipped(("toy/bomb.py", b"0" * 1001)), "'toy/bomb.py': expected at most 1,000 bytes"),
    ("all too large", zipped(*((f"toy/{i}.py", b"0" * 900) for i in range(4))), "toy/3.py': expected at most 3,000"),
    ("size that lies", lying(), "a.whl: expected a readable archive, found Bad CRC-32"),
    ("file and folder", zipped(("toy", b"x"), ("toy/a.py", b"x")), "expected names that fit together"),
    ("not a zip", b"hello", "a.whl: expected a readable archive, found File is not a zip file"),
    ("cut", wheel()[:-30], "expected a readable archive"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), [row[1:] for row in ZIPS], ids=[row[0] for row in ZIPS])
def test_a_bad_zip_is_refused_by_name(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UnsafeArchiveError) as caught:
        unzip(tmp_path, data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("evil*"))


def tarred(*members: tuple[str, bytes | str]) -> bytes:
    """A tar of files (bytes) and of special members (``"link:target"``, ``"hard:target"``, ``"char"``, ``"fifo"``)."""
    kinds = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "char": tarfile.CHRTYPE, "fifo": tarfile.FIFOTYPE}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                kind, _, info.linkname = content.partition(":")
                info.type = kinds[kind]
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


TARS = [
    ("up", tarred(("t/../../evil.py", b"x")), f"a.tar.gz: 't/../../evil.py': {PLAIN}, found a path that leaves"),
    ("absolute", tarred(("/evil.py", b"x")), "found a path that is absolute"),
    ("link", tarred(("t/a", "link:/etc/passwd")), f"a.tar.gz: 't/a': {PLAIN}, found a link to '/etc/passwd'"),
    ("hard link", tarred(("t/b", b"x"), ("t/a", "hard:t/b")), "found a link to 't/b'"),
    ("device", tarred(("t/a", "char")), "found a device or another special file"),
    ("pipe", tarred(("t/a", "fifo")), "found a device or another special file"),
    ("twice", tarred(("t/a", b"1"), ("t/a", b"2")), "'t/a': expected each name once"),
    ("two tops", tarred(("t/a", b"1"), ("u/a", b"2")), "'u/a': expected one top folder, found 2 top folders"),
    ("member too large", tarred(("t/bomb", b"0" * 1001)), "'bomb': expected at most 1,000 bytes, found more"),
    ("bomb not kept", tarred(("t/skipped", b"0" * 1_000_000)), "a.tar.gz: expected at most 30,000 bytes, found more"),
    ("not a tar", b"hello", "a.tar.gz: expected a readable archive"),
    ("cut", sdist()[:-60], "expected a readable archive"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), [row[1:] for row in TARS], ids=[row[0] for row in TARS])
def test_a_bad_tar_is_refused_by_name(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UnsafeArchiveError) as caught:
        untar(tmp_path, data, keep=lambda path: path != "skipped")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("evil*"))


def test_kept_members_are_written_read_only_with_their_digests(tmp_path: Path) -> None:
    writer = unzip(tmp_path, wheel(), keep=lambda path: path.endswith(".py") and path.startswith("toy/"))
    written = {path.relative_to(writer.into).as_posix() for path in writer.into.rglob("*") if path.is_file()}
    assert written == set(writer.manifest) == {"toy/__init__.py", "toy/deep/__init__.py", "toy/deep/leaf.py"}
    leaf = writer.into / "toy/deep/leaf.py"
    assert writer.manifest["toy/deep/leaf.py"] == sha256(leaf.read_bytes())
    assert stat.S_IMODE(leaf.stat().st_mode) == 0o444


def test_a_good_tar_loses_its_top_folder(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(sdist())
    writer = Writer("a.tar.gz", tmp_path / "tree")
    unpack_tar(tmp_path / "a.tar.gz", lambda path: path.startswith("toy/deep"), writer)
    assert sorted(writer.manifest) == ["toy/deep/__init__.py", "toy/deep/leaf.py"]


def test_members_are_compared_with_record(tmp_path: Path) -> None:
    data = wheel()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        record = archive.read(f"{INFO}/RECORD")
        members = {name: archive.read(name) for name in archive.namelist()}
    assert len(unzip(tmp_path / _fresh(tmp_path, "good"), data, record=sha256(record)).manifest) == len(members)
    for name, changed, message in [
        ("other", {}, "a.whl: RECORD: expected sha256 0000"),
        ("changed", {"toy/__init__.py": b"evil"}, "a.whl: toy/__init__.py: expected sha256 "),
        ("unlisted", {"toy/extra.py": b"evil"}, "a.whl: toy/extra.py: expected sha256 in RECORD"),
    ]:
        wanted = "0" * 64 if name == "other" else sha256(record)
        with pytest.raises(DigestError) as caught:
            unzip(tmp_path / _fresh(tmp_path, name), zipped(*(members | changed).items()), record=wanted)
        assert message in str(caught.value)


def _fresh(tmp_path: Path, name: str) -> str:
    (tmp_path / name).mkdir()
    return name


def test_the_lying_archive_really_lies() -> None:
    """Negative control: without the lie the same member passes the reader, so the refusal above is about the lie."""
    data = lying()
    start = data.index(b"PK\x01\x02")
    assert struct.unpack("<I", data[start + 24 : start + 28]) == (10,)
