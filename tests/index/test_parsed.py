"""One file as a tree: nodes, values and bindings, whatever the indentation and the letters before them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from annotator.index.parsed import Binding, Parsed
from tests.index.trees import indexed

SOURCE = '''class Shelf:
    def __init__(self, books: list):
        self.books = books
    def read(self, how, other: "Shelf" = None):
        text = """
no indentation here
"""; first = Shelf(how)
        if how:
            chosen = first
        else:
            chosen = other
        chosen.books; größe = Shelf(1); größe.books
        a, (b, c) = how
        for chosen in how:
            use(chosen, a, b)
        with how as opened, (inner := how):
            opened
        def nested(deep=1):
            return deep, first
        return [item for item in how if item], nested
TOP = Shelf([])
TOP.books
'''


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parsed]:
    with indexed(tmp_path_factory.mktemp("parsed"), lib={"shelf.py": SOURCE}) as opened:
        yield Parsed(opened, "lib", "shelf.py")


def kinds(found: list[Binding]) -> list[tuple[str, int, int | None]]:
    return [(one.kind, one.node.start_point.row + 1, one.part) for one in found]


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        (9, "first", [("assignment", 7, None)]),
        (12, "chosen", [("assignment", 9, None), ("assignment", 11, None)]),
        (15, "chosen", [("for_statement", 14, None)]),
        (15, "a", [("assignment", 13, 0)]),
        (15, "b", [("assignment", 13, -1)]),
        (11, "other", [("parameter", 4, None)]),
        (19, "deep", [("parameter", 18, None)]),
        (19, "first", [("assignment", 7, None)]),
        (17, "opened", []),
        (22, "TOP", []),
    ],
)
def test_bindings(parsed: Parsed, line: int, name: str, expected: list[tuple[str, int, int | None]]) -> None:
    node = next(node for node in parsed.words(name) if node.start_point.row + 1 == line and node.type == "identifier")
    assert kinds(parsed.bindings(node)) == expected


@pytest.mark.parametrize(
    ("line", "text", "sure"),
    [(7, "Shelf(how)", True), (12, "größe", True), (12, "chosen", True), (9, "first", True), (22, "TOP", False)],
)
def test_values(parsed: Parsed, line: int, text: str, sure: bool) -> None:
    start = parsed.source.split(b"\n")[line - 1].index(text.encode())
    node = parsed.tree.root_node.descendant_for_point_range((line - 1, start), (line - 1, start + len(text.encode())))
    assert node is not None
    assert parsed.text(node) == text
    value = parsed.value(node)
    assert value.entry is not None
    assert (value.kind, value.entry.name, value.sure) == ("instance", "Shelf", sure)


def test_places_count_characters(parsed: Parsed) -> None:
    second = list(parsed.words("größe"))[1]
    assert parsed.place(second) == (12, 40)
    assert parsed.node_at(12, 40) == second
    assert parsed.within(second) == "lib:shelf.Shelf.read"
    assert parsed.line(second).startswith("chosen.books;")


def test_strings_are_whole(parsed: Parsed) -> None:
    assert list(parsed.strings(["no indentation here"])) == []
