"""Why it differs: the search for the dialect, or the deviation, that reproduces a user's function.

A candidate is a point in knob space and what runs there: the minimal version, which has every knob and is proven equal
to each reference at its dialect, or a deviation. Only knobs that the function *holds* (does not take) are searched;
those that it takes are handed to it. Candidates come in the order of how far they are from a reference: fewest knobs
moved first. One is an explanation when it reproduces the output on the search cases and then output *and* gradient on
fresh ones. Budgets are counted in candidates, not in seconds, so that the answer is the same on every machine.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from annotator.contracts.comparison import bound, error
from annotator.contracts.conforming import accepted, unavailable
from annotator.contracts.model import Backend, Call, Case, Contract, Deviation, Implementation, Knob
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.probing import probe_implementation
from annotator.contracts.running import Fault
from annotator.contracts.session import Limits, Session
from annotator.contracts.verdicts import Comparison, Explanation
from annotator.errors import UserCodeError

BUDGET = 2000
"""How many candidates are tried to find a dialect."""

SHARE = 1000
"""How many of them are spent on each kind of deviation, so that none starves the next: near and single ones first."""

LOOKS = 600
"""How many settings of the knobs that a reference leaves open are tried, to find it equal at one of them."""

_FARTHEST = 3
"""How many knobs may sit elsewhere than a reference's."""

_DECADES = (*(10.0**-k for k in range(3, 13)), 1e-2, 1e-1)
"""Values beyond a knob's choices where its default is small (an eps, a learning rate)."""

_ROUND = (0.0, 1.0, 0.5, 0.1, 0.2, 0.05, 0.01, 2.0, 0.9, 0.99, 0.95, 0.999, 0.25, 0.3, 0.8, 0.98, 0.001, 5.0, 10.0)
"""Values beyond a knob's choices where its default is not small."""

_LOOKED = -1
"""In place of a distance: the point where the first look agreed most."""

_NEAR = ((0, 1), (_LOOKED, 1))
_FAR = ((1, 1), (0, 2), (_LOOKED, 2), (2, 1), (1, 2))
"""How many knobs off a dialect, with how many deviations: what is tried before dialects of many knobs, and after."""

_COUNTED = 12
"""How many points are counted out, on as many cases, to know the nearest one."""

_STEP, _JUMP = 2.0**-44, 1e-4
"""A result that moves by more than the second when its inputs move by the first cannot tell two formulas apart."""

Point = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """What might be the function: a call at a reference's dialect, with the held knobs at ``point``."""

    reference: Implementation
    point: Point
    call: Call
    backend: Backend
    differentiable: bool
    deviations: tuple[Deviation, ...] = ()

    def oracle(self, contract: Contract, device: str, *, gradient: bool = True) -> Oracle:
        """The candidate as an oracle, in the domain of its reference."""
        item = replace(
            self.reference,
            call=self.call,
            backend=self.backend,
            dialect={**self.reference.dialect, **self.point},
            dtypes=tuple({*self.reference.dtypes, "float64"}),
            differentiable=gradient and self.differentiable and self.reference.differentiable,
        )
        return Oracle(replace(contract, oracle=None) if self.deviations else contract, item, device)

    @property
    def key(self) -> tuple[Any, ...]:
        """Two candidates of one key are the same computation over the same cases."""
        full = sorted({**self.reference.dialect, **self.point}.items())
        return repr(full), self.reference.accepts, tuple(item.name for item in self.deviations)


def engine_of(contract: Contract, device: str) -> Implementation | None:
    """What has every knob and imports no reference: a minimal version, in torch where there is one."""
    order = {"torch": 0, "jax": 1, "numpy": 2}
    items = [i for i in contract.implementations if i.role == "minimal" and "float64" in i.dtypes]
    for item in sorted(items, key=lambda i: order[i.backend]):
        if not unavailable(item, device):
            return item
    return None


