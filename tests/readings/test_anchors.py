"""Anchors by quotes: which lines they take, what is refused, and what becomes of them in a changed tree."""
# ruff: noqa: E501 (rows of tables)

from __future__ import annotations

import json

import pytest

from annotator.errors import PinError, ReadingError
from annotator.readings import Anchor, anchor, parse, read_anchors, record, relocate, write_anchors

from .conftest import SOURCE, Place

SPREAD = "pin:pkg.mod.spread"


def made(place: Place, symbol: str, begin: str | None = None, end: str | None = None) -> Anchor:
    options = "".join(
        f"    {name}: {json.dumps(quote)}\n" for name, quote in (("from", begin), ("to", end)) if quote is not None
    )
    step = parse(f"# T\n\n/// step | {symbol}\n{options}note\n///\n", "walkthroughs/pin/x.md").steps[0]
    return anchor(step, place.workspace, place.index)  # type: ignore[arg-type]


def shown(found: Anchor) -> tuple[str, str]:
    """The first and last line of the anchor, stripped."""
    lines = SOURCE.split("\n")
    return lines[found.first - 1].strip(), lines[found.last - 1].strip()


@pytest.mark.parametrize(
    ("symbol", "begin", "end", "first", "last"),
    [
        (SPREAD, None, None, '@registry.named("spread")', "return out"),
        ("pin:pkg.mod.Box", None, None, "class Box:", "return len(self.items) < self.limit"),
        ("pin:pkg.mod.Box.put", "self.items.append", None, "self.items.append(item)", "self.items.append(item)"),
        (SPREAD, "registry.named", None, '@registry.named("spread")', '@registry.named("spread")'),
        (SPREAD, "score - means[group]", None, "out = [", "]"),
        (SPREAD, "out = [ score", None, "out = [", "]"),
        (SPREAD, "for score, group in zip(scores, groups):", None, "for score, group in zip(scores, groups):", "count[group] = count.get(group, 0) + 1"),
        (SPREAD, "total = {}", "for score, group in zip(scores, groups):", "total = {}", "for score, group in zip(scores, groups):"),
        (SPREAD, "elif eps < 0", None, "elif eps < 0:", 'raise ValueError("eps must not be negative")'),
        (SPREAD, "check(means, eps) out", None, "check(means, eps)", "check(means, eps)"),
        (SPREAD, "count = {}", "score - means[group]", "count = {}", "]"),
        (SPREAD, "means = {group:", "means = {group:", "means = {group: total[group] / count[group] for group in total}", "means = {group: total[group] / count[group] for group in total}"),
    ],
)  # fmt: skip
def test_lines_of_an_anchor(
    place: Place, symbol: str, begin: str | None, end: str | None, first: str, last: str
) -> None:
    assert shown(made(place, symbol, begin, end)) == (first, last)


@pytest.mark.parametrize(
    ("symbol", "begin", "end", "line", "words"),
    [
        ("pin:pkg.mod.spraed", None, None, 3, "did you mean pin:pkg.mod.spread"),
        (
            SPREAD,
            "count[group] = count.get(group, 0) + 2",
            None,
            4,
            "nearest: line 16 `count[group] = count.get(group, 0) + 1`",
        ),
        (SPREAD, "zzzz", None, 4, "no line like it"),
        (SPREAD, "zip(scores, groups)", None, 4, "found 2 times, lines 14, 28; lengthen the quote"),
        (SPREAD, "return [value / 2", None, 4, "found none"),
        (SPREAD, "# the sum", None, 4, "found a comment"),
        (SPREAD, "return []", "total = {}", 5, "found it at line 12, before 19"),
        (SPREAD, "total = {}", "nowhere", 5, "'nowhere' once in"),
    ],
)
def test_what_cannot_be_anchored(
    place: Place, symbol: str, begin: str | None, end: str | None, line: int, words: str
) -> None:
    with pytest.raises(ReadingError) as caught:
        made(place, symbol, begin, end)
    assert caught.value.place == f"walkthroughs/pin/x.md:{line}"
    assert words in str(caught.value)


def test_a_missing_tree_says_what_to_do(place: Place) -> None:
    index = place.index
    place.workspace.tree("pin").rename(place.workspace.root / "away")
    step = parse(f"# T\n\n/// step | {SPREAD}\nnote\n///\n", "x.md").steps[0]
    with pytest.raises(PinError, match="run annotator fetch pin"):
        anchor(step, place.workspace, index)  # type: ignore[arg-type]


