"""The Python-Markdown extension: blocks ``step``, ``contract`` and ``concepts``, and references to symbols in prose.

The only thing that MkDocs and Zensical both run, so everything a reading needs at render time is here and no hook or
plugin is used. Neither engine tells an extension which page it renders; the page is known by the digest of its text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from markdown.util import INLINE_PLACEHOLDER_RE, AtomicString
from pymdownx.blocks import BlocksExtension
from pymdownx.blocks.block import Block, type_any

from annotator.errors import ReadingError
from annotator.readings.parsing import OPTIONS
from annotator.site import atlas as maps
from annotator.site import code, sections, step
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.readings import Reading
    from annotator.site.atlas import Atlas, Place

_TAGS = re.compile(r"<[^>]*>")
_REFERENCE = r"\[(?P<text>[^\[\]]+)\]\[(?P<symbol>[A-Za-z_][\w.:-]*)?\]"

FRESH = 0.5
"""Seconds. A page is made of hundreds of small texts (docstrings), and for each every file would be looked at."""


class Render:
    """What is known while one page is rendered: the atlas, the reading, and the steps that have come out so far."""

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._atlas: Atlas | None = None
        self._looked = -FRESH
        self.reading: Reading | None = None
        self.done = 0

    def begin(self, text: str) -> None:
        """A page begins: find out which."""
        self.reading = self.atlas.page(text)
        self.done = 0

    @property
    def atlas(self) -> Atlas:
        """The map of the workspace as it is now, or was a moment ago: whether a file changed is asked rarely."""
        if self._atlas is None or time.monotonic() - self._looked > FRESH:
            self._workspace = self._workspace or Workspace.find()
            self._atlas, self._looked = maps.current(self._workspace), time.monotonic()
        return self._atlas

    @property
    def page(self) -> str | None:
        """The address of the page, if it is one of the workspace's."""
        return maps.page_address(self.reading.path) if self.reading else None

    @property
    def places(self) -> tuple[Place, ...]:
        """The steps of the page."""
        return self.atlas.places[self.reading.path] if self.reading else ()

    def known(self, asked: str) -> Reading:
        """The page that is rendered, which the block ``asked`` needs to know.

        Raises:
            ReadingError: the text is no page of the workspace.
        """
        if self.reading is None:
            found, remedy = "text that is none", "save the page"
            raise ReadingError(asked, expected="a page under walkthroughs/", found=found, remedy=remedy)
        return self.reading

    def next(self, symbol: str) -> Place:
        """The step that the next block is.

        Raises:
            ReadingError: the text is no page of the workspace, or its steps are not those that were parsed.
        """
        reading = self.known(f"step | {symbol}")
        if self.done >= len(self.places) or self.places[self.done].step.symbol != symbol:
            raise ReadingError(reading.path, expected="the steps as parsed", found=f"another step, {symbol}")
        self.done += 1
        return self.places[self.done - 1]


class StepBlock(Block):  # type: ignore[misc]
    """``/// step | pin:symbol``: a heading, where it is, the note, and the code."""

    NAME = "step"
    ARGUMENT = True
    OPTIONS: Mapping[str, tuple[Any, Any]] = dict.fromkeys(OPTIONS, (None, type_any))

    def on_create(self, parent: Element) -> Element:
        """The section, with everything but the code, which is added when the note has ended."""
        render: Render = self.config["render"]
        place = self.place = render.next(self.argument)
        if place.number == 1:
            _raw(
                self.md,
                SubElement(parent, "div", {"class": "ann-map-place"}),
                step.overview(render.atlas, render.places),
            )
        section = SubElement(parent, "section", {"class": "ann-step"})
        self.note = SubElement(section, "div", {"class": "ann-note"})
        SubElement(self.note, "h3", {"id": place.id}).text = place.title
        _raw(self.md, SubElement(self.note, "div", {"class": "ann-head"}), step.head(render.atlas, place))
        return section

    def on_add(self, block: Element) -> Element:
        """The block's text is the note."""
        return self.note

    def on_end(self, block: Element) -> None:
        """The note has ended: the code follows."""
        render: Render = self.config["render"]
        _raw(self.md, SubElement(block, "div", {"class": "ann-side"}), step.body(render.atlas, self.place))


class ContractBlock(Block):  # type: ignore[misc]
    """``/// contract | name``: the page of a contract below its lead, which is the block's own text."""

    NAME = "contract"
    ARGUMENT = True

    def on_create(self, parent: Element) -> Element:
        """The lead, which Markdown fills."""
        render: Render = self.config["render"]
        page = render.known(self.argument)
        self.contract = sections.contract_of(self.argument, page.path, page.title)
        whole = SubElement(parent, "div", {"class": "ann-method"})
        self.lead = SubElement(whole, "div", {"class": "ann-lead"})
        return whole

    def on_add(self, block: Element) -> Element:
        """The block's text is the lead."""
        return self.lead

    def on_end(self, block: Element) -> None:
        """The lead has ended: all that is gathered follows."""
        render: Render = self.config["render"]
        page = str(render.page)
        _raw(self.md, SubElement(block, "div"), sections.about(render.atlas, self.contract, page))
        for section in sections.sections(render.atlas, self.contract, page):
            SubElement(block, "h2", {"id": section.id}).text = section.title
            _raw(self.md, SubElement(block, "div", {"class": f"ann-part ann-{section.id}"}), section.html)