def points(contract: Contract, base: Point, names: Sequence[str], distance: int) -> Iterator[Point]:
    """Every way to move ``distance`` of the knobs ``names`` away from ``base``: choices first, then values beyond."""
    knobs = {knob.name: knob for knob in contract.knobs}
    for wide in (False, True) if 0 < distance < _FARTHEST else (False,):
        for moved in itertools.combinations(names, distance):
            options = [_values(knobs[name], base[name], wide) for name in moved]
            for values in itertools.product(*options):
                if not wide or any(v not in knobs[n].choices for n, v in zip(moved, values, strict=True)):
                    yield {**base, **dict(zip(moved, values, strict=True))}


def _values(knob: Knob, base: Any, wide: bool) -> list[Any]:
    small = type(knob.default) is float and 0 < abs(knob.default) < 1e-2
    beyond = (_DECADES if small else _ROUND) if wide and type(knob.default) is float else ()
    return [value for value in dict.fromkeys((*knob.choices, *beyond)) if value != base]


def composed(first: Deviation, second: Deviation) -> Call | None:
    """One call that carries both deviations, where the catalogue writes them as parts of one variant; else None.

    Two partial applications of the same function compose when they replace different parts of it.
    """
    a, b = first.call, second.call
    if not isinstance(a, functools.partial) or not isinstance(b, functools.partial):
        return None
    if a.func is not b.func or a.args != b.args:
        return None
    merged = dict(a.keywords)
    for name, value in b.keywords.items():
        if name in merged:
            both = merged[name], value
            if not all(isinstance(part, dict) for part in both) or both[0].keys() & both[1].keys():
                return None
            value = {**both[0], **both[1]}
        merged[name] = value
    return functools.partial(a.func, *a.args, **merged)


