"""The block `step` and references to symbols, as Python-Markdown renders them."""

import re
from html.parser import HTMLParser

import pytest
from markdown import Markdown

from annotator import observations
from annotator.errors import PinError, ReadingError
from annotator.index import build as index
from annotator.observations import Observed
from annotator.workspace import Workspace

from .conftest import SECOND, write


def render(workspace: Workspace, name: str = "a/run.md", front: bool = False) -> str:
    """The page as an engine renders it: without its front matter, unless told otherwise."""
    text = (workspace.readings / name).read_text(encoding="utf-8")
    body = text if front else re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    md = Markdown(
        extensions=["toc", "annotator.site.extension"],
        extension_configs={"annotator.site.extension": {"root": workspace}},
    )
    return md.convert(body)


def edit(workspace: Workspace, old: str, new: str, name: str = "a/run.md") -> None:
    file = workspace.readings / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    write(file, text.replace(old, new))


EXPECTED = [
    ("the heading carries the step's id", '<h3 id="step-run">Scale first</h3>'),
    ("a step without title has its symbol's name", '<h3 id="step-total">total</h3>'),
    ("the note is Markdown", "<p>The <strong>note</strong> with <code>code</code>"),
    ("file and lines", 'href="../source/demo/demo/main.py.html#L11">demo/main.py</a>'),
    ("permalink upstream", 'href="https://github.com/example/demo/blob/v1.2.3/demo/main.py#L11-L12"'),
    ("pin and version", "demo 1.2.3"),
    ("the symbol without its module", 'in <span class="ann-file">run</span>'),
    ("a line has an id for deep links", 'id="step-run-L12"'),
    ("a line number leads to the source page", '<a class="n" href="../source/demo/demo/main.py.html#L12">12</a>'),
    ("an identifier leads to the step that shows it", 'href="#step-total"'),
    ("an identifier leads to a step of another reading", 'href="../b/scale.html#step-scale"'),
    ("an identifier outside leads to its source page", 'href="../source/demo/demo/other.py.html#L4"'),
    ("signature and docstring head stand in the title", "Sum of ``values`` &lt;all of them&gt;"),
    (
        "tabs are radio buttons",
        '<input type="radio" name="step-run-view" id="step-run-reference" class="ann-reference" checked>',
    ),
    ("with labels", '<label for="step-run-jax" class="ann-jax">JAX</label>'),
    ("a minimal twin", '<i class="c"># torch &amp; &lt;more&gt;</i>'),
    ("with its file", '<p class="ann-caption">minimal/topic/thing_jax.py:9</p>'),
    ("the other", '<i class="c"># jax &amp; &lt;more&gt;</i>'),
    ("a symbol in prose", '<a class="ann-symbol" href="#step-total" title="def total(values)'),
    ("with its code", "<code>total</code></a>"),
    ("a symbol that is its own text", "<code>demo.maths.total</code></a>"),
    ("a symbol outside", '<a class="ann-symbol" href="../source/demo/demo/other.py.html#L4"'),
    ("a symbol in a note, with plain text", ">a symbol</a>"),
    ("the map of the reading", '<li><a href="#step-run">Scale first</a>'),
    ("code stays out of the search index", '<div class="ann-views" data-search-exclude>'),
]


@pytest.mark.parametrize(("what", "fragment"), EXPECTED)
def test_a_reading_is_rendered(workspace: Workspace, what: str, fragment: str) -> None:
    assert fragment in render(workspace), what


def test_front_matter_may_be_there_or_not(workspace: Workspace) -> None:
    assert 'id="step-run"' in render(workspace, front=True)


def test_the_common_indentation_is_dropped(workspace: Workspace) -> None:
    (code,) = re.findall(r'<span class="l" id="step-run-L11">.*?<code>(.*?)\n</code>', render(workspace), re.DOTALL)
    assert code.startswith("scaled = ")


def test_plumbing_is_folded_unless_the_step_is_about_it(workspace: Workspace) -> None:
    file = workspace.tree("demo") / "demo/main.py"
    checks = "    assert values\n    assert len(values) < 9\n    scaled"
    write(file, file.read_text(encoding="utf-8").replace("    scaled", checks, 1))
    index(workspace)
    edit(workspace, 'from: "scaled', 'from: "assert values"\n    to: "scaled')
    edit(workspace, '\n    to: "return total(scaled)"', "")
    (fold,) = re.findall(r"<details.*?</details>", render(workspace), re.DOTALL)
    assert "<summary>2 lines: checks</summary>" in fold
    assert 'id="step-run-L11"' in fold
    assert 'id="step-run-L13"' not in fold
    edit(workspace, "    id: run\n", "    id: run\n    fold: none\n")
    assert "<details" not in render(workspace)


