"""What starting up may cost: verbs import what they need; nothing brings in torch, jax or MkDocs at import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "jax", "mkdocs", "numpy", "hypothesis", "transformers", "rich", "git", "requests", "tree_sitter")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules in memory after ``statement`` in a new interpreter."""
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(json.loads(out.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import annotator.cli", set()),
        ("import annotator.pins", set()),
        ("from annotator.index import Index", set()),
        ("import annotator.readings", {"tree_sitter"}),
        ("import annotator.contracts", set()),
        ("import annotator.catalog", set()),
    ],
)
def test_import_stays_light(statement: str, allowed: set[str]) -> None:
    assert loaded_by(statement) & set(HEAVY) <= allowed


def test_the_budget_sees_a_heavy_import() -> None:
    assert "numpy" in loaded_by("import numpy")