@dataclass
class Search:
    """Candidates tried one after the other on the search cases, then on all."""

    session: Session
    references: Sequence[Implementation]
    engine: Implementation | None
    dtype: str
    tried: int = 0
    _order: list[Case] = field(default_factory=list)
    _fresh: list[Case] = field(default_factory=list)
    _sloped: bool = False
    _seen: set[tuple[Any, ...]] = field(default_factory=set)
    _looked: dict[tuple[Any, ...], tuple[Point, Comparison | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        edges = [case for case in self.session.cases if case.label]
        drawn = [case for case in self.session.cases if not case.label]
        part = len(drawn) // 3
        self._order, self._fresh = [*drawn[:part], *edges], drawn[part:]

    # First look -------------------------------------------------------------------------------------------------------

    def look(self, reference: Implementation) -> tuple[Point, Comparison | None]:
        """Where the function is compared with a reference, and how that went, by the minimal version at its dialect.

        Of the knobs that the reference leaves open and the function holds, the first values at which the two are equal;
        where there are none, those at which most cases are.
        """
        key = (repr(sorted(reference.dialect.items())), reference.accepts, reference.differentiable)
        if key not in self._looked:
            self._looked[key] = self._look(reference)
        point, seen = self._looked[key]
        return point, replace(seen, reference=reference.name) if seen else None

    def _look(self, reference: Implementation) -> tuple[Point, Comparison | None]:
        near: list[Point] = []
        for point in self._open(reference):
            candidate = self.minimal(reference, point)
            self._seen.add(candidate.key)
            if self._matches(candidate):
                stands = self._confirmed(candidate)[0] > 0
                seen = self._compared(candidate) if stands or self._sloped else None
                if seen is not None and (self._sloped or seen.equal):
                    return point, seen  # The values are these: no other point mends a gradient.
            if not near or (len(near) < _COUNTED and self._ordinary(point)):
                near.append(point)
        best = max(near, key=lambda point: self._agreeing(self.minimal(reference, point)))
        return best, self._compared(self.minimal(reference, best))

    def _ordinary(self, point: Point) -> bool:
        return all(point[knob.name] in knob.choices for knob in self.session.contract.knobs if knob.name in point)

    def _open(self, reference: Implementation) -> Iterator[Point]:
        contract = self.session.contract
        free = [name for name in self.session.held if name not in reference.dialect]
        base = {knob.name: knob.default for knob in contract.knobs if knob.name in free}
        near = [list(points(contract, base, free, d)) for d in range(min(len(free), _FARTHEST) + 1)]
        far = [point for moved in near[2:] for point in moved]
        # Values that the contract names, three knobs away, before values beyond them, two knobs away.
        ordered = [*itertools.chain.from_iterable(near[:2]), *sorted(far, key=lambda point: not self._ordinary(point))]
        return iter(ordered[:LOOKS])

    def minimal(self, reference: Implementation, point: Point) -> Candidate:
        """The minimal version at a reference's dialect; the reference itself where there is none."""
        item = self.engine or reference
        return Candidate(reference, point, item.call, item.backend, item.differentiable)

    def _compared(self, candidate: Candidate) -> Comparison | None:
        name = self.engine.name if self.engine else candidate.reference.name
        return self.session.compare(candidate.oracle(self.session.contract, self.session.device), self.dtype, name)

    def _agreeing(self, candidate: Candidate) -> int:
        oracle = candidate.oracle(self.session.contract, self.session.device, gradient=False)
        cases = itertools.islice(self._domain(self._order, candidate), _COUNTED)
        return sum(self._agrees(oracle, case) for case in cases)

    # Explanation ------------------------------------------------------------------------------------------------------

    def explanation(self) -> Explanation | None:
        """The dialect; else the deviation, or the pair. Likely ones come first: one knob, one deviation, then more.

        A reference that takes few of the cases lets more than one thing look like its dialect: what holds on more than
        twice as many cases of another one is the better answer. So is any deviation where the reference refuses to be
        at that dialect.
        """
        dialect = self.dialect((1,))
        if dialect and self._holds_widely(dialect):
            return dialect
        deviation = self.deviation(_NEAR)
        if deviation and not dialect and self._holds_widely(deviation):
            return deviation
        dialect = dialect or self.dialect(range(2, _FARTHEST + 1))
        if dialect and self._holds_widely(dialect):
            return dialect
        deviation = deviation or self.deviation(_FAR)
        if not deviation or not dialect:
            return deviation or dialect
        refused = not self._width(dialect.reference, dialect.moved)
        return deviation if refused or deviation.confirmed > 2 * dialect.confirmed else dialect

    def _holds_widely(self, found: Explanation) -> bool:
        """Whether it is confirmed on half of the cases that any reference takes, and its own one is there at all."""
        widest = max(self._width(item.name, {}) for item in self.references)
        return self._width(found.reference, found.moved) > 0 and 2 * found.confirmed >= widest

    def _width(self, name: str, moved: Point) -> int:
        """How many of the fresh cases lie in the domain of a reference, with some of its knobs moved."""
        item = self.session.contract.implementation(name)
        return len(accepted(self._fresh, replace(item, dialect={**item.dialect, **moved})))

    def dialect(self, distances: Iterable[int]) -> Explanation | None:
        """The nearest point in knob space at which the minimal version does what the function does."""
        if self.engine is None or self._sloped:
            return None
        start = self.tried
        for distance in distances:
            for reference, point in self._around(distance):
                if self.tried - start > BUDGET:
                    return None
                if made := self._explains(self.minimal(reference, point), "dialect"):
                    return made
        return None

    def deviation(self, order: Iterable[tuple[int, int]]) -> Explanation | None:
        """The deviation that does what the function does, or the pair.

        ``order`` has how many knobs off a reference's dialect, or `_LOOKED`, and how many deviations at once.
        """
        looked = [
            (item, {**_base(self.session.contract, item, self.session.held), **self.look(item)[0]})
            for item in self.references
        ]
        for distance, together in order:
            carried = list(itertools.combinations(self.session.contract.deviations, together))
            start = self.tried
            for reference, point in looked if distance == _LOOKED else self._around(distance):
                if self.tried - start > SHARE:
                    break
                if made := self._deviates(reference, point, carried):
                    return made
        return None

    def by_probes(self, item: Implementation, point: Point, broken: set[str]) -> Explanation | None:
        """The deviation that agrees on every case too, and breaks the same probes as the function."""
        for deviation in self.session.contract.deviations:
            candidate = Candidate(item, point, deviation.call, "torch", True, (deviation,))
            moved = replace(candidate.oracle(self.session.contract, self.session.device).reference)
            seen = probe_implementation(self.session.contract, moved, moved, self.session.cases, self.session.device)
            if {one.probe for one in seen if not one.kept} - set(item.breaks) == broken and self._matches(candidate):
                return Explanation(
                    "deviation", item.name, deviations=(deviation,), tried=self.tried, confirmed=len(self._fresh)
                )
        return None

    def _deviates(
        self, reference: Implementation, point: Point, carried: Iterable[tuple[Deviation, ...]]
    ) -> Explanation | None:
        """The first of the deviations that explains, with those that cannot be told from it."""
        found: Explanation | None = None
        for items in carried:
            call = items[0].call if len(items) == 1 else composed(items[0], items[1])
            if call is None:
                continue
            made = self._explains(Candidate(reference, point, call, "torch", True, items), "deviation")
            if made and found:
                found = replace(found, others=(*found.others, " and ".join(item.name for item in items)))
            found = found or made
        return found

    def _around(self, distance: int) -> Iterator[tuple[Implementation, Point]]:
        """Points that many knobs away from each reference."""
        contract = self.session.contract
        for reference in self.references:
            base = _base(contract, reference, self.session.held)
            for point in points(contract, base, self.session.held, distance):
                yield reference, point

    def _explains(self, candidate: Candidate, kind: Any) -> Explanation | None:
        if candidate.key in self._seen:
            return None
        self._seen.add(candidate.key)
        if not self._matches(candidate):
            return None
        confirmed, undecided = self._confirmed(candidate)
        if not confirmed:
            return None
        contract, reference = self.session.contract, candidate.reference
        base = _base(contract, reference, self.session.held)
        moved = {name: value for name, value in candidate.point.items() if value != base[name]}
        own = {name: base[name] for name in moved}
        return Explanation(kind, reference.name, moved, own, candidate.deviations, (), self.tried, confirmed, undecided)

    # One candidate ----------------------------------------------------------------------------------------------------

    def _matches(self, candidate: Candidate) -> bool:
        """Whether it gives the function's values on the search cases.

        A case that rules it out at a glance goes to the front; one that takes the condition of the result to the back.
        """
        self.tried += 1
        oracle = candidate.oracle(self.session.contract, self.session.device, gradient=self._sloped)
        decided, undecided = 0, 0
        for case in self._domain(list(self._order), candidate):
            far = self._far(oracle, case)
            if not far and self._agrees(oracle, case):
                decided += 1
            elif candidate.deviations and _unstable(oracle, case):
                undecided += 1
            else:
                self._rules_out(case, first=far)
                return False
        return decided > 3 * undecided

    def _confirmed(self, candidate: Candidate) -> tuple[int, int]:
        """How many fresh cases confirm it, values and gradients, and how many decide nothing; 0 when one speaks against
        it, or a search case does once gradients are compared."""
        oracle = candidate.oracle(self.session.contract, self.session.device)
        confirmed, undecided = 0, 0
        fresh = self._fresh
        for cases in (self._order, fresh):
            for case in self._domain(cases, candidate):
                if self._agrees(oracle, case):
                    confirmed += cases is fresh
                elif candidate.deviations and _unstable(oracle, case):
                    undecided += 1
                else:
                    # Where only gradients differ, many candidates have the values: from here on they are told apart.
                    self._sloped = self.session.differentiates
                    self._rules_out(case)
                    return 0, 0
        return confirmed, undecided

    def _rules_out(self, case: Case, *, first: bool = True) -> None:
        others = [other for other in self._order if other is not case]
        self._order = [case, *others] if first else [*others, case]
        self._fresh = [other for other in self._fresh if other is not case]

    def _domain(self, cases: Sequence[Case], candidate: Candidate) -> Iterator[Case]:
        """The cases in the reference's domain, at the point; at its own dialect where the point lies outside of it."""
        reference = candidate.reference
        moved = replace(reference, dialect={**reference.dialect, **candidate.point})
        held = {name for name in candidate.point if name not in reference.dialect}
        inside = 0
        for case in tuple(cases):
            if accepted((case,), moved):
                inside += 1
                yield case
        if not inside and held:
            yield from (case for case in tuple(cases) if accepted((case,), reference))

    def _far(self, oracle: Oracle, case: Case) -> bool:
        """Whether the two are so far apart on a result of ordinary size that no condition explains it; cheap."""
        try:
            expected = oracle(case, self.dtype)
            found = self.session.user(at(case, oracle.reference.dialect), case, self.dtype)
        except (Fault, UserCodeError):
            return self._survived()
        if any(_apart(found.outputs[name], array) for name, array in expected.outputs.items()):
            return True
        slopes = expected.gradients if self.session.differentiates else {}
        return any(_apart(found.gradients.get(name, 0 * array), array) for name, array in slopes.items())

    def _agrees(self, oracle: Oracle, case: Case) -> bool:
        try:
            return self.session.agrees(oracle, case, self.dtype, self._limits)
        except (Fault, UserCodeError):
            return not self._survived()

    def _survived(self) -> bool:
        """True: what cannot be run there is not the same there. Unless the user's process has ended.

        Raises:
            UserCodeError: it has, so that nothing more can be asked.
        """
        if not self.session.sandbox.alive:
            raise UserCodeError(self.session.sandbox.place, expected="a result", found="its process has ended")
        return True

    @functools.cached_property
    def _limits(self) -> Limits:
        """What counts as the same. Where the function only computes in float32, what the minimal version errs in it."""
        if self.dtype == "float64" or self.engine is None:
            return bound("float64", 0.0), bound("float64", 0.0)
        base = _base(self.session.contract, self.references[0], self.session.held)
        oracle = self.minimal(self.references[0], base).oracle(self.session.contract, self.session.device)
        return self.session.limits(oracle, accepted(self.session.cases, oracle.reference), self.dtype)[1]


def _base(contract: Contract, reference: Implementation, held: Sequence[str]) -> Point:
    """The values of the held knobs at a reference: its dialect's, else the contract's default."""
    return {k.name: reference.dialect.get(k.name, k.default) for k in contract.knobs if k.name in held}


def _apart(found: np.ndarray, expected: np.ndarray) -> bool:
    plain = error(found, expected)
    finite = np.abs(expected[np.isfinite(expected)])
    return 1e-2 < plain < float("inf") and bool(finite.max(initial=0) > 1e-3)


def _unstable(oracle: Oracle, case: Case) -> bool:
    """Whether a change of the inputs near rounding changes the candidate's result: it shows no formula then."""
    random = np.random.default_rng(0)
    moved = {
        item.name: case.inputs[item.name] * (1.0 + _STEP * random.choice([-1.0, 1.0], np.shape(case.inputs[item.name])))
        for item in oracle.contract.inputs
        if item.dtype == "float"
    }
    try:
        before = oracle(case, "float64").outputs
        after = oracle(replace(case, inputs={**case.inputs, **moved}), "float64").outputs
    except Fault:
        return False
    return any(error(after[name], array, exact=array.dtype.kind != "f") > _JUMP for name, array in before.items())
