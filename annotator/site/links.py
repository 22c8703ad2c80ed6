"""What is wrong with built pages: dead links, what a browser would fetch from elsewhere, what the policy would silence.

Apart from building, so that ``annotator check`` and tests can look at a site that was built before. Pages are read
with one pattern for tags instead of a parser: a source page holds thousands of links and is checked in milliseconds.
Each is read once and its text is not kept, because a whole site is a gigabyte.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from annotator.readings import Problem
from annotator.site.policy import POLICY, is_data

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
    """A built page: what matters of its tags.

    Attributes:
        address: where it is. ids: what a fragment may name, but for lines.
        lines: the last line of a source page, each of which has an id; 0 elsewhere.
        links: all that it points at or loads, but links to its own ids that are alive.
        loads: what a browser would fetch from another host.
        inline: what the content security policy would silence.
    """

    address: str
    ids: frozenset[str]
    lines: int
    links: tuple[str, ...]
    loads: tuple[str, ...]
    inline: tuple[str, ...]

    @classmethod
    def read(cls, address: str, text: str) -> Page:
        """The page with that text."""
        shown = _HIDDEN.sub(lambda m: f"<{m[1]}{m[2]}>" if m[1] else "", text)
        tags = [(m[1].lower(), _attributes(m[2])) for m in _TAG.finditer(shown)]
        ids, lines = _ids(tags)
        found = dict.fromkeys(value for _, tag in tags for key, value in tag.items() if key in _LINKS)
        links = tuple(link for link in found if link[:1] != "#" or not _named(unquote(link[1:]), ids, lines))
        return cls(address, ids, lines, links, tuple(_loads(tags)), tuple(_inline(tags)))

    def has(self, fragment: str) -> bool:
        """Whether something on the page has that id."""
        return _named(fragment, self.ids, self.lines)


Tags = list[tuple[str, dict[str, str]]]


def problems(site: Path) -> list[Problem]:
    """All that is wrong with the pages of a built site."""
    known = pages(site)
    return [*dead_links(site, known), *outside_resources(site, known), *silenced(site, known)]


def pages(site: Path) -> dict[str, Page]:
    """Every page of a built site by its address."""
    names = {file.relative_to(site).as_posix(): file for file in sorted(site.rglob("*.html"))}
    return {name: Page.read(name, file.read_text(encoding="utf-8")) for name, file in names.items()}


def dead_links(site: Path, known: dict[str, Page] | None = None) -> list[Problem]:
    """Every internal link of the built site whose page, file or fragment is missing; others are not followed."""
    known = known or pages(site)
    files: dict[str, bool] = {}
    return [
        Problem(f"site/{page.address}", f"expected a live link, found {link!r}: {why}")
        for page in known.values()
        for link in page.links
        if not _SCHEME.match(link) and (why := _why_dead(link, page, known, site, files))
    ]


def silenced(site: Path, known: dict[str, Page] | None = None) -> list[Problem]:
    """What the content security policy would silence, and pages without one."""
    return [
        Problem(f"site/{page.address}", f"expected a page that its policy lets be, found {what}")
        for page in (known or pages(site)).values()
        for what in page.inline
    ]


def outside_resources(site: Path, known: dict[str, Page] | None = None) -> list[Problem]:
    """Everything that opening a page would fetch from another host: scripts, styles, fonts, images; not links."""
    found = [
        Problem(f"site/{page.address}", f"expected no request to another host, found {url!r}")
        for page in (known or pages(site)).values()
        for url in page.loads
    ]
    for sheet in sorted(site.rglob("*.css")):
        urls = (a or b for a, b in _CSS_URL.findall(sheet.read_text(encoding="utf-8")))
        place = f"site/{sheet.relative_to(site).as_posix()}"
        found += [
            Problem(place, f"expected no request to another host, found {url!r}") for url in urls if _REMOTE.match(url)
        ]
    return found


def _ids(tags: Tags) -> tuple[frozenset[str], int]:
    """The ids of a page, and the last line if each line up to it has one."""
    named = {value for _, tag in tags for key in ("id", "name") if (value := tag.get(key))}
    lines = {value for value in named if _LINE.fullmatch(value)}
    last = max((int(value[1:]) for value in lines), default=0)
    return (frozenset(named - lines), last) if last == len(lines) else (frozenset(named), 0)


def _named(fragment: str, ids: frozenset[str], lines: int) -> bool:
    return fragment in ids or bool(_LINE.fullmatch(fragment) and int(fragment[1:]) <= lines)


def _loads(tags: Tags) -> Iterator[str]:
    for tag, attributes in tags:
        url = attributes.get("href", "")
        if tag == "link" and _REMOTE.match(url) and _FETCHED_RELATIONS.search(attributes.get("rel", "")):
            yield url
        if tag != "a":
            yield from (
                attributes[key] for key in ("src", "poster", "data", "srcset") if _REMOTE.match(attributes.get(key, ""))
            )


def _inline(tags: Tags) -> Iterator[str]:
    """Scripts, styles and handlers that stand in a page itself, and links that are scripts."""
    if not any(tag == "meta" and attributes.get("content") == POLICY for tag, attributes in tags):
        yield "none"
    for tag, attributes in tags:
        yield from (f"{name}= in <{tag}>" for name in attributes if name == "style" or name.startswith("on"))
        if tag == "style" or (tag == "script" and "src" not in attributes and not is_data(attributes.get("type", ""))):
            yield f"<{tag}> with content"
        if attributes.get("href", "").lower().startswith("javascript:"):
            yield f"a script in the link of <{tag}>"


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
