"""How the sources are told: readings, their steps, and the anchors that hold them to pinned code.

`parsing` turns Markdown into steps, `anchors` a step into a place in a pin, `lock` remembers the place in redundant
form, `relocating` finds it again in another version, `checking` says what does not hold. Rendering belongs to the site.
Names load on first use: who only reads the lock needs no parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotator import lazy

if TYPE_CHECKING:
    from annotator.readings.anchors import Anchor, anchor
    from annotator.readings.checking import Problem, check
    from annotator.readings.links import Reference, references
    from annotator.readings.lock import Record, read_anchors, record, write_anchors
    from annotator.readings.parsing import Reading, Step, load, parse, read_page
    from annotator.readings.relocating import Drift, relocate

_HOMES = {
    "Anchor": "anchors",
    "Drift": "relocating",
    "Problem": "checking",
    "Reading": "parsing",
    "Record": "lock",
    "Reference": "links",
    "Step": "parsing",
    "anchor": "anchors",
    "check": "checking",
    "load": "parsing",
    "parse": "parsing",
    "read_anchors": "lock",
    "read_page": "parsing",
    "record": "lock",
    "references": "links",
    "relocate": "relocating",
    "write_anchors": "lock",
}

__all__ = [
    "Anchor",
    "Drift",
    "Problem",
    "Reading",
    "Record",
    "Reference",
    "Step",
    "anchor",
    "check",
    "load",
    "parse",
    "read_anchors",
    "read_page",
    "record",
    "references",
    "relocate",
    "write_anchors",
]

__getattr__ = lazy.names(__name__, _HOMES)
