"""Toy references for the tests of pins: archives made here, a lock over them, a registry on the loopback."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from annotator.pins.trees import tree_digest
from annotator.workspace import Workspace

SOURCES = {
    "toy/__init__.py": "NAME = 'toy'\n",
    "toy/deep/__init__.py": "",
    "toy/deep/leaf.py": "def answer():\n    return 42\n",
    "toy/data.json": "{}\n",
    "tests/test_toy.py": "assert True\n",
}
INFO = "toy-1.0.dist-info"
PATHS = ("toy/**/*.py", f"{INFO}/*")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(files: Mapping[str, str] = SOURCES, *, padding: int = 0) -> bytes:
    """A wheel with RECORD. ``padding`` bytes that do not compress stand in for binaries, between the sources."""
    members = {name: text.encode() for name, text in files.items()}
    members |= {f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"}
    rows = []
    for name, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    members[f"{INFO}/RECORD"] = ("".join(rows) + f"{INFO}/RECORD,,\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (name, data) in enumerate(members.items()):
            if padding and number == 1:
                noise = b"".join(hashlib.sha256(bytes([i % 256, i // 256])).digest() for i in range(padding // 32))
                archive.writestr(zipfile.ZipInfo("toy/big.so"), noise)
            archive.writestr(name, data)
    return buffer.getvalue()


def sdist(files: Mapping[str, str] = SOURCES, top: str = "toy-1.0") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def kept_tree(data: bytes, kind: str) -> str:
    """The tree digest of the kept files, computed another way than the product does: by extracting all."""
    if kind == "sdist":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found = {m.name.split("/", 1)[1]: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    else:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
    kept = {n: b for n, b in found.items() if (n.startswith("toy/") and n.endswith(".py")) or n.startswith(INFO)}
    return tree_digest({name: sha256(content) for name, content in kept.items()})


def table(kind: str, data: bytes, /, **changes: Any) -> dict[str, Any]:
    """The lock's table for a toy artifact."""
    fields: dict[str, Any] = {
        "version": "1.0",
        "kind": kind,
        "license": "MIT",
        "repository": "some/toy",
        "ref": "v1.0",
        "project": "toy",
        "artifact": "toy-1.0.tar.gz" if kind == "sdist" else "toy-1.0-py3-none-any.whl",
        "sha256": sha256(data),
        "size": len(data),
        "tree": kept_tree(data, kind),
        "paths": list(PATHS),
        "run": "tree",
    }
    if kind == "members":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            fields["record"] = sha256(archive.read(f"{INFO}/RECORD"))
    return {key: value for key, value in (fields | changes).items() if value is not None}


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, dict):
            return "{ " + ", ".join(f'"{key}" = {shown(item)}' for key, item in value.items()) + " }"
        return repr(value) if not isinstance(value, str) else f'"{value}"'

    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {shown(value)}\n" for key, value in fields.items()) + "\n"
        for name, fields in tables.items()
    )


def workspace(root: Path, **tables: Mapping[str, Any]) -> Workspace:
    """A checkout with that lock and an empty cache beside it."""
    place = Workspace(root=root / "checkout", cache=root / "cache", state=root / "checkout" / "vendored_refs")
    place.state.mkdir(parents=True, exist_ok=True)
    place.lock.write_text(toml({name.replace("_", "-"): fields for name, fields in tables.items()}), encoding="utf-8")
    return place


@dataclass
class Registry:
    """A simple index with files, and the faults that a test orders: each answers one request for a file.

    Faults: ``cut`` (all headers, but only half of the bytes), ``busy`` (status 503), ``gone`` (status 404).
    """

    files: dict[str, bytes]
    faults: list[str] = field(default_factory=list)
    ranges: bool = True
    stated: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def __enter__(self) -> Registry:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                registry.asked.append((self.path, self.headers.get("Range")))
                if self.path.startswith("/simple/toy/"):
                    self.give(registry.page().encode(), "text/html")
                elif (name := self.path.rpartition("/")[2]) in registry.files:
                    self.file(registry.files[name])
                else:
                    self.send_error(404)

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(registry.files[self.path.rpartition("/")[2]])))
                self.end_headers()

            def file(self, data: bytes) -> None:
                fault = registry.faults.pop(0) if registry.faults else ""
                if fault in ("busy", "gone"):
                    self.send_error(503 if fault == "busy" else 404)
                    return
                asked = self.headers.get("Range") if registry.ranges else None
                if asked is None:
                    self.give(data, "application/octet-stream", 200, fault)
                    return
                first, _, last = asked.removeprefix("bytes=").partition("-")
                if int(first) >= len(data):
                    self.send_error(416)
                    return
                self.give(data[int(first) : int(last) + 1 if last else None], "application/octet-stream", 206, fault)

            def give(self, data: bytes, kind: str, status: int = 200, fault: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                given = data[: len(data) // 2] if fault == "cut" else data
                registry.sent += len(given)
                self.wfile.write(given)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple/"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self) -> str:
        links = "".join(
            f'<a href="/files/{name}#sha256={self.stated.get(name, sha256(data))}">{name}</a>\n'
            for name, data in self.files.items()
        )
        return f"<!DOCTYPE html><html><body>{links}</body></html>"
