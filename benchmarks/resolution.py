"""How many of our links are right, as Markdown tables: beside scip-python, which infers types as Pyright does.

    python benchmarks/resolution.py [--pins trl,verl] [--scip-python PATH] [--fresh] [--json | --list]

A reference counts if scip-python leads from it to a definition in another file of the same pin. It agrees if our link
leads to the same line of the same file (to the same file, for a module). Every other one is listed under its cause,
which is computed from what both say; where someone looked into the sources, ``resolution.toml`` says who is right. That
changes no count. Needs Node; scip-python is installed into the user's cache if no PATH is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from annotator.console import Bar  # noqa: E402
from annotator.index import Index  # noqa: E402
from annotator.index.certainty import general  # noqa: E402
from annotator.index.model import Definition, Link  # noqa: E402
from annotator.workspace import Workspace  # noqa: E402
from benchmarks import scip  # noqa: E402
from benchmarks.scip import Place, Reference  # noqa: E402

PINS = ("trl", "verl")
AGREED = "agreed"


@dataclass(frozen=True)
class Verdict:
    """What became of one reference: ``cause`` is ``agreed``, or why not; ``detail`` is our side of it.

    ``reviewed`` says who is right and why, where someone looked.
    """

    reference: Reference
    cause: str
    detail: str = ""
    reviewed: str = ""


@dataclass(frozen=True)
class Measure:
    """One pin beside one peer. ``beyond``: our links to other files of which the peer says nothing, by certainty."""

    pin: str
    peer: str
    verdicts: tuple[Verdict, ...]
    beyond: Counter[str]

    @property
    def agreed(self) -> int:
        """How many references lead to the same place."""
        return sum(one.cause == AGREED for one in self.verdicts)

    @property
    def share(self) -> float:
        """Of all references."""
        return self.agreed / len(self.verdicts) if self.verdicts else 0.0

    def causes(self) -> list[tuple[str, list[Verdict]]]:
        """Disagreements by cause, the most frequent first."""
        found: dict[str, list[Verdict]] = {}
        for one in self.verdicts:
            if one.cause != AGREED:
                found.setdefault(one.cause, []).append(one)
        return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def place(target: Definition) -> Place:
    """Where a definition's name stands; a module is its file."""
    return target.path, 0 if target.kind == "module" else target.line


def judge(reference: Reference, link: Link | None, pin: str) -> Verdict:
    """Compares one reference with our link at its place."""
    if link is None:
        return Verdict(reference, "we: no identifier stands there")
    target = link.target
    if target is None:
        if link.external:
            return Verdict(reference, "we: outside the pins", f"we: {link.external}")
        return Verdict(reference, f"we: {link.certainty}, {general(link.reason)}", f"we: {link.reason}")
    if target.pin == pin and place(target) in reference.targets:
        return Verdict(reference, AGREED, link.certainty)
    where = "the same file" if target.path in {path for path, _ in reference.targets} else "another file"
    if target.pin != pin:
        where = f"pin {target.pin}"
    same = "of that name" if target.name == reference.name else "of another name"
    cause = f"we, {link.certainty}: {target.kind} {same} in {where}; they: {reference.kind}"
    return Verdict(reference, cause, f"we: {shown(target)}")


@cache
def reviews() -> list[dict[str, Any]]:
    """What someone found by reading the sources."""
    return list(tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["reviewed"])


def review(verdict: Verdict, pin: str) -> Verdict:
    """A verdict with what someone found about it."""
    one = verdict.reference
    for known in reviews() if verdict.cause != AGREED else ():
        if known["pin"] == pin and one.name in known["names"] and one.path in known.get("paths", [one.path]):
            return replace(verdict, reviewed=f"{known['right']}: {known['why']}")
    return verdict


def shown(target: Definition) -> str:
    """A definition and its place."""
    return f"{target.symbol} at {target.path}:{target.line}"


