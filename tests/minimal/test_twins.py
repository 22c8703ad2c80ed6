"""Twins teach by their difference, so nothing else may differ: same names, same order, same options."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MINIMAL = Path(__file__).parents[2] / "minimal"
TOPICS = sorted(path.relative_to(MINIMAL).as_posix().removesuffix("_torch.py") for path in MINIMAL.rglob("*_torch.py"))
FILES = sorted(path.relative_to(MINIMAL).as_posix() for path in MINIMAL.rglob("*.py"))
RANDOMNESS = {"generator": "randomness", "key": "randomness"}
"""Where torch has a generator JAX has a key: the one parameter whose name the framework decides."""

FOREIGN = {"annotator", "verl", "trl", "vllm", "transformers", "hypothesis"}


def signature(function: ast.FunctionDef) -> str:
    """The parameters of a function with their defaults, without annotations."""
    given = function.args
    arguments = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    names = [RANDOMNESS.get(argument.arg, argument.arg) for argument in arguments]
    defaults = [ast.unparse(value) for value in (*given.defaults, *given.kw_defaults) if value is not None]
    return f"({', '.join(names)}; {', '.join(defaults)})"


def outline(body: list[ast.stmt]) -> list[str]:
    """The names that a module or class defines, in order: functions with parameters, classes with members."""
    found: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.append(node.name + signature(node))
        elif isinstance(node, ast.ClassDef):
            found += [node.name, *(f"{node.name}.{name}" for name in outline(node.body))]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return found


def outline_of(path: Path) -> list[str]:
    return outline(ast.parse(path.read_text(encoding="utf-8")).body)


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names


def test_there_are_topics() -> None:
    assert {"post_training/grpo", "post_training/dpo"} <= set(TOPICS)


def test_no_twin_is_alone() -> None:
    jax_topics = {path.relative_to(MINIMAL).as_posix().removesuffix("_jax.py") for path in MINIMAL.rglob("*_jax.py")}
    assert jax_topics == set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_same_names_in_the_same_order(topic: str) -> None:
    torch_names, jax_names = (outline_of(MINIMAL / f"{topic}_{framework}.py") for framework in ("torch", "jax"))
    assert torch_names
    assert torch_names == jax_names


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("def f(a): ...\ndef g(a): ...", "def g(a): ...\ndef f(a): ..."),
        ("def f(a): ...", "def f(b): ..."),
        ("def f(a, *, eps=1e-6): ...", "def f(a, *, eps=1e-8): ..."),
        ("class A:\n    x: int\n    y: int", "class A:\n    y: int\n    x: int"),
        ("TABLE = {}", "OTHER = {}"),
        ("def f(a): ...", "def f(a): ...\ndef g(a): ..."),
    ],
)
def test_the_outline_sees_a_difference(left: str, right: str) -> None:
    assert outline(ast.parse(left).body) != outline(ast.parse(right).body)


@pytest.mark.parametrize("name", FILES)
def test_small_and_without_references(name: str) -> None:
    path = MINIMAL / name
    assert len(path.read_text(encoding="utf-8").splitlines()) < 300
    assert not imported(path) & FOREIGN


@pytest.mark.parametrize("topic", TOPICS)
def test_each_twin_keeps_to_its_framework(topic: str) -> None:
    assert "jax" not in imported(MINIMAL / f"{topic}_torch.py")
    assert "torch" not in imported(MINIMAL / f"{topic}_jax.py")
