"""Is mine the same? Holds a user's function against every reference of a contract, and says what it is if it is not.

The order of answers: equal to whom; else the dialect; else the deviation; else the nearest reference; with the smallest
witness beside all but the first. The first look is at minimal versions, which are proven equal to the references at
their dialects and import in no time. A reference itself is imported and run where the answer rests on it: those that
the function seems to equal, else the nearest one, on the witness. The user's function runs in a `sandbox`.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from annotator.contracts.conforming import accepted, references, unavailable
from annotator.contracts.explaining import Point, Search, engine_of
from annotator.contracts.findings import Witness
from annotator.contracts.model import Backend, Case, Contract, Implementation
from annotator.contracts.oracle import Oracle, at
from annotator.contracts.probing import CASES, Outside, Probed, limit, probed
from annotator.contracts.running import Fault, Result
from annotator.contracts.sampling import draw
from annotator.contracts.sandbox import Sandbox
from annotator.contracts.session import Session
from annotator.contracts.staging import StageFinding, stages_of
from annotator.contracts.structure import Row, view
from annotator.contracts.tracing import skeleton
from annotator.contracts.verdicts import Comparison, Explanation, Verdict
from annotator.errors import AnnotatorError, ContractError, UserCodeError, did_you_mean, near_matches
from annotator.pins.progress import Progress, Silent
from annotator.workspace import Workspace

MEMORY = 8 * 2**30
TIMEOUT = 20.0

__all__ = ["MEMORY", "TIMEOUT", "Verdict", "backend_of", "diff", "literals", "template", "write"]


def diff(
    file: str | Path,
    function: str,
    contract: Contract,
    *,
    mapping: Mapping[str, str] | None = None,
    init: Mapping[str, Any] | None = None,
    backend: str | None = None,
    timeout: float = TIMEOUT,
    memory: int = MEMORY,
    examples: int = 40,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Verdict:
    """Whether ``function`` in ``file`` does what the references of ``contract`` do, and what it does instead.

    ``function`` is a name, or ``Class.method``, whose object is made with ``init``. ``mapping`` renames (theirs to
    ours), ``backend`` is found from the file's imports unless given, ``timeout`` is in seconds a call, ``memory`` in
    bytes.

    Raises:
        UserCodeError: the function could not be run as the contract asks.
        ContractError: no reference can be run here.
    """
    began = time.perf_counter()
    renamed = _checked_mapping(contract, mapping or {}, f"{file}:{function}")
    chosen = backend_of(file) if backend is None else _known_backend(backend)
    box = Sandbox(file, function, contract, chosen, mapping=renamed, init=init, timeout=timeout, memory=memory)
    with box as sandbox:
        # The worker imports its backend meanwhile.
        runnable, not_run = _references(contract, device)
        cases = draw(contract, examples)
        sandbox.load()
        verdict = _Diff(Session(contract, sandbox, cases, device, progress or Silent()), runnable).answer()
    seconds = round(time.perf_counter() - began, 3)
    return replace(verdict, not_run=tuple(not_run), seconds=seconds)


def _references(contract: Contract, device: str) -> tuple[list[Implementation], list[str]]:
    """Those that can be run, and why the others cannot."""
    reasons = {item.name: unavailable(item, device) for item in references(contract)}
    runnable = [item for item in references(contract) if not reasons[item.name]]
    not_run = [f"{name}: {reason}" for name, reason in reasons.items() if reason]
    if not runnable:
        raise ContractError(contract.name, expected="a reference that can be run", found="; ".join(not_run) or "none")
    return runnable, not_run


def _known_backend(backend: str) -> Backend:
    if backend not in ("torch", "jax", "numpy"):
        raise UserCodeError("--backend", expected="torch, jax or numpy", found=repr(backend))
    return backend  # type: ignore[return-value]


def _checked_mapping(contract: Contract, mapping: Mapping[str, str], place: str) -> dict[str, str]:
    groups: tuple[Sequence[Any], ...] = (
        contract.inputs,
        contract.knobs,
        contract.outputs,
        contract.stages,
        contract.operations,
    )
    known = [item.name for group in groups for item in group]
    for theirs, ours in mapping.items():
        if ours not in known:
            remedy = did_you_mean(near_matches(ours, known)) or f"the names are {', '.join(known)}"
            raise UserCodeError(place, expected="--map THEIRS=OURS", found=f"{theirs}={ours}", remedy=remedy)
    return dict(mapping)


def backend_of(file: str | Path) -> Backend:
    """The backend that a file computes with: the first of torch and jax that it imports, else NumPy.

    Raises:
        UserCodeError: the file cannot be read or parsed.
    """
    for name in _imports(file):
        if name in ("torch", "jax"):
            return name  # type: ignore[return-value]
    return "numpy"


def _imports(file: str | Path) -> list[str]:
    try:
        tree = ast.parse(Path(file).read_bytes(), str(file))
    except OSError as error:
        raise UserCodeError(str(file), expected="a Python file", found=error.strerror or "unreadable") from error
    except SyntaxError as error:
        place = f"{file}:{error.lineno or 1}"
        raise UserCodeError(place, expected="a file that imports", found=f"SyntaxError: {error.msg}") from error
    except ValueError as error:
        raise UserCodeError(str(file), expected="a Python file", found=str(error)) from error
    found = []
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        found += [(node.lineno, name.partition(".")[0]) for name in names]  # type: ignore[attr-defined]
    return [name for _, name in sorted(found)]


@dataclass
class _Diff:
    """The order of answers, and what each rests on."""

    session: Session
    runnable: Sequence[Implementation]
    comparisons: list[Comparison] = field(default_factory=list)
    refused: dict[str, UserCodeError] = field(default_factory=dict)

    def answer(self) -> Verdict:
        """Equal to whom; else what it is instead."""
        session = self.session
        session.start(self.runnable)
        dtypes = session.dtypes()
        search = Search(session, self.runnable, engine_of(session.contract, session.device), dtypes[0])
        looked = {item.name: seen for item in self.runnable if (seen := self._look(search, item)) is not None}
        if not looked:
            raise self._nothing()
        search.references = [item for item in self.runnable if item.name not in self.refused]
        equal = [item for item in self.runnable if item.name in looked and looked[item.name][1].equal]
        confirmed = {item.name: self._confirm(item, looked[item.name][0], dtypes) for item in equal}
        same = tuple(name for name, seen in confirmed.items() if seen and all(c.equal for c in seen))
        self.comparisons = [c for name, seen in looked.items() for c in confirmed.get(name) or [seen[1]]]
        points = {name: seen[0] for name, seen in looked.items()}
        if same:
            return self._equal(search, same, points)
        return self._different(search, looked, confirmed)

    def _equal(self, search: Search, same: tuple[str, ...], points: Mapping[str, Point]) -> Verdict:
        """Equal on every case; which stands unless a probe does not hold that those references keep."""
        items = [self.session.contract.implementation(name) for name in same]
        broken = self._broken(items[0], points[same[0]])
        lost = [one for one in broken if not any(one.probe in item.breaks for item in items)]
        if not lost:
            return self._made(equal_to=same, held={name: self._told(name, points[name]) for name in same})
        explanation = search.by_probes(items[0], points[same[0]], {one.probe for one in lost})
        return self._made(nearest=same[0], agrees_with=same, explanation=explanation, broken=tuple(lost))

    def _broken(self, item: Implementation, point: Point) -> list[Probed]:
        """The contract's probes that do not hold for the user's function, at a reference's dialect."""
        session = self.session
        dtype = session.dtypes()[0]
        moved = replace(item, dialect={**item.dialect, **point})

        def go(case: Case, dtype: str = dtype) -> Result:
            held = {name: moved.dialect[name] for name in session.held if name in moved.dialect}
            if item.accepts(case) is not None or any(case.knobs[name] != value for name, value in held.items()):
                raise Outside  # A probe that moves a knob says nothing of a function that does not take it.
            try:
                return session.sandbox.run(case, dtype=dtype, device=session.device)
            except UserCodeError as failure:
                if not session.sandbox.alive:
                    raise
                raise Fault("raises", "call", expected="a result", found=str(failure)) from failure

        inside = accepted(session.cases, moved)
        if session.compiles:  # A probe makes new shapes, and edges are many: some of all of them.
            inside = inside[:: max(1, len(inside) // 6)]
        chosen = [at(session.cases[i], moved.dialect) for i in inside[:CASES]]
        seen = [probed(probe, go, chosen, limit(dtype)) for probe in session.contract.probes]
        return [one for one in seen if not one.kept]

    def _look(self, search: Search, item: Implementation) -> tuple[Point, Comparison] | None:
        """The first look at one reference; None where none of the cases is in its domain."""
        try:
            point, seen = search.look(item)
        except UserCodeError as error:
            if not self.session.sandbox.alive:
                raise
            self.refused[item.name] = error
            self.session.note(f"{item.name}: not compared, it cannot be run there: {error}")
            return None
        return None if seen is None else (point, seen)

    def _nothing(self) -> ContractError:
        if self.refused:
            return next(iter(self.refused.values()))
        name = self.session.contract.name
        return ContractError(name, expected="cases in the domain of a reference", found="none")

    def _confirm(self, item: Implementation, point: Point, dtypes: Sequence[str]) -> list[Comparison]:
        """What the reference itself says, in every dtype that it has; empty where it cannot be run after all."""
        found: list[Comparison] = []
        oracle = self._itself(item, point)
        try:
            for dtype in dtypes:
                seen = self.session.compare(oracle, dtype, item.name)
                found += [seen] if seen else []
                if seen and not seen.equal:
                    break
        except (ModuleNotFoundError, AnnotatorError) as error:
            if isinstance(error, (UserCodeError, Fault)):
                raise
            self.session.note(f"{item.name} itself was not run: {error}")
            return []
        if found and not found[0].equal:
            self.session.note(f"the minimal version at the dialect of {item.name} agrees, {item.name} itself does not")
        return found

    def _itself(self, item: Implementation, point: Point) -> Oracle:
        """The reference as the oracle, with the held knobs at ``point``, and its like there too."""
        contract = self.session.contract
        placed = tuple(
            replace(i, dialect={**point, **i.dialect}) if i.role == "reference" else i for i in contract.implementations
        )
        moved = replace(contract, implementations=placed)
        return Oracle(moved, moved.implementation(item.name), self.session.device)

    def _told(self, name: str, point: Point) -> dict[str, Any]:
        """The held knobs that a reader has to know of: those away from their default."""
        defaults = {knob.name: knob.default for knob in self.session.contract.knobs}
        return {k: v for k, v in point.items() if v != defaults[k]}

    def _different(
        self,
        search: Search,
        looked: Mapping[str, tuple[Point, Comparison]],
        confirmed: Mapping[str, Sequence[Comparison]],
    ) -> Verdict:
        for name, seen in confirmed.items():
            if seen and seen[0].equal and seen[0].dtype == "float64":
                return self._less_accurate(name, looked[name][0], seen[-1])
        explanation = search.explanation()
        nearest = explanation.reference if explanation else ""
        if nearest not in looked:
            nearest = min(looked, key=lambda name: _distance(looked[name][1]))
        shown = self._witness(search, nearest, *looked[nearest])
        item, compared = self.session.contract.implementation(nearest), looked[nearest][1]
        return self._made(
            nearest=nearest,
            explanation=explanation,
            witness=shown,
            tried=search.tried,
            stages=self._stages(shown, compared),
            structure=self._structure(item, {**looked[nearest][0], **(explanation.moved if explanation else {})}),
            broken=tuple(one for one in self._broken(item, looked[nearest][0]) if one.probe not in item.breaks),
        )

    def _structure(self, item: Implementation, point: Point) -> tuple[Row, ...]:
        """The code of the function beside the minimal version's and the reference's."""
        sandbox = self.session.sandbox
        try:
            rows = view(
                Workspace.find(),
                self.session.contract,
                item,
                sandbox.file,
                sandbox.function,
                mapping=sandbox.mapping,
                point=point,
            )
        except (AnnotatorError, OSError, SyntaxError) as error:
            self.session.note(f"no view of the code side by side: {error}")
            return ()
        return tuple(rows)

    def _stages(self, shown: Witness | None, seen: Comparison) -> tuple[StageFinding, ...]:
        """What the file exposes of the way to the result, on the witness."""
        contract = self.session.contract
        if shown is None or not contract.stages:
            return ()
        found = stages_of(contract, self.session.sandbox, shown.case, seen.dtype, seen.bound)
        if not found:
            names = ", ".join(stage.name for stage in contract.stages)
            self.session.note(f"stages: the file exposes none; functions or returned values named {names} are compared")
        return tuple(found)

    def _less_accurate(self, name: str, point: Point, seen: Comparison) -> Verdict:
        """Equal in float64, so the difference is one of arithmetic."""
        oracle = self._itself(self.session.contract.implementation(name), point)
        by_value = seen.error > seen.bound
        error, allowed = (seen.error, seen.bound) if by_value else (seen.gradient_error, seen.gradient_bound)
        made = Explanation("arithmetic", name, error=error, allowed=allowed)
        smallest = self.session.smallest(oracle, seen)
        shown = self.session.located(oracle, smallest[0], seen.dtype, smallest[1]) if smallest else None
        self.session.note("equal in float64: the difference is one of arithmetic in float32")
        return self._made(nearest=name, explanation=made, witness=shown)

    def _witness(self, search: Search, name: str, point: Point, seen: Comparison) -> Witness | None:
        """The smallest difference from the minimal version; what is expected there, by the reference itself."""
        item = self.session.contract.implementation(name)
        stand_in = search.minimal(item, point).oracle(self.session.contract, self.session.device)
        smallest = self.session.smallest(stand_in, seen)
        if smallest is None:
            return None
        shown = self.session.located(stand_in, smallest[0], seen.dtype, smallest[1])
        try:
            itself = self.session.located(self._itself(item, point), smallest[0], seen.dtype, smallest[1])
        except (ModuleNotFoundError, AnnotatorError) as error:
            self.session.note(f"{name} itself was not run, the witness is that of the minimal version: {error}")
            return shown
        self.session.note(f"{name} itself was run on the witness only; what it gives there is what is expected")
        return itself

    def _made(self, **found: Any) -> Verdict:
        sandbox = self.session.sandbox
        return Verdict(
            "equal" if found.get("equal_to") else "different",
            self.session.contract.name,
            sandbox.file,
            sandbox.function,
            sandbox.backend,
            tuple(self.comparisons),
            notes=tuple(self.session.notes),
            usage=sandbox.usage,
            versions=_versions(self.session.contract),
            **found,
        )


def _distance(seen: Comparison) -> tuple[float, float, str]:
    """The fewest differing cases, then the smallest error."""
    return seen.differing / max(seen.cases, 1), min(seen.error, 1e300), seen.reference


def _versions(contract: Contract) -> dict[str, str]:
    """Reference to the pins that it runs, as ``verl 0.8.0``."""
    from annotator import pins

    try:
        lock = pins.read_lock(Workspace.find().lock)
    except AnnotatorError:
        return {}
    found = {}
    for item in references(contract):
        names = dict.fromkeys(symbol.partition(":")[0] for symbol in item.symbols)
        found[item.name] = ", ".join(f"{name} {lock[name].version}" for name in names if name in lock)
    return found


def literals(given: Mapping[str, str]) -> dict[str, Any]:
    """Options of the command line as values: ``2`` is a number, ``[1, 2]`` a list, what is no literal a text."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


def write(verdict: Verdict, contract: Contract, *, emitted: str | None, html: str | None) -> list[str]:
    """Writes what was asked for: a pytest file of the witness, a report. Returns what became of each, in a line.

    Raises:
        UserCodeError: a file cannot be written.
    """
    from annotator.contracts.emitting import emit
    from annotator.contracts.reporting import report

    told = []
    if html:
        told.append(_written(html, report(verdict)))
    if emitted and verdict.witness and verdict.witness.expected is not None:
        told.append(_written(emitted, emit(verdict, contract, emitted)))
    elif emitted:
        told.append(f"{emitted}: not written, there is no witness{' since it is equal' if verdict.equal else ''}")
    return told


def _written(path: str, text: str) -> str:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        found = error.strerror or "none"
        raise UserCodeError(path, expected="a file that can be written", found=found) from error
    return f"{path}: written"


def template(contract: Contract) -> str:
    """A starting file for `diff`: the signature, with shapes, units and what to return."""
    if contract.operations:
        return skeleton(contract)
    knobs = "".join(f", {knob.name}={knob.default!r}" for knob in contract.knobs)
    names = ", ".join(item.name for item in contract.inputs)
    name = contract.name.replace("-", "_")
    lines = [
        f'"""{contract.title}: a starting file for `annotator diff FILE:{name} {contract.name}`."""',
        "",
        "import torch",
        "",
        "",
    ]
    lines += [f"def {name}({names}{knobs}):", f'    """{contract.title}.', "", "    Args:"]
    lines += [
        f"        {i.name}: {i.dtype} [{', '.join(i.shape)}]. {_sentence(i.doc, i.unit)}" for i in contract.inputs
    ]
    lines += [f"        {k.name}: one of {', '.join(map(repr, k.choices))}. {_sentence(k.doc)}" for k in contract.knobs]
    lines += ["", "    Returns a mapping with:"]
    lines += [f"        {o.name}: [{', '.join(o.shape)}]. {_sentence(o.doc, o.unit)}" for o in contract.outputs]
    lines += ['    """', "    raise NotImplementedError", ""]
    return "\n".join(lines)


def _sentence(text: str, unit: str = "") -> str:
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}{f' ({unit})' if unit else ''}."
