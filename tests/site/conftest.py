"""A small workspace with a pin of its own: two files, two readings, one minimal topic. Everything real but the size."""

from pathlib import Path

import pytest

from annotator.index import build as index
from annotator.workspace import Workspace

LOCK = """
[demo]
version = "1.2.3"
kind = "wheel"
license = "MIT"
repository = "example/demo"
ref = "v1.2.3"
project = "demo"
artifact = "demo-1.2.3-py3-none-any.whl"
sha256 = "{zeros}"
size = 1
tree = "{zeros}"
paths = ["demo/**"]
run = "tree"
"""

MATHS = '''"""Numbers & <names>."""


def total(values):
    """Sum of ``values`` <all of them>."""
    return sum(values)


class Scale:
    """Multiplies."""

    def __init__(self, factor=2):
        self.factor = factor

    def apply(self, values):
        """Each value times the factor."""
        return [value * self.factor for value in values]
'''

MAIN = '''"""The way in."""

from demo.maths import Scale, total
from demo.other import far


def run(values):
    """Scale, then sum."""
    if len(values) < 1 and "</script>":
        return 0
    scaled = Scale(3).apply(values)
    return total(scaled) + far(scaled)
'''

OTHER = '''"""A file that no reading touches."""


def far(values):
    """Far away."""
    return 0
'''

READING = """---
title: Front matter
---

# How a run goes

Prose about [`total`][demo.maths.total], [`demo.maths.total`][] and [`far`][demo.other.far], not `[a][demo.other.far]`.

/// step | demo:demo.main.run
    from: "scaled = Scale(3).apply(values)"
    to: "return total(scaled)"
    id: run
    title: Scale first
    minimal: topic.thing.double
The **note** with `code`, and [a symbol][demo.maths.Scale.apply].
///

/// step | demo:demo.maths.total
    id: total
The second note.
///
"""

SECOND = """# Scaling

/// step | demo:demo.maths.Scale
    id: scale
Why a class.
///
"""

TWIN = '''"""A topic."""


def half(values):
    """A half."""
    return values / 2


def double(values):
    """Twice, not half."""
    return half(values) * 4  # {backend} & <more>
'''

CONFIG = """
site_name: Demo
docs_dir: walkthroughs
site_dir: site
use_directory_urls: false
theme:
  name: material
  font: false
nav:
  - index.md
  - a/run.md
  - b/scale.md
plugins: []
markdown_extensions:
  - toc:
      permalink: true
  - annotator.site.extension
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace of its own for each test, indexed."""
    root = tmp_path / "checkout"
    files = {
        "vendored_refs/pins.toml": LOCK.format(zeros="0" * 64),
        "vendored_refs/demo/demo/__init__.py": "",
        "vendored_refs/demo/demo/maths.py": MATHS,
        "vendored_refs/demo/demo/main.py": MAIN,
        "vendored_refs/demo/demo/other.py": OTHER,
        "walkthroughs/index.md": "# Home\n",
        "walkthroughs/a/run.md": READING,
        "walkthroughs/b/scale.md": SECOND,
        "walkthroughs/assets/code.css": "",
        "walkthroughs/assets/source.css": "",
        "walkthroughs/assets/scheme.js": "",
        "walkthroughs/assets/symbols.css": "",
        "walkthroughs/assets/symbols.js": "",
        "minimal/topic/thing_torch.py": TWIN.format(backend="torch"),
        "minimal/topic/thing_jax.py": TWIN.format(backend="jax"),
        "mkdocs.yml": CONFIG,
    }
    for name, text in files.items():
        write(root / name, text)
    made = Workspace(root=root, cache=tmp_path / "cache", state=root / "vendored_refs")
    index(made)
    return made


def write(file: Path, text: str) -> None:
    """Write a file and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
