"""`annotator check`: everything that the pages claim, checked in one pass. A part of the command line, hence on top.

Anchors and links of the readings, minimal code and contracts that steps name, proofs, and the links of the
built site where one has been built.
"""

from __future__ import annotations

from collections.abc import Iterator

from annotator import catalog, readings
from annotator.contracts import powers, proofs
from annotator.errors import did_you_mean, near_matches
from annotator.index import Index, build
from annotator.observations import model as observations
from annotator.readings import Problem
from annotator.workspace import Workspace


def check(workspace: Workspace) -> list[Problem]:
    """All that does not hold, in the order of the chain. Refreshes the index first."""
    build(workspace)
    with Index.open(workspace) as index:
        found = readings.check(workspace, index)
        found += _observations(workspace, index)
    found += _claims(workspace)
    found += [Problem(item.place, item.message) for item in proofs.check(workspace, of="cpu")]
    contracts = [catalog.contract(name) for name in catalog.names()]
    found += [Problem(item.place, item.message) for item in powers.check(workspace, contracts)]
    if (workspace.site / "index.html").is_file():
        from annotator.site import dead_links

        found += dead_links(workspace.site)
    return found


def notes(workspace: Workspace) -> list[Problem]:
    """Proofs of other devices that are stale. The site shows it; only such a device can renew them."""
    return [Problem(item.place, item.message) for item in proofs.check(workspace, of="others")]


def _observations(workspace: Workspace, index: Index) -> Iterator[Problem]:
    """Observations that are stale, and scenarios that were never run."""
    for page in readings.load(workspace):
        digest, seen = observations.scenario_digest(workspace, page.name), observations.read(workspace, page.name)
        place, remedy = f"walkthroughs/{page.name}", f"run `annotator observe {page.name}`"
        if seen is None:
            if digest:
                yield Problem(f"{place}{observations.SCENARIO}", f"expected observations, found none; {remedy}")
            continue
        steps = {step.id: readings.anchor(step, workspace, index).digest for step in page.steps}
        for reason in observations.stale(seen, digest, steps):
            yield Problem(f"{place}{observations.SUFFIX}", f"stale: {reason}; {remedy}")


def _claims(workspace: Workspace) -> Iterator[Problem]:
    """Steps that name a contract which the catalogue lacks."""
    for reference in readings.references(readings.load(workspace)):
        if reference.kind == "contract" and reference.target not in catalog.names():
            hint = did_you_mean(near_matches(reference.target, catalog.names()))
            yield Problem(reference.place, f"expected a contract of the catalogue, found {reference.target!r}; {hint}")