class ConceptsBlock(Block):  # type: ignore[misc]
    """``/// concepts``: the map of all contracts by library."""

    NAME = "concepts"
    ARGUMENT = False

    def on_create(self, parent: Element) -> Element:
        """The map."""
        render: Render = self.config["render"]
        page = render.known("concepts")
        whole = SubElement(parent, "div", {"class": "ann-method"})
        _raw(self.md, SubElement(whole, "div"), sections.concepts(render.atlas, maps.page_address(page.path)))
        return whole


class _Begin(Preprocessor):
    def __init__(self, md: Markdown, render: Render) -> None:
        super().__init__(md)
        self.render = render

    def run(self, lines: list[str]) -> list[str]:
        self.render.begin("\n".join(lines))
        return lines


class _AllSteps(Postprocessor):
    """A step that the block engine left as text would vanish without a word; this makes it an error."""

    def __init__(self, md: Markdown, render: Render) -> None:
        super().__init__(md)
        self.render = render

    def run(self, text: str) -> str:
        render = self.render
        if render.reading and render.done < len(render.reading.steps):
            missing = render.reading.steps[render.done]
            raise ReadingError(
                missing.place(),
                expected="a step",
                found="a block that Markdown takes for text",
                remedy="take it out of HTML and lists",
            )
        return text


class _Symbols(InlineProcessor):
    """``[`DataProto`][verl.protocol.DataProto]`` or ``[verl.protocol.DataProto][]``: a link to where it is read.

    Names that the pins do not hold are left for autorefs, which knows the API pages.
    """

    def __init__(self, md: Markdown, render: Render) -> None:
        super().__init__(_REFERENCE, md)
        self.render = render

    def handleMatch(self, m: re.Match[str], data: str) -> Any:  # type: ignore[override]  # noqa: N802
        """The link, as stashed HTML: MkDocs would look for its target among the pages and warn."""
        name = m["symbol"] or _TAGS.sub("", self._shown(m["text"]))
        if name.lower() in self.md.references or not (target := self.render.atlas.symbol(name)):
            return None, None, None
        href = maps.relative(self.render.atlas.address(target), self.render.page or "index.html")
        title = code.attribute(step.tip(target))
        shown = self._shown(m["text"])
        link = f'<a class="ann-symbol" href="{code.attribute(href)}" title="{title}">{shown}</a>'
        return self.md.htmlStash.store(link), m.start(0), m.end(0)

    def _shown(self, text: str) -> str:
        """The link's text as HTML: earlier patterns (code, escapes) have left placeholders in it."""
        stash = self.md.treeprocessors["inline"].stashed_nodes  # type: ignore[attr-defined]
        pieces = INLINE_PLACEHOLDER_RE.split(text)
        return "".join(
            self._stashed(stash.get(piece)) if odd % 2 else code.escape(piece) for odd, piece in enumerate(pieces)
        )

    def _stashed(self, value: Element | str | None) -> str:
        return self.md.serializer(value) if isinstance(value, Element) else code.escape(value or "")


def _raw(md: Markdown, element: Element, html: str) -> None:
    """Put finished HTML into the tree; no later processor sees it."""
    element.text = AtomicString(md.htmlStash.store(html))


class SiteExtension(BlocksExtension):  # type: ignore[misc]
    """Registers the above. Option ``root``: the workspace or its folder (default: found from the working folder)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.config = {"root": ["", "The folder of the workspace; empty: found from the working folder"]}
        super().__init__(*args, **kwargs)

    def extendMarkdownBlocks(self, md: Markdown, block_mgr: Any) -> None:  # noqa: N802 (pymdownx's name)
        """Called by pymdownx for every converter."""
        root = self.getConfig("root")
        render = Render(root if isinstance(root, Workspace) else Workspace.find(Path(root)) if root else None)
        for block in (StepBlock, ContractBlock, ConceptsBlock):
            block_mgr.register(block, {"render": render})
        md.preprocessors.register(_Begin(md, render), "annotator-begin", 1000)
        md.inlinePatterns.register(_Symbols(md, render), "annotator-symbols", 172)
        md.postprocessors.register(_AllSteps(md, render), "annotator-steps", 0)


def makeExtension(**options: Any) -> Extension:  # noqa: N802 (Markdown's name)
    """Python-Markdown's way in."""
    return SiteExtension(**options)
