"""One way through: a package imports earlier links of the chain only, typing-only imports included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHAIN = ("pins", "index", "readings", "contracts", "catalog", "observations", "site")
BELOW_ALL = {"errors", "lazy", "workspace"}


def imports(path: Path) -> set[tuple[int, str]]:
    """(line, dotted module) of every import in a file, wherever it stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.lineno, f"{node.module}.{alias.name}") for alias in node.names}
    return found


def rank(module: str) -> int:
    """The place of ``annotator.<part>…`` in the chain; the command line's own modules come last."""
    part = [*module.split("."), ""][1]
    if part in BELOW_ALL or part in ("", "__init__", "__version__"):
        return -1
    return CHAIN.index(part) if part in CHAIN else len(CHAIN)


def wrong_way(source: str, module: str) -> bool:
    """Whether ``module``, imported from the part ``source``, lies later in the chain."""
    return module.startswith("annotator.") and rank(module) > rank(f"annotator.{source}")


def parts() -> list[tuple[str, Path]]:
    files = (ROOT / "annotator").rglob("*.py")
    return [(path.relative_to(ROOT / "annotator").with_suffix("").parts[0], path) for path in files]


@pytest.mark.parametrize(("part", "path"), parts(), ids=lambda value: str(value).rsplit("annotator/", 1)[-1])
def test_a_package_imports_earlier_ones_only(part: str, path: Path) -> None:
    assert [(line, name) for line, name in imports(path) if wrong_way(part, name)] == []


@pytest.mark.parametrize("path", [*(ROOT / "minimal").rglob("*.py")], ids=lambda path: path.name)
def test_minimal_imports_neither_annotator_nor_references(path: Path) -> None:
    banned = ("annotator", "verl", "trl", "vllm", "transformers")
    assert [name for _, name in imports(path) if name.split(".")[0] in banned] == []


@pytest.mark.parametrize(
    ("part", "module", "expected"),
    [
        ("pins", "annotator.index.Index", True),
        ("contracts", "annotator.catalog", True),
        ("errors", "annotator.pins", True),
        ("site", "annotator.contracts.proofs", False),
        ("cli", "annotator.site", False),
        ("index", "annotator.workspace.Workspace", False),
        ("index", "sqlite3", False),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(part: str, module: str, expected: bool) -> None:
    assert wrong_way(part, module) is expected
