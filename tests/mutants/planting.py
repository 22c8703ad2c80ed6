"""Puts a mutant in the place of its module, in memory only, and takes it out again.

Modules that import from the mutated one hold its old functions, so these are made anew too while the mutant stands.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
"""The repository."""


def module_name(file: str) -> str:
    """``minimal/post_training/grpo_torch.py`` as a module's name."""
    return file.removesuffix(".py").replace("/", ".")


@cache
def imports(root: Path = ROOT) -> Mapping[str, frozenset[str]]:
    """The modules of ``minimal/`` with the modules of it that each imports."""
    files = {module_name(p.relative_to(root).as_posix()): p for p in sorted((root / "minimal").glob("*/[!_]*.py"))}
    return {name: frozenset(_imported(path) & set(files)) for name, path in files.items()}


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def reached(name: str) -> list[str]:
    """The module and all modules that it imports, directly or not."""
    found, open_ = [name], [name]
    while open_:
        for other in sorted(imports().get(open_.pop(), ())):
            if other not in found:
                found.append(other)
                open_.append(other)
    return found


def dependents(name: str) -> list[str]:
    """The modules that import this one, directly or not: each after those that it imports itself."""
    found = [other for other in imports() if other != name and name in reached(other)]
    return sorted(found, key=lambda other: (len(reached(other)), other))


@contextmanager
def planted(name: str, source: str) -> Iterator[ModuleType]:
    """While it lasts, ``import name`` gives the module that ``source`` makes, for everybody.

    Raises:
        Exception: whatever the source raises when it is imported.
    """
    old = importlib.import_module(name)
    affected = [name, *dependents(name)]
    before = {other: sys.modules.get(other) for other in affected}
    try:
        with uncompiled():
            mutant = _made(name, old, compile(source, str(old.__file__), "exec", dont_inherit=True))
            for other in affected[1:]:
                if (module := before[other]) is not None:
                    _made(other, module, _compiled(str(module.__file__)))
        yield mutant
    finally:
        for other, module in before.items():
            _set(other, module)


@contextmanager
def uncompiled() -> Iterator[None]:
    """``jax.jit`` does nothing to what is made meanwhile: to compile a mutant takes longer than to try it."""
    if "jax" not in sys.modules:
        yield
        return
    import jax

    def plain(function: Any = None, **options: Any) -> Any:
        return plain if function is None else function

    with mock.patch.object(jax, "jit", plain):
        yield


@contextmanager
def unrolled() -> Iterator[None]:
    """JAX's loops and branches run in Python meanwhile: each new closure would be compiled as a whole."""
    import jax

    def slowly(function: Any) -> Any:
        def run(*arguments: Any, **options: Any) -> Any:
            with jax.disable_jit():
                return function(*arguments, **options)

        return run

    names = ("scan", "while_loop", "fori_loop", "cond", "switch", "map")
    with mock.patch.multiple(jax.lax, **{name: slowly(getattr(jax.lax, name)) for name in names}):
        yield


_KEPT = {"__file__", "__loader__", "__package__", "__spec__"}


def _made(name: str, old: ModuleType | None, code: object) -> ModuleType:
    """Runs code as a module of that name, which stands in the old one's place from the first line on."""
    made = ModuleType(name)
    if old is not None:
        made.__dict__.update({k: v for k, v in vars(old).items() if k in _KEPT})
    _set(name, made)
    exec(code, made.__dict__)  # type: ignore[arg-type]
    return made


def _set(name: str, module: ModuleType | None) -> None:
    package, _, leaf = name.rpartition(".")
    if module is None:
        sys.modules.pop(name, None)
        if package in sys.modules:
            vars(sys.modules[package]).pop(leaf, None)
        return
    sys.modules[name] = module
    if package:
        setattr(sys.modules[package], leaf, module)


@cache
def _compiled(file: str) -> object:
    return compile(Path(file).read_text(encoding="utf-8"), file, "exec", dont_inherit=True)
