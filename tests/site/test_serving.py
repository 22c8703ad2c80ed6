"""The preview: a page whose text changed is built alone and comes out as in a whole build; all else builds it all."""

from collections.abc import Callable

import pytest

from annotator.errors import ReadingError
from annotator.site import build
from annotator.site.serving import LEFT, Preview
from annotator.workspace import Workspace

from .conftest import CONFIG, write

pytestmark = pytest.mark.slow

PAGE = "walkthroughs/b/scale.md"


def change(workspace: Workspace, name: str, old: str, new: str) -> None:
    file = workspace.root / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    write(file, text.replace(old, new))


def started(workspace: Workspace) -> Preview:
    preview = Preview(workspace)
    preview.start()
    return preview


def test_a_page_alone_is_what_it_is_in_the_whole(workspace: Workspace) -> None:
    write(workspace.root / "mkdocs.yml", CONFIG.replace("plugins: []", "plugins: [search]"))
    preview = started(workspace)
    page, other, index = (workspace.site / name for name in ("b/scale.html", "a/run.html", "search/search_index.json"))
    before, stamp = index.read_bytes(), other.stat().st_mtime_ns
    change(workspace, PAGE, "Why a class.", "Why a class, and [where](../a/run.md#step-run).")
    told = preview.again()
    assert told.startswith(f"{PAGE}: shown after")
    assert told.endswith(LEFT)
    assert index.read_bytes() == before
    assert other.stat().st_mtime_ns == stamp
    alone = page.read_text()
    assert "and <a href" in alone
    build(workspace)
    assert page.read_text() == alone
    assert index.read_bytes() != before
    assert preview.again() == "nothing changed"


def fresh(workspace: Workspace) -> None:
    write(workspace.readings / "b/new.md", "# New\n")


def gone(workspace: Workspace) -> None:
    (workspace.readings / "b/scale.md").unlink()
    change(workspace, "mkdocs.yml", "  - b/scale.md\n", "")


WHOLE: list[Callable[[Workspace], None]] = [
    lambda workspace: change(workspace, PAGE, "id: scale", "id: scaled"),
    lambda workspace: change(workspace, PAGE, "# Scaling", "# Scales"),
    lambda workspace: change(workspace, PAGE, "demo.maths.Scale", "demo.maths.Scale.apply"),
    lambda workspace: change(workspace, PAGE, "Why a class.", "[gone](gone.md)"),
    lambda workspace: change(workspace, "minimal/topic/thing_torch.py", "Twice", "Two times"),
    lambda workspace: change(workspace, "mkdocs.yml", "site_name: Demo", "site_name: Other"),
    fresh,
    gone,
]


@pytest.mark.parametrize("edit", WHOLE)
def test_what_other_pages_may_show_brings_a_whole_build(
    workspace: Workspace, edit: Callable[[Workspace], None]
) -> None:
    preview = started(workspace)
    edit(workspace)
    assert preview.again().startswith("the whole site")
    assert preview.again() == "nothing changed"


def test_after_an_error_the_page_of_before_stays(workspace: Workspace) -> None:
    preview = started(workspace)
    page = workspace.site / "b/scale.html"
    before = page.read_text()
    change(workspace, PAGE, "id: scale", "idd: scale")
    with pytest.raises(ReadingError):
        preview.again()
    assert page.read_text() == before
    change(workspace, PAGE, "idd: scale", "id: scale")
    assert preview.again().endswith(LEFT) or page.read_text() == before
