"""How the sources are told: readings, their steps, and the anchors that hold them to pinned code.

`parse` turns Markdown into steps, `anchors` a step into a place in a pin, `lock` remembers the place in redundant
form, `relocate` finds it again in another version, `checking` says what does not hold. Rendering belongs to the site.
"""

from annotator.readings.anchors import Anchor, anchor
from annotator.readings.checking import Problem, check
from annotator.readings.links import Reference, references
from annotator.readings.lock import Record, read_anchors, record, write_anchors
from annotator.readings.parse import Reading, Step, load, parse, read_page
from annotator.readings.relocate import Drift, relocate

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