def measure(index: Index, pin: str, peer: str, references: Iterable[Reference], bar: Bar) -> Measure:
    """Compares all references of a peer in a pin with our links."""
    by_file: dict[str, dict[tuple[int, int], Reference]] = {path: {} for path in python_files(index, pin)}
    for one in references:
        here = by_file.setdefault(one.path, {})
        before = here.get((one.line, one.column))
        targets = one.targets | before.targets if before else one.targets
        here[one.line, one.column] = Reference(one.path, one.line, one.column, one.name, targets, one.symbol)
    verdicts, beyond = [], Counter[str]()
    bar.start(pin, len(by_file))
    for path, here in by_file.items():
        links = {(link.line, link.column): link for link in index.links(pin, path)}
        verdicts += [review(judge(one, found(links, one), pin), pin) for one in here.values()]
        for at, link in links.items():
            if link.target and (link.target.pin, at not in here) == (pin, True) and link.target.path != path:
                beyond[link.certainty] += 1
        bar.advance(pin, 1)
    bar.finish(pin)
    return Measure(pin, peer, tuple(verdicts), beyond)


def found(links: dict[tuple[int, int], Link], one: Reference) -> Link | None:
    """Our link for a reference; a dotted name that is one reference there is several links here, the last counts."""
    column = one.column + len(one.name) - len(one.name.rpartition(".")[2])
    return links.get((one.line, column))


def python_files(index: Index, pin: str) -> list[str]:
    """The Python files of a pin."""
    return [path for path in index.paths(pin) if path.endswith((".py", ".pyi"))]


def tables(measures: list[Measure]) -> Iterable[str]:
    """The shares, and the causes with one example each."""
    yield "| pin | beside | references | agree | share | only ours, exact | only ours, inferred |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for one in measures:
        beyond = f"{one.beyond['exact']:,} | {one.beyond['inferred']:,}"
        yield f"| {one.pin} | {one.peer} | {len(one.verdicts):,} | {one.agreed:,} | {one.share:.1%} | {beyond} |"
    for one in measures:
        yield f"\n| {one.pin}: cause | count | for example |"
        yield "| --- | ---: | --- |"
        for cause, verdicts in one.causes():
            yield f"| {cause} | {len(verdicts)} | {line(verdicts[0])} |"
        right = Counter(v.reviewed.partition(":")[0] or "nobody looked" for v in one.verdicts if v.cause != AGREED)
        yield f"\n{one.pin}: who is right: " + ", ".join(f"{who} {count}" for who, count in right.most_common())


def line(verdict: Verdict) -> str:
    """A disagreement in one line."""
    one = verdict.reference
    theirs = ", ".join(f"{path}:{number}" for path, number in sorted(one.targets))
    who = f" ({verdict.reviewed})" if verdict.reviewed else ""
    return f"`{one.name}` at {one.path}:{one.line}:{one.column}, they: {theirs}; {verdict.detail}{who}"


def main() -> None:
    """Runs everything and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pins", default=",".join(PINS))
    parser.add_argument("--scip-python", type=Path, metavar="PATH", help="the program, instead of installing it")
    parser.add_argument("--fresh", action="store_true", help="run scip-python again where its index is kept")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("--list", action="store_true", help="list every disagreement instead of one example a cause")
    options = parser.parse_args()
    workspace = Workspace.find(ROOT)
    kept = workspace.cache / "scip"
    measures = []
    with Index.open(workspace) as index, Bar("files") as bar:
        for pin in options.pins.split(","):
            program = scip.find(options.scip_python, workspace.cache)
            theirs = scip.read(scip.index(program, pin, workspace.tree(pin), kept, fresh=options.fresh))
            peer = f"scip-python {scip.VERSION}"
            measures.append(measure(index, pin, peer, scip.references(theirs, workspace.tree(pin)), bar))
    if options.json:
        print(json.dumps([plain(one) for one in measures], indent=2))
        return
    for text in tables(measures):
        print(text)
    if options.list:
        for one in measures:
            for cause, verdicts in one.causes():
                print(f"\n{one.pin}: {cause}")
                for verdict in verdicts:
                    print(f"  {line(verdict)}")


def plain(one: Measure) -> dict[str, object]:
    """A measure for machines."""
    causes = [
        {"cause": cause, "count": len(verdicts), "references": [
            asdict(v.reference) | {"targets": sorted(v.reference.targets), "detail": v.detail, "reviewed": v.reviewed}
            for v in verdicts
        ]}
        for cause, verdicts in one.causes()
    ]  # fmt: skip
    counts = {"references": len(one.verdicts), "agreed": one.agreed, "share": one.share, "only_ours": dict(one.beyond)}
    return {"pin": one.pin, "peer": one.peer, **counts, "causes": causes}


if __name__ == "__main__":
    main()
