"""A slice of the fuzzing, with other inputs than the long runs had; a broken promise is found and made small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from annotator.console import Bar
from annotator.index.blanking import blank, blank_more
from annotator.index.registering import _Cpp
from tests.fuzz import __main__ as fuzz
from tests.fuzz.targets import SLOWER, TARGETS, linked

SLICE = 250
WAYS = [*((name, "pieces") for name in TARGETS), *((name, "hypothesis") for name in ("links-python", "links-cpp"))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_slice(name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "KEPT", tmp_path)
    inputs = -(-SLICE // (SLOWER.get(name, 1) if way == "pieces" else 5))
    with Bar("inputs") as bar:
        found = fuzz.run(name, inputs, sys.hexversion, bar, way)
    assert (found["inputs"], found["broken"]) == (inputs, {})


def test_a_broken_promise_is_found_and_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(data: bytes) -> None:
        assert b"::" not in data

    monkeypatch.setattr(fuzz, "KEPT", tmp_path)
    monkeypatch.setitem(TARGETS, "text", ("cpp", refuses))
    with Bar("inputs") as bar:
        (kept,) = fuzz.run("text", 200, 0, bar)["broken"].values()  # type: ignore[attr-defined]
    assert Path(kept).read_bytes() == b"::"


@pytest.mark.parametrize(
    ("language", "data"),
    [
        ("cpp", b'<>o="",::g'),
        ("cpp", b"c PIt::Tensor s()m."),
        ("python", b"\xef\xbb\xbf\xef\xbb\xbfl=r"),
        ("python", b"if l:\n ({}[\n\xef\xbb\xbfs=m"),
    ],
)
def test_what_once_broke(language: str, data: bytes) -> None:
    linked(data, language)


@pytest.mark.parametrize("piece", [b"<", b"<<<", b"k<<<1>>>", b"A(", b"#if a\n", b"__attribute__("])
def test_hiding_takes_time_like_the_length(piece: bytes) -> None:
    data = piece * (64_000 // len(piece))
    assert fuzz.broken(lambda data: blank_more(blank(data)), data) == ""


@pytest.mark.parametrize("before", [b"", b"TORCH_LIBRARY(a, m) {"])
@pytest.mark.parametrize("piece", [b"TORCH_LIBRARY(", b"TORCH_LIBRARY(a, m) {", b'm.def("', b"m.impl(a, ", b"{"])
def test_registrations_take_time_like_the_length(before: bytes, piece: bytes) -> None:
    data = before + piece * (64_000 // len(piece))
    assert fuzz.broken(lambda data: list(_Cpp(data).read()), data) == ""
