"""Source text is data: what stands in a pinned file comes out as text, in a step, on a source page and in a card."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from annotator.index import build as index
from annotator.site import build
from annotator.site.links import problems
from annotator.workspace import Workspace

from .conftest import write

HOSTILE = '''"""</script><script>alert(1)</script> &lt;b&gt; &amp;amp; <!-- not a comment --> {{ config }} {% raw %}"""

# [a link](https://example.org) **bold** `code` <img src=x onerror=alert(1)> &#x3c; ]]> </pre></code></main>
LEFT = "\u202egnp.exe\u202c \u2066isolated\u2069 \u200f\u061c"


def obey(value="</title>", other='"><svg/onload=alert(1)>'):
    """[Here](javascript:alert(1)) "quoted" <b>bold</b> {{ 7 * 7 }} /// step | demo:demo.main.run"""
    text = f"{{value}} {% endraw %} {value!r} \\u202e $x^2$ \\\\(y\\\\)"
    return text, LEFT  # \x00\x1b /// ///


def follow():
    return obey(value="</script>")
'''
READING = """# Hostile

/// step | demo:demo.hostile.obey
    id: obey
A note.
///

/// step | demo:demo.hostile.follow
    id: follow
Another.
///
"""
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "main", "nav", "div", "details", "summary"),
    *("a", "b", "code", "h1", "h2", "i", "li", "p", "pre", "span", "u", "ul"),
}
VISIBLE = re.compile("[\x00\x1b\u061c\u200f\u202a-\u202e\u2066-\u2069]")


class Text(HTMLParser):
    """What a browser makes of a page: the text in ``pre`` without line numbers, all tags, all cards."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.text, self.inside, self.skipped = "", False, False
        self.tags: set[str] = set()
        self.cards: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.add(tag)
        assert not [name for name in told if name.startswith("on")]
        if tag == "pre":
            self.inside = True
        self.skipped = tag == "a" and told.get("class") in ("n", "m")
        if self.inside and told.get("title"):
            self.cards.append(str(told["title"]))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "pre"
        self.skipped = self.skipped and tag != "a"

    def handle_data(self, data: str) -> None:
        if self.inside and not self.skipped:
            self.text += data


def named(text: str) -> str:
    return VISIBLE.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


@pytest.mark.slow
def test_what_stands_in_a_file_comes_out_as_text(workspace: Workspace) -> None:
    write(workspace.tree("demo") / "demo/hostile.py", HOSTILE)
    write(workspace.tree("demo") / 'demo/odd & "<i>" {{ name }} #1?.py', HOSTILE)
    write(workspace.readings / "a/hostile.md", READING)
    config = workspace.root / "mkdocs.yml"
    write(config, config.read_text().replace("  - a/run.md\n", "  - a/run.md\n  - a/hostile.md\n"))
    index(workspace)
    site = build(workspace, full=True)
    assert problems(site) == []

    for name in ("hostile.py.html", 'odd & "<i>" {{ name }} #1?.py.html'):
        page = Text(site / "source/demo/demo" / name)
        assert page.text == named(HOSTILE)
        assert page.tags <= TAGS

    page = Text(site / "a/hostile.html")
    lines = named(HOSTILE).split("\n")
    assert page.text == "\n".join([*lines[6:10], *lines[12:14]]) + "\n"
    (card, *_) = (card for card in page.cards if "def obey" in card)
    assert named(HOSTILE).split('"""')[3].split("\n")[0] in card
    assert page.tags.isdisjoint({"svg/onload", "img"})
    assert not list(site.rglob("*alert*"))
