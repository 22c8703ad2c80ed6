"""A small pin of our own, an index over it, and a workspace with one reading."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from annotator.errors import SymbolNotFound, near_matches
from annotator.index.model import Definition
from annotator.workspace import Workspace

SOURCE = '''\
"""A module to be read."""
import registry


def halve(values):
    return [value / 2 for value in values]


@registry.named("spread")
def spread(scores, groups, eps=1e-6):
    """How far each score lies from its group."""
    total = {}
    count = {}
    for score, group in zip(scores, groups):
        total[group] = total.get(group, 0.0) + score  # the sum
        count[group] = count.get(group, 0) + 1
    means = {group: total[group] / count[group] for group in total}
    if not means:
        return []
    elif eps < 0:
        raise ValueError("eps must not be negative")
    else:
        check(means,
              eps)
    check(means, eps)
    out = [
        score - means[group]
        for score, group in zip(scores, groups)
    ]
    return out


class Box:
    limit: int = 3

    def put(self, item):
        self.items.append(item)
        return len(self.items) < self.limit
'''

READING = """\
# How a spread is made

From scores to distances.

/// step | pin:pkg.mod.spread
    from: 'total[group] = total.get(group, 0.0) + score'
Why the sum is kept.
///

/// step | pin:pkg.mod.spread
    from: "means = {group:"
    to: "if not means:"
    id: means
    title: The mean
Why [`halve`][pin.pkg.mod.halve] is not used.
///

/// step | pin:pkg.mod.Box.put
The whole method, see [above](#step-means).
///
"""


class Little:
    """Definitions of the tree by Python's own parser: what the anchors ask of the index, and no more."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.table: dict[str, Definition] = {}
        for file in sorted(root.rglob("*.py")):
            path = file.relative_to(root).as_posix()
            module = path.removesuffix(".py").replace("/", ".")
            tree = ast.parse(file.read_text())
            self._add(path, module, "", "module", 1, len(file.read_text().splitlines()))
            self._walk(tree, path, module, "")

    def _walk(self, node: ast.AST, path: str, module: str, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                kind = "class" if isinstance(child, ast.ClassDef) else "function"
                self._add(path, module, prefix + child.name, kind, child.lineno, child.end_lineno or 0)
                self._walk(child, path, module, f"{prefix}{child.name}.")

    def _add(self, path: str, module: str, qualname: str, kind: str, line: int, end: int) -> None:
        name = (qualname or module).rpartition(".")[2]
        found = Definition("pin", path, module, qualname, name, kind, line, 0, end, "", "", "python")
        self.table[found.symbol] = found

    def definition(self, symbol: str) -> Definition:
        if symbol.removeprefix("pin:pin.") != symbol:  # links name the package, which here is not the pin's name
            symbol = "pin:" + symbol.removeprefix("pin:pin.")
        if symbol not in self.table:
            raise SymbolNotFound(symbol, near_matches(symbol, self.table))
        return self.table[symbol]


class Place:
    """A workspace in a temporary folder, with one pin and one reading, which tests edit."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root=root, cache=root / "cache", state=root / "vendored_refs")
        self.write("vendored_refs/pin/pkg/mod.py", SOURCE)
        self.write("walkthroughs/pin/spread.md", READING)

    @property
    def index(self) -> Little:
        return Little(self.workspace.tree("pin"))

    def write(self, path: str, text: str) -> None:
        file = self.workspace.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.workspace.root / path).read_text(encoding="utf-8")
        assert old in text, old
        self.write(path, text.replace(old, new, 1))

    def source(self, old: str, new: str) -> None:
        self.edit("vendored_refs/pin/pkg/mod.py", old, new)

    def reading(self, old: str, new: str) -> None:
        self.edit("walkthroughs/pin/spread.md", old, new)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for module in ("lock", "checking"):
        monkeypatch.setattr(f"annotator.readings.{module}.versions", lambda workspace: {"pin": "1.0"})
    return Place(tmp_path)


Make = Callable[[str], str]
