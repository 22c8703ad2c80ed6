"""What is in the pins: definitions, imports and names of every source file, and what each identifier leads to.

Everything is extracted eagerly by tree-sitter, in parallel, into one SQLite file; resolving identifiers is lazy and
kept per file. ``languages`` parses, ``python`` and ``cpp`` extract, ``worker`` and ``building`` run that over all
files, ``store`` holds it, ``lookup`` answers, ``resolution`` links. No torch, no import of what is indexed.
"""

from annotator.index.building import build
from annotator.index.lookup import Index
from annotator.index.model import Definition, Link, Report, Use

__all__ = ["Definition", "Index", "Link", "Report", "Use", "build"]
