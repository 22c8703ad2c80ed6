"""Source pages: line ids, links, marks of steps, weight."""

import re
from pathlib import Path

import pytest

from annotator.errors import SiteError
from annotator.site import source
from annotator.site.atlas import current
from annotator.workspace import Workspace

from .conftest import MAIN, write


def page(workspace: Workspace, path: str = "demo/main.py") -> str:
    return source.page(current(workspace), "demo", path)


EXPECTED = [
    ("a line has an id", '<a class="n" id="L12" href="#L12">12</a>'),
    ("a definition has one too", '<b id="run"><i class="d">run</i></b>'),
    ("a link inside the pin, to a touched file", 'href="maths.py.html#L4"'),
    (
        "a link to a file without page goes upstream",
        'href="https://github.com/example/demo/blob/v1.2.3/demo/other.py#L4"',
    ),
    ("a step in the margin leads back", '<a class="m" href="../../../a/run.html#step-run" title='),
    ("the lines after it carry a bar", "12</a><u></u>"),
    ("the list of steps", '<a href="../../../a/run.html#step-run"><b>1</b> Scale first</a>'),
    ("source is text", "&lt;/script&gt;"),
    ("upstream", 'href="https://github.com/example/demo/blob/v1.2.3/demo/main.py"'),
    ("the outline", '<li class="d0"><a href="#L7"'),
    ("the stylesheet, relatively", 'href="../../../assets/code.css"'),
    ("version and licence", "demo 1.2.3"),
]


@pytest.mark.parametrize(("what", "fragment"), EXPECTED)
def test_a_source_page(workspace: Workspace, what: str, fragment: str) -> None:
    assert fragment in page(workspace), what


def test_the_text_of_the_file_is_there_whole(workspace: Workspace) -> None:
    import html

    (code,) = re.findall(r"<main.*?<pre>(.*)</pre></main>", page(workspace), re.DOTALL)
    code = re.sub(r'<a class="[nm]".*?</a>', "", code)
    assert html.unescape(re.sub(r"<[^>]*>", "", code)) == MAIN


def addresses(written: list[Path], folder: Path) -> list[str]:
    return [file.relative_to(folder / "source/demo/demo").as_posix().removesuffix(".html") for file in written]


def test_touched_files_have_a_page_then_linked_ones_then_all(workspace: Workspace, tmp_path: Path) -> None:
    atlas = current(workspace)
    assert addresses(source.write(atlas, tmp_path), tmp_path) == ["main.py", "maths.py"]
    upstream = 'href="https://github.com/example/demo/blob/v1.2.3/demo/other.py#L4"'
    assert upstream in (tmp_path / "source/demo/demo/main.py.html").read_text()
    atlas.address(atlas.index.definition("demo:demo.other.far"))
    assert addresses(source.write(atlas, tmp_path), tmp_path) == ["main.py", "maths.py", "other.py"]
    assert 'href="other.py.html#L4"' in (tmp_path / "source/demo/demo/main.py.html").read_text()
    atlas.whole = True
    assert addresses(source.write(atlas, tmp_path), tmp_path) == ["__init__.py", "main.py", "maths.py", "other.py"]


def test_other_processes_write_the_same(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ALONE", 1)
    monkeypatch.setattr(source, "BATCH", 1)
    atlas = current(workspace)
    atlas.whole = True
    alone, apart = (source.write(atlas, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert [file.read_text() for file in alone] == [file.read_text() for file in apart]
    assert len(alone) == 4


def test_a_page_made_of_the_same_is_taken_over(workspace: Workspace, tmp_path: Path) -> None:
    before, site = tmp_path / "before", tmp_path / "site"
    (first, second) = source.write(current(workspace), before)
    (taken, _) = source.write(current(workspace), site, before=before)
    assert taken.samefile(first)
    reading = workspace.readings / "a/run.md"
    write(reading, reading.read_text().replace("title: Scale first", "title: Another title"))
    (anew, kept) = source.write(current(workspace), tmp_path / "third", before=before)
    assert not anew.samefile(first)
    assert "Another title" in anew.read_text()
    assert "Another title" not in first.read_text()
    assert kept.samefile(second)


def test_a_page_is_written_anew_without_harm_to_the_one_it_was_taken_from(workspace: Workspace, tmp_path: Path) -> None:
    (first, *_) = source.write(current(workspace), tmp_path / "before")
    source.write(current(workspace), tmp_path / "site", before=tmp_path / "before")
    text = first.read_text()
    atlas = current(workspace)
    atlas.whole = True
    source.write(atlas, tmp_path / "site")
    assert first.read_text() == text != (tmp_path / "site/source/demo/demo/main.py.html").read_text()


def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(workspace: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "source", "a file where a folder must be")
    with pytest.raises(SiteError, match="expected a page that can be written"):
        source.write(current(workspace), tmp_path)


def test_progress_is_told(workspace: Workspace, tmp_path: Path) -> None:
    told: list[object] = []

    class Watcher:
        def start(self, task: str, total: int | None) -> None:
            told.append(total)

        def advance(self, task: str, amount: int) -> None:
            told.append(amount)

        def finish(self, task: str) -> None:
            told.append("end")

    source.write(current(workspace), tmp_path, Watcher())
    assert told == [2, 1, 1, "end"]


def test_long_files_are_laid_out_in_chunks_and_stay_light(workspace: Workspace) -> None:
    text = "".join(f"def f{n}(values):\n    return [value + {n} for value in values]\n" for n in range(1500))
    write(workspace.tree("demo") / "demo/main.py", MAIN + "\n\n" + text)
    from annotator.index import build

    build(workspace)
    html = page(workspace)
    assert html.count("<code>") == 31
    lines = re.findall(r'id="L\d+"', html)
    assert len(lines) == len(set(lines)) == MAIN.count("\n") + 2 + 3000
    assert (len(html) - len(text)) / len(text) < 12
