"""What is in the pins: definitions, imports and names of every source file, and what each identifier leads to.

Everything is extracted eagerly by tree-sitter, in parallel, into one SQLite file; resolving identifiers is lazy and
kept per file. ``languages`` parses, ``python`` and ``cpp`` extract, ``worker`` and ``building`` run that over all
files, ``store`` holds it, ``lookup`` answers, ``calls`` says who calls what, ``certainty`` how sure the links are.
``names`` follows names across files, ``resolution`` classes; ``linking`` asks them for each identifier of a file, by
the values that ``evaluating`` finds (with ``scoping``, ``flow``, ``narrowing``, ``arithmetic``, ``library``) and by
what the ``bodies`` of other definitions tell. ``registries`` says what a name in a string stands for, ``configuration``
what declares and reads a key, ``metrics`` what computes one; ``parsed`` is one file as a tree for these. No torch, no
import of what is indexed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from annotator.index.lookup import Index
from annotator.index.model import Call, Definition, Link, Registration, Report, Use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from annotator.pins import Progress
    from annotator.workspace import Workspace

__all__ = ["Call", "Definition", "Index", "Link", "Registration", "Report", "Use", "build"]


def build(
    workspace: Workspace,
    names: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
    jobs: int | None = None,
    fresh: bool = False,
) -> Report:
    """Brings the index up to date; see ``building.build``, which is imported here because a query needs none of it."""
    from annotator.index import building

    return building.build(workspace, names, progress=progress, jobs=jobs, fresh=fresh)
