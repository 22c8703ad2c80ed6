"""Sources that nobody wrote: pieces of real ones, cut and mended, with what breaks readers between them.

The pieces are read from the pins when a run begins, where they are fetched; a handful of our own always takes part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from annotator.workspace import Workspace

ROOT = Path(__file__).parents[2]

OWN = {
    "python": [
        b"class A(B, metaclass=C):\n    x: int = 1\n    def f(self, a, *b, c=1, **d) -> 'A':\n        self.y = a.z\n",
        b"from . import (a as b, c)\nfrom ..m import *\nimport a.b.c as d, e\n",
        b"match x:\n    case {'a': [1, *rest]} if (y := rest):\n        async def g(): await y\n",
        b"f'{a!r:>{width}} {b=}' + rb'\\x00' + '''\n'''\nprint >>sys.stderr, 'python 2'\nexec 'x'\n",
        b"type X[T: int] = list[T]\ndef f[T](x: T) -> T: return x\n",
        b"@a.b(c)\n@d\nclass E: pass\nlambda x, /, y=1, *, z: (yield)\n",
        b"{% for x in y %}\nx = {{ y }}\n{% endfor %}\n",
    ],
    "cpp": [
        b"namespace a::b { template <class T, int N = 3> struct C : public D<T> { C(); ~C(); T f(int x) const; }; }\n",
        b"#define F(x) do { x; } while (0)\n#if A\nint g() {\n#else\nint h() {\n#endif\n}\n",
        b"__global__ void k(float* __restrict__ x) { x[0] = 1; }\nk<<<1, 2>>>(y);\n",
        b"C10_EXPORT at::Tensor& add_(at::Tensor& self, const at::Scalar& o);\n",
        b'TORCH_LIBRARY(ns, m) { m.def("f(int x) -> int"); m.impl("f", torch::kCUDA, &f); }\n',
        b"auto f = [&](auto&& x) -> decltype(auto) { return x; };\nbool operator<(const A&, const A&);\n",
        b'extern "C" { typedef struct { int a; } S; }\nusing X = Y<Z<int>>;\nenum class E : int { A = 1, B };\n',
    ],
}
JUNK = [
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\f", b"\t", b"\\\n", b"\xe9", "𝔘".encode(),
    "\u2028".encode(), b"# -*- coding: latin-1 -*-\n", b"# coding: rot13\n", b"#if 0\n", b"#endif\n", b"*/", b"/*",
    b"//\\\n",
    b"'''", b'"""', b"(", b"[" * 50, b"{", b"}" * 9, b";", b"<" * 40, b" " * 300, b"(" * 400, b"a." * 200,
    b"def ", b"class ", b"import ", b"from . import *", b"lambda: ", b"async ", b"self.", b" = ", b": ", b"::",
    b"template<", b"operator", b"@", b"...", b"!", b"$", b"`", b"?",
]  # fmt: skip


@cache
def pieces(language: str, files: int = 150, seed: int = 0) -> list[bytes]:
    """Pieces of sources: our own, and runs of lines of real files, if there are any here."""
    found = list(OWN[language])
    suffixes = {".py", ".pyi"} if language == "python" else {".h", ".cpp", ".cu", ".cuh"}
    trees = [Workspace.find(ROOT).tree(pin) for pin in ("verl", "trl", "vllm", "torch")]
    chance = random.Random(seed)
    there = (path for tree in trees if tree.is_dir() for path in tree.resolve().rglob("*"))
    paths = sorted(path for path in there if path.suffix in suffixes)
    for path in chance.sample(paths, min(files, len(paths))):
        lines = path.read_bytes().splitlines(keepends=True)
        for _ in range(6):
            start = chance.randrange(len(lines) + 1)
            found.append(b"".join(lines[start : start + chance.randrange(1, 25)]))
    return found


def endless(language: str, seed: int) -> Iterator[bytes]:
    """Sources made of pieces, each changed a few times."""
    chance, known = random.Random(seed), pieces(language)
    while True:
        data = b"".join(chance.choice(known) for _ in range(chance.randrange(1, 4)))
        for _ in range(chance.randrange(5)):
            data = chance.choice(CHANGES)(chance, data)
        yield data[:20_000]


def cut(chance: random.Random, data: bytes) -> bytes:
    """Without a part."""
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:]


def twice(chance: random.Random, data: bytes) -> bytes:
    """With a part of it once more."""
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:end] + data[end:]


def junk(chance: random.Random, data: bytes) -> bytes:
    """With something in it that breaks readers."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(JUNK) * chance.randrange(1, 3) + data[at:]


def noise(chance: random.Random, data: bytes) -> bytes:
    """With a few other bytes."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4) if changed else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def shuffled(chance: random.Random, data: bytes) -> bytes:
    """With its lines in another order."""
    lines = data.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


CHANGES: list[Callable[[random.Random, bytes], bytes]] = [cut, twice, junk, junk, noise, shuffled]
