"""`check`: silent over sound readings, and each fault named with its file and line."""
# ruff: noqa: E501 (rows of tables)

from __future__ import annotations

from collections.abc import Callable

import pytest

from annotator.readings import check, load, references, write_anchors

from .conftest import Place

PAGE = "walkthroughs/pin/spread.md"


def problems(place: Place) -> list[str]:
    return [str(problem) for problem in check(place.workspace, place.index)]  # type: ignore[arg-type]


def test_sound_readings_have_no_problem(place: Place) -> None:
    write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    assert problems(place) == []


# One fault each: what is done, at which line it is reported, and what is said.
FAULTS: list[tuple[Callable[[Place], None], str, str]] = [
    (lambda p: p.source("0.0) + score", "0.0) - score"), f"{PAGE}:6", "nearest: line 15 `total[group] = total.get(group, 0.0) - score"),
    (lambda p: p.source("0.0) + score", "0.0) - score"), f"{PAGE}:6", "(changed at pkg/mod.py:15: the statements around"),
    (lambda p: p.source("means = {group: total", "means = {group: t0tal"), f"{PAGE}:10", "found lines 17 to 18 of pkg/mod.py changed"),
    (lambda p: p.source("    total = {}\n", "    total = {}\n\n"), f"{PAGE}:5", "found another lines; run annotator anchors"),
    (lambda p: p.source("def put", "def putt"), f"{PAGE}:18", "no 'pin:pkg.mod.Box.put'; did you mean"),
    (lambda p: p.source("def put", "def putt"), f"{PAGE}:18", "(gone: its statements"),
    (lambda p: p.reading("pin.pkg.mod.halve", "pin.pkg.mod.havle"), f"{PAGE}:15", "did you mean pin:pkg.mod.halve"),
    (lambda p: p.reading("#step-means", "#step-mean"), f"{PAGE}:19", "found no 'step-mean'"),
    (lambda p: p.reading("#step-means", "other.md"), f"{PAGE}:19", "found no 'other.md'"),
    (lambda p: p.reading("Why the sum", "Why [x](../gone.md#a) the sum"), f"{PAGE}:7", "found no '../gone.md#a'"),
    (lambda p: p.reading("id: means", "id: avg"), f"{PAGE}:10", "expected the step in anchors.lock"),
    (lambda p: p.reading("id: means", "id: avg"), "walkthroughs/anchors.lock", "expected a step 'pin/spread#means', found none"),
    (lambda p: p.reading("title: The", "tilte: The"), f"{PAGE}:14", "did you mean title"),
    (lambda p: p.reading('to: "if not means:"', 'to: "not means"'), f"{PAGE}:10", "found another quotes"),
    (lambda p: p.reading("from: 'total", "minimal: post.mod.f\n    from: 'total"), f"{PAGE}:6", "found none"),
    (lambda p: p.write("walkthroughs/anchors.lock", "{"), "anchors.lock", "expected what annotator anchors writes"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "where", "words"), FAULTS)
def test_each_fault_is_named(place: Place, fault: Callable[[Place], None], where: str, words: str) -> None:
    place.write("minimal/post/mod_torch.py", "def g(): ...\n")
    write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    fault(place)
    found = problems(place)
    assert [p for p in found if p.startswith(f"{where}: ") and words in p], found
    assert not [p for p in found if "\n" in p]


def test_a_missing_lock_names_every_step(place: Place) -> None:
    assert [p for p in problems(place) if "expected the step in anchors.lock" in p].__len__() == 3


@pytest.mark.parametrize(
    ("torch", "jax", "words"),
    [
        ("def f(): ...", "def f(): ...", None),
        ("def f(): ...", "def g(): ...", "expected 'f' in minimal/post/mod_jax.py"),
        ("def f(): ...", None, "expected minimal/post/mod_jax.py, found none"),
        ("x = 1", "def f(): ...", "expected 'f' in minimal/post/mod_torch.py"),
    ],
)
def test_minimal_code_must_be_there(place: Place, torch: str, jax: str | None, words: str | None) -> None:
    place.reading("from: 'total", "minimal: post.mod.f\n    from: 'total")
    write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    place.write("minimal/post/mod_torch.py", torch)
    if jax is not None:
        place.write("minimal/post/mod_jax.py", jax)
    found = problems(place)
    assert found == [] if words is None else [p for p in found if words in p]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See [`a`][pin.b.c].", [("symbol", "pin.b.c")]),
        ("See [the\nthing][pin.b.c] and [an\nother](b.md).", [("symbol", "pin.b.c"), ("page", "b.md")]),
        ("`a\nb` [c][pin.b.c]", [("symbol", "pin.b.c")]),
        ('/// step | pin:pkg.mod.spread\n    from: "x[a][b.c]"\nnote\n///', []),
        ("See [`pin.b.c`][].", [("symbol", "pin.b.c")]),
        ("`[a][pin.b.c]` and x[1][2.0]", []),
        ("```\n[a][pin.b.c]\n```", []),
        ("[a][paper]\n\n[paper]: https://example.org", []),
        ("[a](b.md) [c](https://example.org) ![d](e.svg)", [("page", "b.md"), ("page", "e.svg")]),
        ("[a](<b.md> 'title')", [("page", "b.md")]),
    ],
)
def test_references(place: Place, text: str, expected: list[tuple[str, str]]) -> None:
    place.write(PAGE, f"# T\n\n{text}\n")
    assert [(r.kind, r.target) for r in references(load(place.workspace))] == expected


def test_references_know_their_step(place: Place) -> None:
    place.reading("id: means", "contract: some\n    id: means")
    found = references(load(place.workspace))
    assert [(r.kind, r.target, r.step, r.place) for r in found if r.kind == "contract"] == [
        ("contract", "some", "means", f"{PAGE}:13")
    ]
    assert [r.step for r in found if r.kind == "symbol"] == ["means"]