def test_equal_statements_are_told_apart_by_ordinal(place: Place) -> None:
    first = made(place, SPREAD, "check(means,\n              eps)\n    check", None)
    second = made(place, SPREAD, "check(means, eps) out")
    assert first.digest == second.digest
    assert (first.ordinal, second.ordinal) == (0, 1)


FROM = "total[group] = total.get(group, 0.0) + score"
# What is done to the pin, and what becomes of the anchor at FROM and of the one from "means =" to "if not means".
DRIFTS = [
    ("", "", "exact", "exact"),
    ("    total = {}\n", "    total = {}\n\n    # a comment\n", "moved", "moved"),
    ("total[group] = total.get(group, 0.0) + score", "total[group] = total.get(\n            group, 0.0\n        ) + score", "moved", "moved"),
    ("  # the sum", "  # another word", "exact", "exact"),
    ("0.0) + score", "0.0) - score", "changed", "exact"),
    ("0.0) + score", "0.1) + score", "changed", "exact"),
    ("/ count[group] for", "/ len(count) for", "exact", "changed"),
    ("def spread(", "def distance(", "moved", "moved"),
    ("def halve(values):\n    return [value / 2 for value in values]\n\n\n", "", "moved", "moved"),
    ("        total[group] = total.get(group, 0.0) + score  # the sum\n", "", "gone", "moved"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "one", "two"), DRIFTS)
def test_drift(place: Place, old: str, new: str, one: str, two: str) -> None:
    kept = [
        record(made(place, SPREAD, FROM), "1.0"),
        record(made(place, SPREAD, "means = {group:", "if not means:"), "1.0"),
    ]
    place.source(old, new)
    tree = place.workspace.tree("pin")
    assert [relocate(entry, tree, place.index).state for entry in kept] == [one, two]  # type: ignore[arg-type]


def test_moved_says_where(place: Place) -> None:
    kept = record(made(place, SPREAD, FROM), "1.0")
    place.source("    total = {}\n", "    total = {}\n\n\n")
    drift = relocate(kept, place.workspace.tree("pin"), place.index)  # type: ignore[arg-type]
    assert (drift.first, drift.path) == (kept.lines[0] + 2, "pkg/mod.py")


def test_the_second_of_two_equal_statements_is_found_again(place: Place) -> None:
    kept = record(made(place, SPREAD, "check(means, eps) out"), "1.0")
    place.source('"""A module to be read."""\n', "\n\n\n")
    drift = relocate(kept, place.workspace.tree("pin"), place.index)  # type: ignore[arg-type]
    assert (drift.state, drift.first) == ("moved", kept.lines[0] + 2)


def test_gone_with_its_file(place: Place) -> None:
    kept = record(made(place, SPREAD, FROM), "1.0")
    (place.workspace.tree("pin") / "pkg/mod.py").unlink()
    assert relocate(kept, place.workspace.tree("pin"), place.index).state == "gone"  # type: ignore[arg-type]


def test_the_lock_is_written_and_read(place: Place) -> None:
    changed = write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    assert changed == ["pin/spread#means", "pin/spread#put", "pin/spread#spread"]
    assert write_anchors(place.workspace, place.index) == []  # type: ignore[arg-type]
    found = read_anchors(place.workspace)
    assert found["pin/spread#means"] == record(made(place, SPREAD, "means = {group:", "if not means:"), "1.0")
    data = json.loads(place.workspace.anchors.read_text())
    assert list(data["anchors"]) == sorted(data["anchors"])


def test_the_lock_holds_no_source_but_the_quotes(place: Place) -> None:
    write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    text = place.workspace.anchors.read_text()
    assert "total[group] = total.get(group, 0.0) + score" in text
    assert "count" not in text
    assert "the sum" not in text


def test_a_failing_step_leaves_the_lock_alone(place: Place) -> None:
    write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    before = place.workspace.anchors.read_text()
    place.reading("if not means:", "if no means:")
    with pytest.raises(ReadingError):
        write_anchors(place.workspace, place.index)  # type: ignore[arg-type]
    assert place.workspace.anchors.read_text() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"anchors": {"a": 1}}', '{"anchors": {"a": {"odd": 1}}}'])
def test_a_broken_lock(place: Place, text: str) -> None:
    place.write("walkthroughs/anchors.lock", text)
    with pytest.raises(ReadingError, match="run annotator anchors"):
        read_anchors(place.workspace)
