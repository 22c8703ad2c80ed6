"""What readings point at: contracts, minimal code, symbols, pages. Apart from checking, for the site and the
catalogue look at it too.

Links to symbols follow the mkdocs-autorefs convention: ``[`DataProto`][verl.protocol.DataProto]``; the first part
names the pin. ``minimal.…`` and ``annotator.…`` name this project's own code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from annotator.errors import SymbolNotFound, did_you_mean
from annotator.readings.parsing import Reading, fences, lines_of
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.index import Index

Kind = Literal["contract", "minimal", "symbol", "page"]
OWN = ("minimal", "annotator")
TWINS = ("torch", "jax")

_CODE = re.compile(r"(`+)(?!`)(?:(?!\n[ ]*\n).)*?(?<!`)\1(?!`)", re.DOTALL)
_SYMBOL = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\[((?:[A-Za-z_][^\[\]\s]*)?)\]")
_PAGE = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_LABEL = re.compile(r"(?m)^[ ]{0,3}\[([^\]]+)\]:\s")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_HEADING = re.compile(r"#{1,6}[ ]+(.+?)[ ]*#*")


@dataclass(frozen=True)
class Reference:
    """Something a reading points at, and the place where it does. ``step`` is the id of the step that does, or
    empty."""

    kind: Kind
    target: str
    place: str
    reading: str
    step: str = ""


def references(readings: Iterable[Reading]) -> list[Reference]:
    """All that the readings point at, in order: contracts, dotted paths of minimal code, symbols, pages."""
    return [found for reading in readings for found in (*_options(reading), *_links(reading))]


def _options(reading: Reading) -> Iterator[Reference]:
    for step in reading.steps:
        for kind in ("contract", "minimal"):
            if kind in step.options:
                yield Reference(
                    "contract" if kind == "contract" else "minimal",
                    step.options[kind],
                    step.place(kind),
                    reading.path,
                    step.id,
                )


def _links(reading: Reading) -> Iterator[Reference]:
    text = _prose(reading)
    bare = _CODE.sub(lambda match: re.sub(r"[^\n]", "x", match.group()), text)
    labels = {match.group(1).lower() for match in _LABEL.finditer(bare)}
    for match in _SYMBOL.finditer(bare):
        target = match.group(2) or text[match.start(1) : match.end(1)].strip("`")
        if target.lower() not in labels:
            yield _reference(reading, "symbol", target, bare.count("\n", 0, match.start()) + 1)
    for match in _PAGE.finditer(bare):
        if not re.match(r"[a-z][a-z0-9+.-]*:", match.group(1)):
            yield _reference(reading, "page", match.group(1), bare.count("\n", 0, match.start()) + 1)


def _reference(reading: Reading, kind: Kind, target: str, line: int) -> Reference:
    step = next((step.id for step in reading.steps if step.line <= line <= step.last), "")
    return Reference(kind, target, f"{reading.path}:{line}", reading.path, step)


def _prose(reading: Reading) -> str:
    """The text with code fences and the options of steps left blank, line by line."""
    lines = lines_of(reading.text)
    silent = fences(lines)
    for step in reading.steps:
        for line in range(step.line, max(step.places.values(), default=step.line)):
            silent[line] = True
    return "\n".join("" if hide else line for line, hide in zip(lines, silent, strict=True))


def dead(reference: Reference, readings: Iterable[Reading], workspace: Workspace, index: Index) -> str | None:
    """Why a reference leads nowhere; None when it is alive. Contracts are not looked at: the catalogue comes
    later."""
    if reference.kind == "symbol":
        return _dead_symbol(reference.target, workspace, index)
    if reference.kind == "minimal":
        return _dead_minimal(reference.target, workspace)
    if reference.kind == "page":
        return _dead_page(reference, readings, workspace)
    return None


def symbol_of(target: str) -> str:
    """The symbol that a link names: ``verl.protocol.DataProto`` is ``verl:verl.protocol.DataProto``."""
    return target if ":" in target.split(".")[0] else f"{target.split('.')[0]}:{target}"


def _dead_symbol(target: str, workspace: Workspace, index: Index) -> str | None:
    if not _DOTTED.fullmatch(target.partition(":")[2] or target):
        return f"expected a dotted name, found {target!r}"
    if target.split(".")[0] in OWN:
        return _dead_own(target, workspace)
    try:
        index.definition(symbol_of(target))
    except SymbolNotFound as error:
        remedy = did_you_mean(error.near)
        return f"expected a symbol of the pins, found no {target!r}" + (f"; {remedy}" if remedy else "")
    return None


def _dead_own(target: str, workspace: Workspace) -> str | None:
    """Of this project's own code. Where the checkout is not there (an installed wheel) nothing is said."""
    parts = target.split(".")
    if not (workspace.root / parts[0]).is_dir():
        return None
    for count in range(len(parts), 0, -1):
        base = workspace.root.joinpath(*parts[:count])
        file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
        if file.is_file():
            return (
                None
                if _defines(file, parts[count:])
                else f"expected a name of {'.'.join(parts[:count])}, found no {parts[-1]!r}"
            )
    return f"expected a module, found no {target!r}"


def _defines(file: Path, names: list[str]) -> bool:
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        node = next((n for n in body if name in _names(n)), None)
        if node is None:
            return False
        body = getattr(node, "body", [])
    return True


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def minimal_files(target: str, workspace: Workspace) -> list[tuple[Path, str]]:
    """File and function of each twin: ``post_training.grpo.loss`` is in
    ``minimal/post_training/grpo_{torch,jax}.py``."""
    *folders, module, function = target.split(".")
    folder = workspace.root.joinpath("minimal", *folders)
    return [(folder / f"{module}_{twin}.py", function) for twin in TWINS]


def _dead_minimal(target: str, workspace: Workspace) -> str | None:
    if target.count(".") < 2:
        return f"expected 'topic.module.function', found {target!r}"
    if not (workspace.root / "minimal").is_dir():
        return None
    for file, function in minimal_files(target, workspace):
        name = file.relative_to(workspace.root).as_posix()
        if not file.is_file():
            return f"expected {name}, found none"
        if not _defines(file, [function]):
            return f"expected {function!r} in {name}, found none"
    return None


def _dead_page(reference: Reference, readings: Iterable[Reading], workspace: Workspace) -> str | None:
    path, _, fragment = reference.target.partition("#")
    file = (workspace.root / reference.reading).parent / path if path else workspace.root / reference.reading
    if not file.resolve().exists():
        return f"expected a file, found no {reference.target!r}"
    page = next((r for r in readings if (workspace.root / r.path).resolve() == file.resolve()), None)
    if fragment and page is not None and fragment not in fragments(page):
        return f"expected a step or heading of {page.path}, found no {fragment!r}"
    return None


def fragments(reading: Reading) -> set[str]:
    """What a link may name within the page: ``step-<id>`` and the slugs of headings."""
    lines = lines_of(reading.text)
    heads = [
        m.group(1)
        for line, fenced in zip(lines, fences(lines), strict=True)
        if not fenced and (m := _HEADING.fullmatch(line))
    ]
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}
    return slugs | {f"step-{step.id}" for step in reading.steps}
