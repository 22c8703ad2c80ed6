"""The source of one minimal function, for the tabs beside a reference. Read as text: the site needs no torch."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from annotator.errors import ReadingError, did_you_mean, near_matches
from annotator.workspace import Workspace

BACKENDS = ("torch", "jax")


@dataclass(frozen=True)
class Function:
    """A function of ``minimal/``: its file (relative to the workspace), its lines, and the number of the first.

    ``public`` holds what the file defines for others, each with the first line of its docstring.
    """

    path: str
    name: str
    first: int
    lines: tuple[str, ...]
    public: Mapping[str, str]

    @property
    def module(self) -> str:
        """``minimal.post_training.grpo_torch``."""
        return self.path.removesuffix(".py").replace("/", ".")


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
    defined = {node.name: node for node in ast.parse(text).body if isinstance(node, Named)}
    node = _one(defined, name, path, place)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    lines = tuple(text.split("\n")[first - 1 : node.end_lineno])
    return Function(path, name, first, lines, {n: _doc(d) for n, d in defined.items() if not n.startswith("_")})


def whole(workspace: Workspace, path: str) -> Function:
    """A file of ``minimal/``, all of it, without a name of its own.

    Raises:
        ReadingError: there is no such file.
    """
    try:
        text = (workspace.root / path).read_text(encoding="utf-8")
    except OSError as error:
        raise ReadingError(path, expected="a file of minimal/", found="none") from error
    defined = [node for node in ast.parse(text).body if isinstance(node, Named)]
    public = {node.name: _doc(node) for node in defined if not node.name.startswith("_")}
    return Function(path, "", 1, tuple(text.rstrip("\n").split("\n")), public)


Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _one(defined: Mapping[str, Named], name: str, path: str, place: str) -> Named:
    if name not in defined:
        remedy = did_you_mean(near_matches(name, defined)) or f"{path} has {', '.join(defined)}"
        raise ReadingError(place, expected=f"the function {name} in {path}", found="none", remedy=remedy)
    return defined[name]


def _doc(node: Named) -> str:
    return (ast.get_docstring(node) or "").split("\n")[0]
