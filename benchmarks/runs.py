"""What really is called while the contracts' references run, held against the call graph, as a Markdown table.

    python benchmarks/runs.py [--contracts gae,rope] [--recorded FILE] [--list] [--json]

An edge is a line of a pin's file and the function of a pin's file that was entered from it. Calls that pass through a
third file, and functions that have no line of their own in it (``<listcomp>``, what ``exec`` makes), make no edge; what
happens inside a comprehension or a lambda belongs to the function around it. Edges that only importing makes are
counted in a row of their own. With ``--recorded``, edges are kept in a file, and read from it where it exists.
"""

from __future__ import annotations

import argparse
import dis
import inspect
import json
import re
import statistics
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from annotator.index import Call, Definition, Index  # noqa: E402
from annotator.index.calls import callees  # noqa: E402
from annotator.workspace import Workspace  # noqa: E402

GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
DRAWN = 3
"""Drawn cases a reference, besides its edge cases."""

CODE = ("module", "class", "function", "method")
DISPATCHED, NATIVE = "PyTorch's C++ dispatches to it", "a function in C stands between"
IMPORTING = "(importing)"
INNER = re.compile(r"\.?<(?:listcomp|dictcomp|setcomp|genexpr|lambda|locals)>")


@dataclass(frozen=True)
class Edge:
    """``pin:path`` and line of the caller, with the qualified name of its code, and the same of what it entered.

    ``through`` names the function in C that stood between.
    """

    contract: str
    caller: str
    line: int
    within: str
    callee: str
    first: int
    entered: str
    through: str = ""


class Places:
    """Which pin's file a code object is of: in a pin's tree, or the same bytes in the installed copy of it."""

    def __init__(self, workspace: Workspace) -> None:
        import tomllib

        lock = tomllib.loads(workspace.lock.read_text())
        names = [name for name in lock if workspace.tree(name).exists()]
        self.roots = {workspace.tree(name).resolve(): name for name in names}
        self.installed = {name: workspace.tree(name) for name in names if lock[name].get("run") == "installed"}
        self.known: dict[str, str | None] = {}

    def of(self, filename: str) -> str | None:
        """``pin:path`` of a file, or ``None``."""
        if filename not in self.known:
            self.known[filename] = self.find(Path(filename)) if filename.endswith(".py") else None
        return self.known[filename]

    def find(self, path: Path) -> str | None:
        path = path.resolve()
        for root, name in self.roots.items():
            if path.is_relative_to(root):
                return f"{name}:{path.relative_to(root).as_posix()}"
        parts = path.parts
        if "site-packages" not in parts:
            return None
        inner = "/".join(parts[parts.index("site-packages") + 1 :])
        for name, tree in self.installed.items():
            if (tree / inner).is_file() and (tree / inner).read_bytes() == path.read_bytes():
                return f"{name}:{inner}"
        return None


class Recorder:
    """Records edges by `sys.setprofile`, in all threads."""

    def __init__(self, places: Places) -> None:
        self.places, self.contract = places, ""
        self.edges: dict[Edge, None] = {}
        self.seen: set[tuple[Any, ...]] = set()
        self.codes: dict[CodeType, str | None] = {}
        self.here = threading.local()

    def place(self, code: CodeType) -> str | None:
        if code not in self.codes:
            self.codes[code] = self.places.of(code.co_filename)
        return self.codes[code]

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        state = self.here.__dict__
        if event == "call":
            if frame.f_code.co_name == "<module>":
                state["importing"] = state.get("importing", 0) + 1
            elif (caller := frame.f_back) is not None and self.place(frame.f_code) and self.place(caller.f_code):
                self.note(caller, frame, state)
        elif event == "return":
            if frame.f_code.co_name == "<module>":
                state["importing"] = state.get("importing", 0) - 1
        elif event == "c_call":
            state.setdefault("native", []).append((frame, argument))
        elif state.get("native"):
            state["native"].pop()

    def note(self, caller: FrameType, frame: FrameType, state: dict[str, Any]) -> None:
        contract = IMPORTING if state.get("importing", 0) > 0 else self.contract
        key = (contract, caller.f_code, caller.f_lineno, frame.f_code)
        if key in self.seen or caller is frame or is_resumed(frame):
            return
        self.seen.add(key)
        native = state.get("native")
        through = getattr(native[-1][1], "__qualname__", "?") if native and native[-1][0] is caller else ""
        within, entered = caller.f_code.co_qualname, frame.f_code.co_qualname
        if entered.endswith(">") and not entered.endswith("<lambda>"):
            return
        here, there = self.place(caller.f_code), self.place(frame.f_code)
        assert here is not None
        assert there is not None
        edge = Edge(contract, here, caller.f_lineno, within, there, frame.f_code.co_firstlineno, entered, through)
        self.edges[edge] = None

    def run(self, contract: str, action: Callable[[], object]) -> None:
        """Runs something and records it under the contract's name."""
        self.contract = contract
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            action()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            self.here.__dict__.clear()


