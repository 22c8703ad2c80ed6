"""What `diff` answers: data, and how it reads as text; `diffing` makes it, `emitting` and `reporting` write it out.

The order of answers is that of a verdict's headline: equal to whom; else the dialect; else the deviation; else the
nearest reference. A witness stands beside every answer but the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from annotator.contracts.findings import Witness, plain, sized
from annotator.contracts.model import Deviation
from annotator.contracts.probing import Probed
from annotator.contracts.staging import StageFinding, culprit
from annotator.contracts.structure import Row
from annotator.contracts.structure import lines as view_lines

Status = Literal["equal", "different"]


@dataclass(frozen=True)
class Comparison:
    """The user's function against one reference in one dtype, over ``cases`` cases.

    ``dialect`` is where the comparison took place: the reference's, plus the knobs that the function holds. ``ran``
    names what was run: the reference itself, or the minimal version at the reference's dialect.
    """

    reference: str
    dialect: Mapping[str, Any]
    dtype: str
    cases: int
    differing: int
    error: float
    bound: float
    gradient_error: float | None
    gradient_bound: float | None
    ran: str = ""

    @property
    def equal(self) -> bool:
        """Whether no case differs."""
        return self.differing == 0

    def line(self) -> str:
        """The comparison in one line."""
        at_dialect = f" at {values(self.dialect)}" if self.dialect else ""
        verdict = f"equal on {self.cases} cases" if self.equal else f"differs on {self.differing} of {self.cases} cases"
        facts = [f"largest error {sized(self.error)} (at most {self.bound:.1e})"]
        if self.gradient_error is not None:
            facts.append(f"gradient {sized(self.gradient_error)} (at most {self.gradient_bound:.1e})")
        by = "" if self.ran in ("", self.reference) else f" [run as {self.ran}]"
        return f"{self.reference}{at_dialect}, {self.dtype}: {verdict}, {', '.join(facts)}{by}"


@dataclass(frozen=True)
class Explanation:
    """What reproduces the function's output, and its gradient where it has one, exactly.

    ``moved`` are the knobs at which it sits elsewhere than ``reference`` (whose own values are in ``own``), and
    ``deviations`` what it does wrong besides; ``others`` are deviations that do the same on every case tried.
    ``confirmed`` counts the fresh cases, none of which took part in the search.
    """

    kind: Literal["dialect", "deviation", "arithmetic"]
    reference: str
    moved: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    others: tuple[str, ...] = ()
    tried: int = 0
    confirmed: int = 0
    undecided: int = 0
    error: float | None = None
    allowed: float | None = None

    def line(self) -> str:
        """The explanation as the end of a sentence that begins with the function's name."""
        if self.kind == "arithmetic":
            facts = f"error {self.error:.1e}, allowed {self.allowed:.1e}"
            return f"is the same mathematics as {self.reference}, less accurate in float32 ({facts})"
        parts = []
        if self.deviations:
            names = " and ".join(item.name for item in self.deviations)
            parts.append(f"{'deviation' if len(self.deviations) == 1 else 'deviations'} {names}")
        parts += [f"{name}={value!r}" for name, value in self.moved.items()]
        theirs = f" ({self.reference}: {values(self.own)})" if self.own else ""
        return f"is {possessive(self.reference)} with {listed(parts)}{theirs}"

    def lines(self) -> list[str]:
        """What stands below the headline."""
        told = [
            f"  {item.name}: {item.wrong}; right: {item.right}{f' (seen in {item.seen_in})' if item.seen_in else ''}"
            for item in self.deviations
        ]
        if self.others:
            told.append(f"  the same on every case tried: {', '.join(self.others)}")
        if self.kind != "arithmetic":
            left = f", {self.undecided} undecided (ill-conditioned)" if self.undecided else ""
            fresh = f"{self.confirmed} fresh case{'' if self.confirmed == 1 else 's'}"
            told.append(f"  found by search among {self.tried} candidates, confirmed on {fresh}{left}")
        return told

    def to_json(self) -> dict[str, Any]:
        """Every field in JSON's types."""
        deviations = [
            {"name": d.name, "wrong": d.wrong, "right": d.right, "seen_in": d.seen_in, "zoo": d.zoo}
            for d in self.deviations
        ]
        return {n: plain(v) for n, v in vars(self).items() if n != "deviations"} | {"deviations": deviations}


@dataclass(frozen=True)
class Usage:
    """How the function is called: what a test that stands alone has to do as the sandbox did."""

    positional: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    mapping: Mapping[str, str] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)
    method: bool = False


