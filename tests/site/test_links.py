"""Every link of a built site is followed; nothing is loaded from elsewhere. Each check fails on a planted fault."""

from pathlib import Path

import pytest

from annotator.site.links import dead_links, outside_resources


def site(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        file = folder / name.replace("__", "/")
        file = file.with_suffix(".html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


ALIVE = [
    '<a href="b/c.html">x</a>',
    '<a href="b/c.html#here">x</a>',
    '<a href="#mine" id="mine">x</a>',
    '<a href="#">x</a>',
    '<a id="L1" href="#L2">1</a><a id="L2" href="#L1">2</a>',
    '<a id="L2" href="#L2">2</a>',
    '<a href="https://example.org/nowhere">x</a>',
    '<a href="mailto:a@example.org">x</a>',
    "<a href='b/c.html?q=1#here'>x</a>",
    "<a href=b/c.html>x</a>",
    '<pre>&lt;a href="gone.html"></pre>',
    "<script>const s = '<a href=\"gone.html\">';</script>",
    '<!-- <a href="gone.html"> -->',
    '<a title="a > b" href="b/c.html">x</a>',
    '<a href="caf%C3%A9.html">x</a>',
]


@pytest.mark.parametrize("text", ALIVE)
def test_live_links(tmp_path: Path, text: str) -> None:
    built = site(tmp_path, index=text, b__c='<p id="here">', **{"café": ""})
    assert dead_links(built) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<a href="gone.html">x</a>', "no gone.html"),
        ('<a href="b/c.html#gone">x</a>', "no 'gone' in b/c.html"),
        ('<a href="#gone">x</a>', "no 'gone' in index.html"),
        ('<a id="L1" href="#L2">1</a>', "no 'L2' in index.html"),
        ('<a id="L2" href="#L1">2</a>', "no 'L1' in index.html"),
        ('<img src="gone.png">', "no gone.png"),
        ('<script src="gone.js"></script>', "no gone.js"),
        ('<a href="../outside.html">x</a>', "no ../outside.html"),
        ('<a href="/b/c.html">x</a>', "server's root"),
        ('<a title="a > b" href="gone.html">x</a>', "no gone.html"),
    ],
)
def test_a_planted_dead_link_is_found(tmp_path: Path, text: str, why: str) -> None:
    built = site(tmp_path / "site", index=text, b__c='<p id="here">')
    (tmp_path / "outside.html").write_text("")
    (found,) = dead_links(built)
    assert found.place == "site/index.html"
    assert why in found.message


@pytest.mark.parametrize(
    "text",
    [
        '<link rel="stylesheet" href="https://example.org/a.css">',
        '<link href="//example.org" rel="preconnect">',
        '<script src="http://example.org/a.js"></script>',
        '<img src="https://example.org/a.png">',
    ],
)
def test_a_planted_outside_resource_is_found(tmp_path: Path, text: str) -> None:
    assert len(outside_resources(site(tmp_path, index=text))) == 1


def test_outside_resources_in_stylesheets(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@import 'https://example.org/b.css'; a { background: url(//example.org/x.png) } b { background: url(x.png) }"
    )
    assert len(outside_resources(tmp_path)) == 2


@pytest.mark.parametrize(
    "text",
    ['<a href="https://example.org">x</a>', '<link rel="canonical" href="https://example.org">', '<img src="a.png">'],
)
def test_links_to_follow_are_no_resources(tmp_path: Path, text: str) -> None:
    assert outside_resources(site(tmp_path, index=text)) == []
