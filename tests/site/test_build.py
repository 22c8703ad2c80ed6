"""The whole: a small site built by MkDocs, all links alive, nothing from elsewhere; the same steps with Zensical."""

import html
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from annotator.errors import ReadingError, SiteError
from annotator.site import build, dead_links, outside_resources, zensical
from annotator.workspace import Workspace

from .conftest import write

ROOT = Path(__file__).parents[2]


def change(workspace: Workspace, name: str, old: str, new: str) -> None:
    file = workspace.root / name
    text = file.read_text(encoding="utf-8")
    assert old in text
    write(file, text.replace(old, new))


@pytest.mark.slow
def test_a_site_is_built_whole(workspace: Workspace) -> None:
    folder = build(workspace)
    assert folder == workspace.site
    assert 'id="step-run"' in (folder / "a/run.html").read_text(encoding="utf-8")
    assert (folder / "source/demo/demo/main.py.html").is_file()
    assert dead_links(folder) == []
    assert outside_resources(folder) == []
    steps_need_no_script(folder / "a/run.html")


@pytest.mark.slow
def test_a_whole_site_has_every_file_and_no_dead_link(workspace: Workspace) -> None:
    folder = build(workspace, full=True)
    pages = sorted(
        file.relative_to(folder / "source/demo/demo").as_posix() for file in folder.rglob("source/**/*.html")
    )
    assert pages == ["__init__.py.html", "main.py.html", "maths.py.html", "other.py.html"]
    header, code = (folder / "source/demo/demo/main.py.html").read_text().split("</header>")
    assert "github.com" in header
    assert "github.com" not in code


def steps_need_no_script(page: object) -> None:
    """Every view of a step has a radio button, a label for it, and exactly one is chosen."""
    text = page.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    for views in re.findall(r'<div class="ann-views".*?</section>', text, re.DOTALL):
        radios = re.findall(r'<input type="radio" name="([^"]+)" id="([^"]+)" class="([^"]+)"( checked)?>', views)
        labels = re.findall(r'<label for="([^"]+)" class="([^"]+)">', views)
        panels = re.findall(r'<div class="ann-view ([^"]+)">', views)
        assert [(identity, view) for _, identity, view, _ in radios] == labels
        assert panels == ([view for _, _, view, _ in radios] or ["ann-reference"])
        assert sum(bool(checked) for *_, checked in radios) == bool(radios)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new", "error", "message"),
    [
        ("walkthroughs/b/scale.md", "Why a class.", "[gone](gone.md)", SiteError, "gone.md"),
        ("walkthroughs/b/scale.md", "Why a class.", "[gone](#gone)", SiteError, "'gone'"),
        (
            "walkthroughs/b/scale.md",
            "Why a class.",
            '<img src="https://example.org/a.png" alt="">',
            SiteError,
            "request",
        ),
        ("walkthroughs/b/scale.md", "id: scale", "idd: scale", ReadingError, "walkthroughs/b/scale.md:4"),
        ("mkdocs.yml", "site_name: Demo", "site_nam: Demo", SiteError, "site_nam"),
    ],
)
def test_what_is_wrong_is_one_line(
    workspace: Workspace, name: str, old: str, new: str, error: type[Exception], message: str
) -> None:
    change(workspace, name, old, new)
    with pytest.raises(error) as caught:
        build(workspace)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_after_an_error_the_site_of_before_stays(workspace: Workspace) -> None:
    page = build(workspace) / "b/scale.html"
    before = page.read_text(encoding="utf-8")
    change(workspace, "walkthroughs/b/scale.md", "id: scale", "idd: scale")
    with pytest.raises(ReadingError):
        build(workspace)
    assert page.read_text(encoding="utf-8") == before
    change(workspace, "walkthroughs/b/scale.md", "idd: scale", "title: Another")
    assert "Another" in (build(workspace) / "b/scale.html").read_text(encoding="utf-8")


def test_without_configuration(workspace: Workspace) -> None:
    (workspace.root / "mkdocs.yml").unlink()
    with pytest.raises(SiteError, match="expected the site's configuration"):
        build(workspace)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed")
def test_zensical_renders_the_same_steps(workspace: Workspace) -> None:
    mkdocs = build(workspace)
    other = zensical(workspace, workspace.root / "zensical-site")
    for page in ("a/run.html", "b/scale.html"):
        assert code(other / page) == code(mkdocs / page) != []


@pytest.mark.slow
@pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed")
def test_both_engines_say_the_same_word_for_word() -> None:
    """All pages of the real site, which ``annotator build`` made before."""
    real = Workspace.find(ROOT)
    if not (real.site / "index.html").is_file():
        pytest.skip("no site is built here: annotator build")
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:  # on the disk of the site
        other = zensical(real, Path(folder, "site"))
        pages = [page.relative_to(real.readings).with_suffix(".html") for page in real.readings.rglob("*.md")]
        words = {page: (said(real.site / page), said(other / page)) for page in pages}
    assert [str(page) for page, (ours, theirs) in words.items() if ours != theirs] == []
    reading = words[Path("verl/grpo-advantage.html")][0]
    assert {"compute_advantage", "\u22120.7071,"} <= set(reading), "code and observations are among what is compared"


def said(page: Path) -> list[str]:
    """The words of an article."""
    (article,) = re.findall(r"<article.*?</article>", page.read_text(encoding="utf-8"), re.DOTALL)
    return html.unescape(re.sub(r"<a class=\"headerlink\".*?</a>|<[^>]*>", " ", article, flags=re.DOTALL)).split()


def code(page: object) -> list[str]:
    """The code blocks of a page, character by character."""
    text = page.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    return re.findall(r'<div class="ann-code".*?</pre></div>', text, re.DOTALL)
