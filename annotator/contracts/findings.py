"""What running a contract found. Data only: `conforming` makes it, proofs keep it, the command line shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from annotator.contracts.model import Case, Operation

Status = Literal["passed", "failed", "not run"]


@dataclass(frozen=True)
class Witness:
    """A small input on which two computations differ, and where.

    ``part`` is an output's name or ``gradient of INPUT``; ``index`` the first entry that differs (in a trajectory the
    first axis is the step), or None when shapes differ. ``reason`` is set when there is no number to show.
    ``operations`` are those of a contract of kind *trace*: by them its input reads as a list of calls.
    """

    case: Case
    part: str
    index: tuple[int, ...] | None
    expected: np.ndarray | None
    found: np.ndarray | None
    reason: str = ""
    operations: tuple[Operation, ...] = ()

    def lines(self) -> list[str]:
        """The witness as text: the input in full, then expected and found."""
        shown = [
            line
            for name, array in self.case.inputs.items()
            for line in (self._steps() if self._is_trace(name) else [f"  {name} = {compact(array)}"])
        ]
        knobs = ", ".join(f"{name}={value!r}" for name, value in self.case.knobs.items())
        head = f"smallest input{f' ({self.case.label})' if self.case.label else ''}:"
        result = [
            head,
            *shown,
            *([f"  with {knobs}"] if knobs else []),
            f"{self.part}{self._where()}: {self.reason}".rstrip(": "),
        ]
        if self.expected is not None and self.found is not None:
            expected, found = self.expected, self.found
            if self.operations and self.index:  # what a trace shows is a step's; those before it are the same
                expected, found = expected[self.index[0]], found[self.index[0]]
            result += [f"  expected {compact(expected)}", f"  found    {compact(found)}"]
        return result

    def _is_trace(self, name: str) -> bool:
        return bool(self.operations) and name == "operations"

    def _steps(self) -> list[str]:
        """The operations of a trace, each with its number, by name; those after the first difference do not matter."""
        from annotator.contracts.tracing import steps

        taken = steps(self.case.inputs["operations"], self.operations)
        last = self.index[0] if self.index else len(taken)
        return [f"  {number}  {step}" for number, step in enumerate(taken[: last + 1])]

    def _where(self) -> str:
        return f"[{', '.join(map(str, self.index))}]" if self.index else ""

    def to_json(self) -> dict[str, Any]:
        """The same for machines; arrays as nested lists."""
        return {
            "inputs": {name: plain(array) for name, array in self.case.inputs.items()},
            "knobs": {name: plain(value) for name, value in self.case.knobs.items()},
            "label": self.case.label,
            **({"steps": [line.strip() for line in self._steps()]} if self.operations else {}),
            "part": self.part,
            "index": list(self.index) if self.index is not None else None,
            "expected": plain(self.expected),
            "found": plain(self.found),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Finding:
    """One implementation, held against one reference's dialect, in one dtype, on one device.

    ``error`` is the largest over all cases, against the float64 oracle; ``bound`` what was allowed (None for a
    reference in a dtype whose bound it sets itself). ``gradient_error`` is None where there is no gradient.
    ``p_value`` (kind *distribution*) is the smallest over all chi-square tests, after Bonferroni.
    ``excluded`` counts cases that the reference itself cannot compute in this dtype (an overflow). ``probes`` has the
    error of each probe that needs no reference, ``broken`` those that do not hold (where it passed, all declared).
    """

    contract: str
    implementation: str
    reference: str
    dtype: str
    device: str
    status: Status
    cases: int = 0
    error: float | None = None
    bound: float | None = None
    gradient_error: float | None = None
    gradient_bound: float | None = None
    p_value: float | None = None
    excluded: int = 0
    reason: str = ""
    witness: Witness | None = None
    seconds: float = 0.0
    probes: Mapping[str, float] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it ran and kept within its bounds."""
        return self.status == "passed"

    def to_json(self) -> dict[str, Any]:
        """Every field in JSON's types."""
        fields = {name: plain(value) for name, value in vars(self).items() if name != "witness"}
        return {**fields, "witness": self.witness.to_json() if self.witness else None}

    def line(self) -> str:
        """The finding in one line, as ``annotator conform`` prints it."""
        who = (
            self.implementation
            if self.implementation == self.reference
            else f"{self.implementation} as {self.reference}"
        )
        head = f"{who:<38} {self.dtype:<8} {self.device}  {self.status}"
        if self.status == "not run":
            return f"{head}: {self.reason}"
        facts = [f"{self.cases} cases"]
        facts += [_against("error", self.error, self.bound)] if self.error is not None else []
        facts += (
            [_against("gradient", self.gradient_error, self.gradient_bound)] if self.gradient_error is not None else []
        )
        facts += [f"p={self.p_value:.2g}"] if self.p_value is not None else []
        held = [name for name in self.probes if name not in self.broken]
        facts += [f"holds {', '.join(held)}"] if held else []
        facts += [f"breaks {', '.join(self.broken)}"] if self.broken else []
        facts += [f"{self.excluded} cases beyond the reference's range"] if self.excluded else []
        return f"{head}  {', '.join(facts)}{': ' + self.reason if self.reason else ''}"

    def witness_lines(self) -> list[str]:
        """The smallest input that shows the failure, as text."""
        return self.witness.lines() if self.witness else []


def _against(what: str, error: float, limit: float | None) -> str:
    """An error and what was allowed."""
    return f"{what} {sized(error)}" + (f" (at most {limit:.1e})" if limit is not None else "")


def sized(error: float) -> str:
    """An error as text. Where the truth is 0, or one side is no number, there is no scale to measure it by."""
    return f"{error:.1e}" if error < float("inf") else "beyond any scale"


def plain(value: Any) -> Any:
    """JSON's own types: arrays become nested lists, what is not finite becomes its name."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not -1.7e308 < value < 1.7e308:
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def compact(array: Any, limit: int = 200) -> str:
    """A small array in full on one line, a large one by its shape, ends and range."""
    import numpy as np

    values = np.asarray(array)
    if values.size <= limit:
        return _nested(values.tolist())
    flat = values.ravel()
    return f"{list(values.shape)} {_nested(flat[:3].tolist())[:-1]}, … {_nested(flat[-3:].tolist())[1:]}"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(item) for item in value)}]"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
