"""`python -m tests.fuzz [--inputs N] [--seed S] [--target NAME]… [--by WAY] [--json]`: exit code 1 if a promise broke.

By ``pieces`` inputs are mutated pieces of real sources; by ``hypothesis`` they are made up; by ``atheris`` the fuzzer
of that name searches by coverage (`pip install atheris`), one target a run. A broken input is made small and kept
under ``.fuzz/``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from annotator.console import Bar
from tests.fuzz.inputs import endless, pieces
from tests.fuzz.targets import SLOWER, TARGETS

KEPT = Path(".fuzz")
SLOW = 5.0
"""Seconds of the processor that no input may take."""

MEMORY = 4 << 30
"""Bytes that the whole run may take."""


def broken(target: Callable[[bytes], object], data: bytes) -> str:
    """The kind of failure of an input; empty if all holds."""
    start = time.process_time()
    try:
        target(data)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {last.name}, {Path(last.filename).name}:{last.lineno}"
    return "too slow" if time.process_time() - start > SLOW else ""


def smaller(target: Callable[[bytes], object], data: bytes, kind: str) -> bytes:
    """A smaller input that fails alike: halves, then lines, then single bytes are left out while it still does."""
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            if broken(target, shorter) == kind:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def made_up(language: str, inputs: int, seed: int) -> Iterator[bytes]:
    """Inputs by hypothesis, a thousand at a time."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    from tests.fuzz.grammar import sources

    made: list[bytes] = []
    for start in range(0, inputs, 1000):
        quiet = settings(
            max_examples=min(1000, inputs - start), database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        seeded(seed * 1_000_003 + start)(quiet(given(sources(language))(lambda data: made.append(data))))()
        yield from made
        made.clear()


def run(name: str, inputs: int, seed: int, bar: Bar, by: str = "pieces") -> dict[str, object]:
    """Feeds one target, and gives what became of it."""
    language, target = TARGETS[name]
    source = endless(language, seed) if by == "pieces" else made_up(language, inputs, seed)
    found: dict[str, str] = {}
    start, done = time.perf_counter(), 0
    bar.start(name, inputs)
    for data in islice(source, inputs):
        done += 1
        kind = broken(target, data)
        if kind and kind not in found:
            KEPT.mkdir(exist_ok=True)
            small = smaller(target, data, kind) if kind != "too slow" else data
            file = KEPT / f"{name}-{hashlib.sha256(small).hexdigest()[:8]}"
            file.write_bytes(small)
            found[kind] = str(file)
        bar.advance(name, 1)
    bar.finish(name)
    seconds = round(time.perf_counter() - start, 1)
    return {"target": name, "by": by, "inputs": done, "seconds": seconds, "broken": found}


def by_coverage(name: str, inputs: int, seed: int) -> None:
    """Hands one target to atheris, which ends the process."""
    import atheris

    language, target = TARGETS[name]
    corpus = KEPT / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, piece in enumerate(pieces(language, files=30)):
        (corpus / str(number)).write_bytes(piece)
    atheris.instrument_all()
    options = [
        f"-runs={inputs}",
        f"-seed={seed + 1}",
        "-max_len=4000",
        f"-timeout={SLOW:.0f}",
        f"-artifact_prefix={KEPT}/",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


def main() -> int:
    """Runs the targets and reports."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="for each target; slow ones get a share of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--by", choices=("pieces", "hypothesis", "atheris"), default="pieces")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.target or list(TARGETS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if options.by == "atheris":
        if len(names) != 1:
            parser.error("atheris takes one --target")
        by_coverage(names[0], options.inputs, options.seed)
    with Bar("inputs") as bar:
        rows = [run(name, -(-options.inputs // SLOWER.get(name, 1)), options.seed, bar, options.by) for name in names]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(
                f"{row['target']:<15} {row['inputs']:>9,} inputs {row['seconds']:>7} s  {row['broken'] or 'all held'}"
            )
    return int(any(row["broken"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