def is_resumed(frame: FrameType) -> bool:
    """Whether a generator is entered for another time than its first."""
    return bool(frame.f_code.co_flags & GENERATORS) and frame.f_lasti > made_at(frame.f_code)


@cache
def made_at(code: CodeType) -> int:
    """Offset of the instruction that makes a generator; its body runs from there when it is first asked for a value."""
    making = dis.opmap["RETURN_GENERATOR"]
    return next((at for at in range(0, len(code.co_code), 2) if code.co_code[at] == making), 0)


def record(workspace: Workspace, wanted: list[str], drawn: int) -> list[Edge]:
    """Runs each reference of the contracts on its edge cases and a few drawn ones."""
    from annotator import catalog
    from annotator.contracts.conforming import accepted, references, unavailable
    from annotator.contracts.oracle import at
    from annotator.contracts.running import Fault, run
    from annotator.contracts.sampling import draw

    recorder = Recorder(Places(workspace))
    for name in wanted or catalog.names():
        contract = catalog.contract(name)
        cases = draw(contract, drawn)
        for item in references(contract):
            if reason := unavailable(item, "cpu"):
                print(f"not run: {name} {item.name}: {reason}", file=sys.stderr)
                continue
            for number in accepted(cases, item):
                case = at(cases[number], item.dialect)
                dtype = item.dtypes[0]

                def action() -> None:
                    run(contract, item.call, item.backend, case, dtype=dtype, gradient=item.differentiable)  # noqa: B023

                try:
                    recorder.run(name, action)
                except Fault as fault:
                    print(f"fault: {name} {item.name} {case.label}: {fault}", file=sys.stderr)
            print(f"{name} {item.name}: {len(recorder.edges)} edges", file=sys.stderr)
    return list(recorder.edges)


class Graph:
    """The call graph, asked about recorded edges."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.files: dict[str, list[Definition]] = {}
        self.asked: dict[tuple[str, int], list[Call]] = {}

    def definitions(self, place: str) -> list[Definition]:
        if place not in self.files:
            pin, _, path = place.partition(":")
            self.files[place] = self.index.definitions(pin, path)
        return self.files[place]

    def around(self, place: str, qualname: str, line: int) -> Definition | None:
        """The definition that some code is of: by its name and lines, a lambda's by its lines."""
        name = INNER.sub("", qualname).replace("<module>", "")
        named = [item for item in self.definitions(place) if item.qualname == name and item.kind in CODE]
        inside = [item for item in named if item.kind == "module" or item.line <= line <= item.end_line]
        return (inside or named or [None])[-1]

    def entered(self, place: str, qualname: str, first: int) -> Definition | None:
        """The definition whose code begins at a line, below its decorators; a lambda is its surroundings'."""
        if qualname.endswith("<lambda>"):
            around = [item for item in self.definitions(place)[1:] if item.line <= first <= item.end_line]
            return max(around, key=lambda item: item.line, default=self.definitions(place)[0])
        name = INNER.sub("", qualname)
        named = [item for item in self.definitions(place) if item.qualname == name and item.kind in CODE]
        below = [item for item in named if item.line >= first] or named
        return min(below, key=lambda item: abs(item.line - first), default=None)

    def calls(self, definition: Definition) -> list[Call]:
        key = (definition.symbol, definition.line)
        if key not in self.asked:
            self.asked[key] = callees(self.index, definition)
        return self.asked[key]

    def finds(self, edge: Edge) -> tuple[bool, bool]:
        """Whether an edge is in the graph, and whether it is at its very line."""
        caller, callee = self.ends(edge)
        if caller is None or callee is None:
            return False, False
        hits = [call for call in self.calls(caller) if call.callee == callee.symbol]
        return bool(hits), any(call.lines[0] <= edge.line <= call.lines[1] for call in hits)

    def ends(self, edge: Edge) -> tuple[Definition | None, Definition | None]:
        caller = self.around(edge.caller, edge.within, edge.line)
        return caller, self.entered(edge.callee, edge.entered, edge.first)

    def source(self, edge: Edge) -> str:
        pin, _, path = edge.caller.partition(":")
        return self.index.resolver.read(pin, path).decode("utf-8", "replace").split("\n")[edge.line - 1].strip()

    def cause(self, edge: Edge) -> str:
        """Why an edge may be missing, computed from what it is."""
        _, callee = self.ends(edge)
        name = edge.entered.rpartition(".")[2]
        if name in ("__torch_function__", "__torch_dispatch__"):
            return DISPATCHED
        if edge.through:
            return NATIVE
        if callee is None:
            return "no such definition in the index"
        if name == "<lambda>":
            return "a lambda that is kept somewhere"
        if "property" in " ".join(callee.decorators):
            return "a property of an object of unknown class"
        if name in ("__call__", "forward"):
            return "an object of unknown class is called"
        if name in ("__init__", "__new__", "__post_init__"):
            return "a class in a variable is called"
        if name.startswith("__"):
            return f"a construct that enters {name} of an object of unknown class"
        if re.search(rf"\b{re.escape(name)}\b", self.source(edge)):
            return "called by its name on an object of unknown class"
        if "<locals>" in edge.entered:
            return "a function made inside of another one, in a variable"
        return "called through a variable or parameter"