def test_the_map_tells_calls_processes_and_the_order_of_a_run(workspace: Workspace) -> None:
    edit(workspace, "    id: total\n", "    id: total\n    runs: worker\n")
    (plan,) = re.findall(r'<nav class="ann-map".*?</nav>', render(workspace), re.DOTALL)
    assert 'calls <a href="#step-total" title="total">2</a>' in plan
    assert plan.count(">calls ") == 1
    assert '<span class="ann-runs">worker</span>' in plan
    assert "another order" not in plan
    for order, shown in ((("total", "run"), True), (("run", "total"), False)):
        observations.write(workspace, Observed("a/run", "x", {}, {}, ({"n": 1}, {"n": 2}), {}, order))
        assert ("another order" in render(workspace)) == shown


def test_a_step_without_other_views_has_no_tabs(workspace: Workspace) -> None:
    assert "<input" not in render(workspace, "b/scale.md")


def test_no_two_elements_share_an_id(workspace: Workspace) -> None:
    ids = re.findall(r'\bid="([^"]+)"', render(workspace))
    assert len(ids) == len(set(ids))


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in {"input", "wbr", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_elements_are_closed_in_order(workspace: Workspace) -> None:
    parser = Balance()
    parser.feed(render(workspace))
    assert parser.open == []


def test_certainty_is_a_class(workspace: Workspace) -> None:
    classes = set(re.findall(r'<a class="(\w+)" href', render(workspace)))
    assert "exact" in classes
    assert classes <= {"exact", "inferred", "n"}


ERRORS = [
    ("demo:demo.main.run", "demo:demo.main.runn", "walkthroughs/a/run.md:9"),
    ('from: "scaled = Scale(3).apply(values)"', 'from: "not there"', "walkthroughs/a/run.md:10"),
    ("minimal: topic.thing.double", "minimal: topic.thing.dubble", "walkthroughs/a/run.md:14"),
    ("minimal: topic.thing.double", "minimal: topic.none.double", "walkthroughs/a/run.md:14"),
    ("minimal: topic.thing.double", "contract: no-such-contract", "walkthroughs/a/run.md:14"),
    ("    title: Scale first", "    titel: Scale first", "walkthroughs/a/run.md:13"),
]


@pytest.mark.parametrize(("old", "new", "place"), ERRORS)
def test_an_error_carries_the_place_in_the_reading(workspace: Workspace, old: str, new: str, place: str) -> None:
    render(workspace)
    edit(workspace, old, new)
    with pytest.raises(ReadingError) as caught:
        render(workspace)
    assert str(caught.value).startswith(f"{place}: ")
    assert "\n" not in str(caught.value)


def test_a_step_that_the_block_engine_leaves_as_text_is_an_error(workspace: Workspace) -> None:
    edit(workspace, "# Scaling\n", "# Scaling\n\n<div>\n", "b/scale.md")
    with pytest.raises(
        ReadingError, match=r"^walkthroughs/b/scale\.md:5: expected a step, found a block that Markdown"
    ):
        render(workspace, "b/scale.md")


def test_a_step_outside_of_the_readings_is_an_error(workspace: Workspace) -> None:
    md = Markdown(
        extensions=["annotator.site.extension"], extension_configs={"annotator.site.extension": {"root": workspace}}
    )
    with pytest.raises(ReadingError, match="a page under walkthroughs/"):
        md.convert(SECOND + "\nnot saved\n")


def test_a_pin_that_was_not_fetched_is_an_error(workspace: Workspace) -> None:
    (workspace.tree("demo") / "demo/main.py").unlink()
    with pytest.raises((PinError, ReadingError)):
        render(workspace)


def test_an_edit_is_seen(workspace: Workspace) -> None:
    assert "Another title" not in render(workspace)
    edit(workspace, "Scale first", "Another title")
    assert "Another title" in render(workspace)


def test_an_unknown_name_is_left_to_others(workspace: Workspace) -> None:
    edit(workspace, "[a symbol][demo.maths.Scale.apply]", "[a symbol][annotator.site]")
    assert "[a symbol][annotator.site]" in render(workspace)


def test_a_name_of_a_minimal_file_leads_to_the_page_that_documents_it(workspace: Workspace) -> None:
    assert "minimal.topic.thing_jax" not in render(workspace)
    write(workspace.readings / "api.md", "# API\n\n::: minimal.topic.thing_jax\n")
    html = render(workspace)
    assert '<a class="exact" href="../api.html#minimal.topic.thing_jax.half" title="A half.">half</a>(values)' in html
    assert html.count("minimal.topic.thing_jax.half") == 1, "not in the docstring, not in the other twin"
