"""A process that extracts: file numbers and paths come in by standard input, what is in them goes out.

Apart from the rest because it is the one module that runs in other processes. It is started by its name rather than
forked, so that a parent with threads and loaded libraries is no danger, and ends when its input does.

Messages are a length (8 bytes, little endian) and a marshalled value. In: a list of (number, path, language). Out: the
results, one a file, and the postings of the batch, name to packed numbers.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import struct
import sys
from typing import IO, Any

from annotator.index.extraction import extract


def receive(stream: IO[bytes]) -> Any:
    """The next message, or ``None`` at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return marshal.loads(body) if len(body) == size else None


def send(stream: IO[bytes], value: Any) -> None:
    """Writes one message."""
    body = marshal.dumps(value)
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def digest_of(data: bytes) -> bytes:
    """The digest by which content is known."""
    return hashlib.sha256(data).digest()[:16]


def stamp_of(status: os.stat_result) -> int:
    """When a file last changed in any way, in nanoseconds; archives set the modification time, so it is no proof."""
    return max(status.st_mtime_ns, status.st_ctime_ns)


def work(batch: list[tuple[int, str, str]]) -> tuple[list[Any], dict[bytes, bytes]]:
    """Extracts one batch. A file that cannot be read gives its number and the reason."""
    results: list[Any] = []
    postings: dict[bytes, list[int]] = {}
    for number, path, language in batch:
        try:
            with open(path, "rb") as stream:
                status, data = os.fstat(stream.fileno()), stream.read()
        except OSError as error:
            results.append((number, str(error.strerror or error)))
            continue
        try:
            found = extract(data, language)
        except Exception as error:  # one file that defeats us must not cost the others; the report names it
            results.append((number, f"could not be read: {type(error).__name__}: {error}"))
            continue
        for name in found.names:
            postings.setdefault(name, []).append(number)
        rows = [(number, order, *row) for order, row in enumerate(found.rows, 1)]
        imports = [(number, order, *row) for order, row in enumerate(found.imports)]
        facts = (digest_of(data), len(data), stamp_of(status), found.lines, found.identifiers, int(found.broken))
        results.append((number, facts, rows, imports))
    return results, {name: struct.pack(f"<{len(numbers)}I", *numbers) for name, numbers in postings.items()}


def main() -> None:
    """Serves batches until the input ends."""
    inward, outward = sys.stdin.buffer, sys.stdout.buffer
    while (batch := receive(inward)) is not None:
        send(outward, work(batch))


if __name__ == "__main__":
    main()
