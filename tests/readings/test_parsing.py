"""Blocks: what is read, what is refused and where, and that pymdownx sees the same ones."""

from __future__ import annotations

from typing import ClassVar
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotator.errors import ReadingError
from annotator.readings import parse
from annotator.readings.parsing import OPTIONS, lines_of

STEP = "/// step | verl:verl.a.f\nA note.\n///\n"


def page(body: str) -> str:
    return f"# Title\n\n{body}"


def test_a_step_is_read() -> None:
    head = '/// step | verl:verl.a.f\n    from: "x = 1"\n    to: y\n    contract: some-name'
    text = page(f"Text.\n\n{head}\nFirst.\n\nSecond.\n///\n")
    reading = parse(text, "walkthroughs/verl/x.md")
    (step,) = reading.steps
    assert (reading.title, reading.name, step.pin, step.key) == ("Title", "verl/x", "verl", "verl/x#f")
    assert (step.line, step.last, step.begin, step.end, step.note) == (5, 12, "x = 1", "y", "First.\n\nSecond.")
    assert step.place() == "walkthroughs/verl/x.md:5"
    assert step.place("contract") == "walkthroughs/verl/x.md:8"


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (STEP * 3, ["f", "f-2", "f-3"]),
        (STEP + STEP.replace("A note", "    id: f\nA note"), ["f-2", "f"]),
        (STEP.replace("a.f", "a.Some_Class.__init__"), ["init"]),
        (STEP.replace("verl.a.f", "c10::Storage"), ["storage"]),
    ],
)
def test_ids(body: str, ids: list[str]) -> None:
    assert [step.id for step in parse(page(body), "x.md").steps] == ids


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("/// step | verl:a\n    form: x\nnote\n///", 4, "found 'form'; did you mean from?"),
        ("/// step | verl:a\n    banana: x\nnote\n///", 4, "a step may have from, to"),
        ("/// step | verl:a\n    from: a\n    from: b\nnote\n///", 5, "it twice"),
        ("/// step | verl:a\n    from: 12\nnote\n///", 4, "put it in quotes"),
        ("/// step | verl:a\n    from: [1, 2]\nnote\n///", 4, "found a list or mapping"),
        ("/// step | verl:a\n    from:\nnote\n///", 4, "expected text"),
        ("/// step | verl:a\n    from: x\n    to: 'y\nnote\n///", 5, "options as YAML"),
        ("/// step | verl:a\n    from: f(a)[b]: c: d\nnote\n///", 4, "options as YAML"),
        ("/// step | verl:a\n    just text\nnote\n///", 4, "no mapping"),
        ("/// step | verl:a\n    to: x\nnote\n///", 4, "only 'to'"),
        ("/// step | verl:a\n    id: no spaces\nnote\n///", 4, "expected an id"),
        ("/// step\nnote\n///", 3, "expected a symbol"),
        ("/// step | compute\nnote\n///", 3, "found 'compute'"),
        ("/// step | verl:a\n    from: x\n\n///", 3, "expected a note"),
        ("/// step | verl:a\nnote\n", 3, "close it with ///"),
        ("/// step | verl:a\nnote\n\n/// step | verl:b\nnote\n///", 3, "another one at line 6"),
        ("//// step | verl:a\nnote\n///\n", 3, "the end of the page"),
        ("text\n\n///\n", 5, "close nothing"),
        ("/// stpe | verl:a\nnote\n///\n", 3, "did you mean step?"),
        ("/// step | verl:a\n    id: z\nnote\n///\n\n/// step | verl:a\n    id: z\nnote\n///\n", 9, "which line 3 has"),
    ],
)
def test_errors_name_the_line(body: str, line: int, words: str) -> None:
    with pytest.raises(ReadingError) as caught:
        parse(page(body), "walkthroughs/verl/x.md")
    assert caught.value.place == f"walkthroughs/verl/x.md:{line}"
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_page_needs_a_title() -> None:
    with pytest.raises(ReadingError, match=r"x\.md:1: expected a title"):
        parse("## Only a section\n", "x.md")


# Each page, and the symbols of the steps in it, for us and for the engine that renders it.
PAGES = [
    (STEP, ["verl:verl.a.f"]),
    ("```\n" + STEP + "```\n", []),
    ("~~~ python\n" + STEP + "~~~\n\n" + STEP, ["verl:verl.a.f"]),
    ("````\n```\n" + STEP + "````\n", []),
    ("   " + STEP.replace("\n///", "\n  ///"), ["verl:verl.a.f"]),
    ("    " + STEP.replace("\n", "\n    "), []),
    ("//// step | verl:b\nnote\n\n/// note | Aside\ninner\n///\n\nmore\n////\n\n" + STEP, ["verl:b", "verl:verl.a.f"]),
    ("/// step | verl:b\nnote\n\n```\n///\n```\n\nmore\n///\n", ["verl:b"]),
    ("/// step | verl:b\n    from: 'a: b'\nnote\n///\n", ["verl:b"]),
    ("text\n/// step | verl:b\nnote\n///\ntext\n", ["verl:b"]),
]


@pytest.mark.parametrize(("body", "symbols"), PAGES)
def test_the_same_steps_as_pymdownx(body: str, symbols: list[str]) -> None:
    assert [step.symbol for step in parse(page(body), "x.md").steps] == symbols
    assert rendered(page(body)) == symbols


def rendered(text: str) -> list[str]:
    """The symbols of the step blocks that pymdownx finds, outer first."""
    markdown = pytest.importorskip("markdown")
    blocks = pytest.importorskip("pymdownx.blocks")
    block = pytest.importorskip("pymdownx.blocks.block")
    seen: list[str] = []

    class StepBlock(block.Block):  # type: ignore[misc, name-defined]
        NAME = "step"
        ARGUMENT = True
        OPTIONS: ClassVar = dict.fromkeys(OPTIONS, ("", block.type_string))

        def on_create(self, parent: ElementTree.Element) -> ElementTree.Element:
            seen.append(self.argument)
            return ElementTree.SubElement(parent, "div")

    class Steps(blocks.BlocksExtension):  # type: ignore[misc, name-defined]
        def extendMarkdownBlocks(self, md: object, block_mgr: object) -> None:  # noqa: N802
            block_mgr.register(StepBlock, {})  # type: ignore[attr-defined]

    markdown.Markdown(extensions=["pymdownx.superfences", Steps(), "pymdownx.blocks.admonition"]).convert(text)
    return seen


PIECES = [
    "/// step | a:b",
    "////",
    "///",
    "    from: x",
    "    to: 'y'",
    "    id: [",
    "```",
    "~~~",
    "text",
    "",
    "# T",
    "\t",
    "é\u2028",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=12))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    """Never another error than one that names a line of the page."""
    text = "\n".join(lines)
    error = refused(text)
    if error is None:
        steps = parse(text, "x.md").steps
        assert len({step.id for step in steps}) == len(steps)
        return
    path, _, line = error.place.partition(":")
    assert (path, "\n" in str(error)) == ("x.md", False)
    assert 1 <= int(line) <= len(lines_of(text))


def refused(text: str) -> ReadingError | None:
    try:
        parse(text, "x.md")
    except ReadingError as error:
        return error
    return None


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    text = page("a\u2028b\x0cc\n\n" + STEP).replace("\n", end)
    assert [step.line for step in parse(text, "x.md").steps] == [5]
