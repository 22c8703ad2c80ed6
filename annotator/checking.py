"""`annotator check`: everything that the pages claim, checked in one pass. A part of the command line, hence on top.

Anchors and links of the readings, contracts that steps name, minimal code that steps show, proofs, and the links of the
built site where one has been built.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from annotator import catalog, readings
from annotator.contracts import proofs
from annotator.errors import did_you_mean, near_matches
from annotator.index import Index, build
from annotator.readings import Problem
from annotator.workspace import Workspace


def check(workspace: Workspace) -> list[Problem]:
    """All that does not hold, in the order of the chain: anchors, links, claims, proofs, site. Refreshes the index first."""
    build(workspace)
    with Index.open(workspace) as index:
        found = readings.check(workspace, index)
    found += _claims(workspace)
    found += [Problem(item.place, item.message) for item in proofs.check(workspace)]
    if (workspace.site / "index.html").is_file():
        from annotator.site import dead_links

        found += dead_links(workspace.site)
    return found


def _claims(workspace: Workspace) -> Iterator[Problem]:
    """Steps that name a contract or a minimal function which is not there."""
    for reading in readings.load(workspace):
        for step in reading.steps:
            place = f"walkthroughs/{reading.path}:{step.line}"
            named = step.options.get("contract")
            if named and named not in catalog.names():
                yield Problem(place, f"no contract {named!r}; {did_you_mean(near_matches(named, catalog.names()))}")
            if "minimal" in step.options:
                yield from _minimal(workspace, place, step.options["minimal"])


def _minimal(workspace: Workspace, place: str, dotted: str) -> Iterator[Problem]:
    module, _, function = dotted.rpartition(".")
    for backend in ("torch", "jax"):
        path = workspace.root / "minimal" / f"{module.replace('.', '/')}_{backend}.py"
        if not path.is_file():
            yield Problem(place, f"no file minimal/{path.relative_to(workspace.root / 'minimal')}")
        elif function not in {node.name for node in ast.parse(path.read_text("utf-8")).body if hasattr(node, "name")}:
            yield Problem(place, f"no function {function!r} in minimal/{path.relative_to(workspace.root / 'minimal')}")
