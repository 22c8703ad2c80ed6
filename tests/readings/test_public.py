"""The public surface of the package. A name is added or removed here on purpose."""

from __future__ import annotations

import annotator.readings as package


def test_public_names() -> None:
    assert package.__all__ == [
        "Anchor",
        "Drift",
        "Problem",
        "Reading",
        "Record",
        "Reference",
        "Step",
        "anchor",
        "check",
        "load",
        "parse",
        "read_anchors",
        "read_page",
        "record",
        "references",
        "relocate",
        "write_anchors",
    ]
    assert all(hasattr(package, name) for name in package.__all__)
