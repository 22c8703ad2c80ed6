"""The content security policy: on every page, with nothing on it that the policy would silence."""

from pathlib import Path

import pytest

from annotator.site.links import silenced
from annotator.site.policy import POLICY, enforce

HEAD = '<html><head><meta charset="utf-8">'


def site(folder: Path, text: str, address: str = "a/b.html") -> Path:
    file = folder / address
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_inline_scripts_become_files(tmp_path: Path) -> None:
    page = site(tmp_path, f"{HEAD}<script>one()</script><script type='module'>two()</script><script>one()</script>")
    enforce(tmp_path)
    scripts = sorted((tmp_path / "assets").iterdir())
    assert sorted(script.read_text() for script in scripts) == ["one()", "two()"]
    text = page.read_text()
    assert text.count('src="../assets/inline.') == 3
    assert text.startswith(f'{HEAD}<meta http-equiv="Content-Security-Policy" content="{POLICY}">')
    assert "one()" not in text
    assert silenced(tmp_path) == []


def test_the_page_of_errors_is_served_under_any_address(tmp_path: Path) -> None:
    page = site(tmp_path, f"{HEAD}<script>one()</script>", "404.html")
    enforce(tmp_path)
    assert '<script src="/assets/inline.' in page.read_text()


@pytest.mark.parametrize(
    "text",
    ['<script src="a.js"></script>', '<script type="application/json">{"a": "b"}</script>', "<pre>&lt;script&gt;"],
)
def test_what_needs_no_moving_stays(tmp_path: Path, text: str) -> None:
    page = site(tmp_path, HEAD + text)
    enforce(tmp_path)
    assert page.read_text().endswith(text)
    once = page.read_text()
    enforce(tmp_path)
    assert page.read_text() == once
    assert silenced(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('<p style="color: red">', "style= in <p>"),
        ("<style>p { color: red }</style>", "<style> with content"),
        ('<button onclick="go()">', "onclick= in <button>"),
        ('<a href="javascript:go()">', "a script in the link of <a>"),
    ],
)
def test_what_would_be_silenced_is_told(tmp_path: Path, text: str, what: str) -> None:
    site(tmp_path, HEAD + text)
    enforce(tmp_path)
    (found,) = silenced(tmp_path)
    assert what in found.message


def test_a_page_without_policy_and_with_a_script_is_told(tmp_path: Path) -> None:
    site(tmp_path, f"{HEAD}<script>one()</script>")
    assert [problem.message.rpartition("found ")[2] for problem in silenced(tmp_path)] == [
        "none",
        "<script> with content",
    ]