@dataclass(frozen=True)
class Verdict:
    """What `diff` answers.

    ``equal_to`` are the references that the function equals in every dtype tried, at the values ``held`` of the knobs
    that it does not take; when there are none, ``explanation`` says what it is instead, if anything does, ``nearest``
    is the closest reference and ``witness`` the smallest input on which the two differ. ``stages`` are what the file
    exposes of the way there, compared on the witness, and ``structure`` its code beside theirs. ``broken`` are the
    probes, needing no reference, that do not hold. ``notes`` say what was not compared.
    """

    status: Status
    contract: str
    file: str
    function: str
    backend: str
    comparisons: tuple[Comparison, ...]
    equal_to: tuple[str, ...] = ()
    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    nearest: str = ""
    agrees_with: tuple[str, ...] = ()
    explanation: Explanation | None = None
    witness: Witness | None = None
    stages: tuple[StageFinding, ...] = ()
    structure: tuple[Row, ...] = ()
    broken: tuple[Probed, ...] = ()
    notes: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    tried: int = 0
    seconds: float = 0.0
    usage: Usage = Usage()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether it equals at least one reference."""
        return self.status == "equal"

    def to_json(self) -> dict[str, Any]:
        """Every field in JSON's types, and the answer as a sentence."""
        apart = ("comparisons", "witness", "explanation", "usage", "stages", "structure", "broken")
        fields = {n: plain(v) for n, v in vars(self).items() if n not in apart}
        comparisons = [{**plain(vars(item)), "equal": item.equal} for item in self.comparisons]
        return {
            **fields,
            "answer": self.headline(),
            "comparisons": comparisons,
            "explanation": self.explanation.to_json() if self.explanation else None,
            "witness": self.witness.to_json() if self.witness else None,
            "stage": self.stage,
            "stages": [item.to_json() for item in self.stages],
            "structure": [item.to_json() for item in self.structure],
            "broken": [{"probe": item.probe, "doc": item.doc, "error": plain(item.error)} for item in self.broken],
        }

    @property
    def stage(self) -> str:
        """The stage at which the function leaves the path: as measured, else as the deviation that explains it says."""
        found = culprit(self.stages)
        named = [item.stage for item in self.explanation.deviations if item.stage] if self.explanation else []
        return found.stage if found else " and ".join(dict.fromkeys(named))

    def headline(self) -> str:
        """The answer in one sentence."""
        who = f"{self.file}:{self.function}"
        if self.equal:
            return f"{who} equals {self._equals()}"
        if self.explanation:
            return f"{who} {self.explanation.line()}"
        if self.agrees_with:
            names = ", ".join(item.probe for item in self.broken)
            return f"{who} agrees with {listed(list(self.agrees_with))} on every case, but breaks {names}"
        return f"{who} differs from every reference of {self.contract}; {self.nearest} is the nearest"

    def _equals(self) -> str:
        """References, those at the same values of what is held together."""
        groups: dict[str, list[str]] = {}
        for name in self.equal_to:
            groups.setdefault(values(self.held.get(name, {})), []).append(name)
        return "; ".join(", ".join(names) + (f" at {at}" if at else "") for at, names in groups.items())

    def render(self, *, structure: bool = False) -> list[str]:
        """The verdict as lines of text: the answer first, then what it rests on; ``structure`` shows code by code."""
        lines = [self.headline()]
        if self.explanation:
            lines += self.explanation.lines()
        elif not self.equal and self.tried and not self.agrees_with:
            lines.append(f"  no dialect and no deviation of the catalogue explains it ({self.tried} candidates tried)")
        lines += self.told()
        if self.witness:
            lines += self.witness.lines()
        lines += ["", *view_lines(self.structure)] if structure and self.structure else []
        lines += ["", *(f"  {item.line()}" for item in self.comparisons)]
        lines += [f"  not run: {reason}" for reason in self.not_run] + [f"  note: {note}" for note in self.notes]
        return lines

    def told(self) -> list[str]:
        """What stages and probes say."""
        lines = [f"  it leaves the path at stage {self.stage}"] if self.stage else []
        lines += [f"    {item.line()}" for item in self.stages]
        return lines + [f"  without a reference: {item.line()}" for item in self.broken]


def values(dialect: Mapping[str, Any]) -> str:
    """``name=value`` of each knob."""
    return ", ".join(f"{name}={value!r}" for name, value in dialect.items())


def possessive(name: str) -> str:
    """``verl's``."""
    return f"{name}'s"


def listed(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
