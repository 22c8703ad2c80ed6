"""Which files are slow as a whole: they run references, or a process of its own for each test."""

from __future__ import annotations

import pytest

SLOW = (
    "tests/catalog/",
    "tests/contracts/test_conforming.py",
    "tests/contracts/test_diffing",
    "tests/readings/test_numbers.py",
    "tests/test_testing.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker("slow")