@dataclass
class Row:
    """Edges of one pin and contract, how many of them the graph has, and how many at their line."""

    edges: int = 0
    found: int = 0
    at_line: int = 0

    def add(self, found: bool, at_line: bool) -> None:
        self.edges, self.found, self.at_line = self.edges + 1, self.found + found, self.at_line + at_line


@dataclass
class Held:
    """All recorded edges held against the graph."""

    rows: dict[tuple[str, str], Row] = field(default_factory=lambda: defaultdict(Row))
    running: Row = field(default_factory=Row)
    python: Row = field(default_factory=Row)
    importing: Row = field(default_factory=Row)
    missing: list[Edge] = field(default_factory=list)


def held(graph: Graph, edges: list[Edge], importing: bool) -> Held:
    """Each edge once in the totals, and once in each contract that makes it."""
    made, seen = Held(), set()
    for edge in edges:
        if edge.contract == IMPORTING and not importing:
            continue
        found, at_line = graph.finds(edge)
        made.rows[edge.caller.partition(":")[0], edge.contract].add(found, at_line)
        key = (edge.contract == IMPORTING, edge.caller, edge.line, edge.callee, edge.first)
        if key in seen:
            continue
        seen.add(key)
        if edge.contract == IMPORTING:
            made.importing.add(found, at_line)
            continue
        made.running.add(found, at_line)
        if graph.cause(edge) not in (NATIVE, DISPATCHED):
            made.python.add(found, at_line)
        if not found:
            made.missing.append(edge)
    return made


def widths(graph: Graph) -> dict[str, float]:
    """How wide the graph is, over the functions that were asked: what it costs to find so much."""
    each = sorted(len({call.callee for call in calls}) for calls in graph.asked.values())
    sure = Counter(call.certainty for calls in graph.asked.values() for call in calls)
    return {
        "functions": len(each),
        "median": statistics.median(each),
        "95th percentile": each[int(len(each) * 0.95)],
        "most": each[-1],
        "edges, exact": sure["exact"],
        "edges, inferred": sure["inferred"],
    }


def markdown(graph: Graph, made: Held, listing: bool) -> Iterator[str]:
    """The report as Markdown."""
    yield "| pin | contract | edges | found | share | at the line |\n|---|---|---:|---:|---:|---:|"
    totals = [(("all", "running"), made.running), (("all", "running, but for what C enters"), made.python)]
    totals += [(("all", IMPORTING), made.importing)] if made.importing.edges else []
    for (pin, contract), row in [*sorted(made.rows.items()), *totals]:
        share, line = row.found / max(1, row.edges), row.at_line / max(1, row.edges)
        yield f"| {pin} | {contract} | {row.edges:,} | {row.found:,} | {share:.1%} | {line:.1%} |"
    yield "\n| why it is missing | edges | for example |\n|---|---:|---|"
    causes: dict[str, list[Edge]] = defaultdict(list)
    for edge in made.missing:
        causes[graph.cause(edge)].append(edge)
    for cause, edges in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        yield f"| {cause} | {len(edges)} | {brief(edges[0])} |"
        yield from (f"| | | {brief(edge)} |" for edge in edges[1:] if listing)
    yield "\n| of the functions asked: callees each | |\n|---|---:|"
    yield from (f"| {what} | {number:,} |" for what, number in widths(graph).items())


def brief(edge: Edge) -> str:
    """An edge in a line."""
    through = f" (by {edge.through})" if edge.through else ""
    return f"`{edge.caller}:{edge.line}` → `{edge.callee.partition(':')[0]}:{edge.entered}`{through}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contracts", default="", help="only these, separated by commas")
    parser.add_argument("--recorded", type=Path, help="keep the recorded edges in this file")
    parser.add_argument("--importing", action="store_true", help="hold what importing calls against the graph too")
    parser.add_argument("--list", action="store_true", help="show every missing edge")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    given = parser.parse_args()
    workspace = Workspace.find(ROOT)
    if given.recorded and given.recorded.is_file():
        edges = [Edge(**row) for row in json.loads(given.recorded.read_text())]
    else:
        edges = record(workspace, [name for name in given.contracts.split(",") if name], DRAWN)
        if given.recorded:
            given.recorded.write_text(json.dumps([asdict(edge) for edge in edges]))
    with Index.open(workspace) as index:
        graph = Graph(index)
        made = held(graph, edges, given.importing)
        if not given.json:
            print("\n".join(markdown(graph, made, given.list)))
            return
    missing = [asdict(edge) | {"cause": graph.cause(edge)} for edge in made.missing]
    rows = [{"pin": pin, "contract": contract, **asdict(row)} for (pin, contract), row in sorted(made.rows.items())]
    totals = {name: asdict(getattr(made, name)) for name in ("running", "python", "importing")}
    print(json.dumps({"rows": rows, "totals": totals, "missing": missing, "widths": widths(graph)}, indent=1))


if __name__ == "__main__":
    main()
