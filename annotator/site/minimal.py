"""The source of one minimal function, for the tabs beside a reference. Read as text: the site needs no torch."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from annotator.errors import ReadingError, did_you_mean, near_matches
from annotator.workspace import Workspace

BACKENDS = ("torch", "jax")


@dataclass(frozen=True)
class Function:
    """A function of ``minimal/``: its file (relative to the workspace), its lines, and the number of the first."""

    path: str
    name: str
    first: int
    lines: tuple[str, ...]


def function(workspace: Workspace, dotted: str, backend: str, place: str) -> Function:
    """The function that ``dotted`` (``post_training.grpo.group_advantages``) names, in its ``backend`` file.

    Raises:
        ReadingError: no such file, or no such function in it; ``place`` is the step's.
    """
    *folders, topic, name = ["", *dotted.split(".")]
    path = "/".join(["minimal", *folders[1:], f"{topic}_{backend}.py"])
    try:
        text = (workspace.root / path).read_text(encoding="utf-8")
    except OSError as error:
        raise ReadingError(
            place, expected=f"the file {path}", found="none", remedy="write it, or mend 'minimal:'"
        ) from error
    node = _named(ast.parse(text), name, path, place)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return Function(path, name, first, tuple(text.split("\n")[first - 1 : node.end_lineno]))


Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _named(tree: ast.Module, name: str, path: str, place: str) -> Named:
    found = {node.name: node for node in tree.body if isinstance(node, Named)}
    if name not in found:
        remedy = did_you_mean(near_matches(name, found)) or f"{path} has {', '.join(found)}"
        raise ReadingError(place, expected=f"the function {name} in {path}", found="none", remedy=remedy)
    return found[name]
