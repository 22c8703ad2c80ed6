"""A process that extracts: file numbers and paths come in by standard input, what is in them goes out.

Apart from the rest because it is the one module that runs in other processes. It is started by its name rather than
forked, so that a parent with threads and loaded libraries is no danger, and ends when its input does.

Messages are a length (8 bytes, little endian) and a marshalled value. In: a list of (number, path, language). Out: the
results, one a file, and the postings of the batch, name to packed numbers.

Some nonsense costs the parsers time and memory that grow with the square of its length, and nothing in the process can
stop them; so a file has its time, the process its memory, and one that oversteps ends. The build then goes on without
the file.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import struct
import sys
from contextlib import suppress
from typing import IO, Any

from annotator.index.extraction import extract
from annotator.index.store import digest_of, stamp_of

PATIENCE = 10.0
"""Seconds of the processor for a file, and for each half million bytes of it; real ones take a hundredth."""

MEMORY = 4 << 30
"""Bytes for the process; 10 MB of source take a quarter."""


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
        operators = [(number, order, *row) for order, row in enumerate(found.operators)]
        facts = (digest_of(data), len(data), stamp_of(status), found.lines, found.identifiers, int(found.broken))
        results.append((number, facts, rows, imports, operators))
    return results, {name: struct.pack(f"<{len(numbers)}I", *numbers) for name, numbers in postings.items()}


def bounded(batch: list[tuple[int, str, str]], patience: float) -> tuple[list[Any], dict[bytes, bytes]]:
    """Extracts one batch; the process is killed if the batch takes far longer than such a batch can."""
    sizes = [os.path.getsize(path) if os.path.exists(path) else 0 for _, path, _ in batch]
    signal.setitimer(signal.ITIMER_PROF, patience * (1 + sum(sizes) / 5e5))
    done = work(batch)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return done


def main(patience: float = PATIENCE) -> None:
    """Serves batches until the input ends, or the process that gave them does."""
    gc.disable()  # trees hold no cycles, and looking for some costs a tenth of the time
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    inward, outward = sys.stdin.buffer, sys.stdout.buffer
    with suppress(BrokenPipeError):
        while (batch := receive(inward)) is not None:
            send(outward, bounded(batch, patience))


if __name__ == "__main__":
    main()
