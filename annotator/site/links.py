"""What the built pages point at: dead links, and anything that a browser would fetch from elsewhere.

Apart from building, so that ``annotator check`` and tests can look at a site that was built before. Pages are read
with one pattern for tags instead of a parser: a source page holds thousands of links and is checked in milliseconds.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from annotator.readings import Problem

_HIDDEN = re.compile(r"<!--.*?-->|<(script|style)\b([^>]*)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"""<([a-zA-Z][\w-]*)((?:[^<>"']|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
_LINE = re.compile(r"L[1-9]\d*")
_SCHEME = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*:|//)")
_REMOTE = re.compile(r"(?:https?:)?//", re.IGNORECASE)

_LINKS = {"href", "src", "poster", "data"}
_FETCHED_RELATIONS = re.compile(
    r"\b(stylesheet|icon|preload|prefetch|preconnect|modulepreload|manifest|dns-prefetch)\b"
)


@dataclass(frozen=True)
class Page:
    """A built page: its address, and its file. Its text is not kept: a whole site is a gigabyte."""

    address: str
    file: Path

    def tags(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every opening tag with its attributes; scripts and styles keep theirs and lose their content."""
        shown = _HIDDEN.sub(lambda m: f"<{m[1]}{m[2]}>" if m[1] else "", self.file.read_text(encoding="utf-8"))
        return ((m[1].lower(), _attributes(m[2])) for m in _TAG.finditer(shown))

    @cached_property
    def ids(self) -> tuple[frozenset[str], int]:
        """What a fragment may name, and the last line of a source page, which has an id for each (0 elsewhere)."""
        named = [value for _, tag in self.tags() for key in ("id", "name") if (value := tag.get(key))]
        lines = {int(value[1:]) for value in named if _LINE.fullmatch(value)}
        last = max(lines, default=0)
        if last != len(lines):
            return frozenset(named), 0
        return frozenset(value for value in named if not _LINE.fullmatch(value)), last

    def has(self, fragment: str) -> bool:
        """Whether something on the page has that id."""
        named, last = self.ids
        return fragment in named or bool(_LINE.fullmatch(fragment) and int(fragment[1:]) <= last)

    def links(self) -> Iterator[str]:
        """Every address that the page points at or loads."""
        for _, attributes in self.tags():
            yield from (value for key, value in attributes.items() if key in _LINKS)


def dead_links(site: Path) -> list[Problem]:
    """Every internal link of the built site whose page, file or fragment is missing; others are not followed."""
    pages = _pages(site)
    files: dict[str, bool] = {}
    return [
        Problem(f"site/{page.address}", f"expected a live link, found {link!r}: {why}")
        for page in pages.values()
        for link in dict.fromkeys(page.links())
        if not _SCHEME.match(link) and (why := _why_dead(link, page, pages, site, files))
    ]


def outside_resources(site: Path) -> list[Problem]:
    """Everything that opening a page would fetch from another host: scripts, styles, fonts, images; not links."""
    found = [
        Problem(f"site/{page.address}", f"expected no request to another host, found {url!r}")
        for page in _pages(site).values()
        for url in _loads(page)
    ]
    for sheet in sorted(site.rglob("*.css")):
        urls = (a or b for a, b in _CSS_URL.findall(sheet.read_text(encoding="utf-8")))
        place = f"site/{sheet.relative_to(site).as_posix()}"
        found += [
            Problem(place, f"expected no request to another host, found {url!r}") for url in urls if _REMOTE.match(url)
        ]
    return found


def _loads(page: Page) -> Iterator[str]:
    for tag, attributes in page.tags():
        url = attributes.get("href", "")
        if tag == "link" and _REMOTE.match(url) and _FETCHED_RELATIONS.search(attributes.get("rel", "")):
            yield url
        if tag != "a":
            yield from (
                attributes[key] for key in ("src", "poster", "data", "srcset") if _REMOTE.match(attributes.get(key, ""))
            )


def _pages(site: Path) -> dict[str, Page]:
    files = sorted(site.rglob("*.html"))
    return {name: Page(name, file) for file in files for name in [file.relative_to(site).as_posix()]}


def _attributes(text: str) -> dict[str, str]:
    return {m[1].lower(): html.unescape(m[2] or m[3] or m[4] or "") for m in _ATTRIBUTE.finditer(text)}


def _why_dead(link: str, page: Page, pages: dict[str, Page], site: Path, files: dict[str, bool]) -> str:
    path, _, fragment = link.partition("#")
    path = unquote(path.partition("?")[0])
    if path.startswith("/"):
        return "" if page.address == "404.html" else "it begins at the server's root, and the site may lie under a path"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page.address), path)) if path else page.address
    target = "index.html" if target == "." else f"{target}/index.html" if path.endswith("/") else target
    if target not in files:
        files[target] = target in pages or (not target.startswith("..") and (site / target).exists())
    if not files[target]:
        return f"no {target}"
    known = pages.get(target)
    if fragment and known and not known.has(unquote(fragment)) and fragment != "__codelineno":
        return f"no {fragment!r} in {target}"
    return ""
