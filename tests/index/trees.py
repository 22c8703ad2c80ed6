"""Little source trees for the tests of the index, written as text and indexed in a temporary workspace."""

from __future__ import annotations

from pathlib import Path

from annotator.index import Index, Link, build
from annotator.workspace import Workspace


def workspace(root: Path, **pins: dict[str, str | bytes]) -> Workspace:
    """A workspace whose pins have the given files."""
    state = root / "state"
    for pin, files in pins.items():
        write(state / pin, files)
    return Workspace(root=root, cache=root / "cache", state=state)


def write(tree: Path, files: dict[str, str | bytes]) -> None:
    """Writes files below a folder."""
    for path, text in files.items():
        where = tree / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(text if isinstance(text, bytes) else text.encode())


def indexed(root: Path, **pins: dict[str, str | bytes]) -> Index:
    """The index of a workspace with such pins."""
    made = workspace(root, **pins)
    build(made, list(pins), jobs=1)
    return Index.open(made)


def brief(link: Link) -> str:
    """A link in one word: the symbol it leads to, or ``local``, or ``? reason``; ``~`` before what is inferred."""
    mark = "~" if link.certainty == "inferred" else ""
    if link.target:
        return mark + link.target.symbol
    if link.external:
        return f"{mark}external {link.external}"
    return link.reason if link.certainty == "exact" else f"? {link.reason}"


def meaning(index: Index, pin: str, path: str, marked: str) -> str:
    """What the identifier under ``^`` means: ``marked`` is ``line of source`` with ``^`` before the identifier."""
    text = (index.workspace.tree(pin) / path).read_text()
    wanted = marked.replace("^", "")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() == wanted.strip()]
    assert len(lines) == 1, f"{wanted!r} stands {len(lines)} times in {path}"
    line = text.split("\n")[lines[0] - 1]
    column = len(line) - len(line.lstrip()) + marked.strip().index("^")
    hits = [link for link in index.links(pin, path) if (link.line, link.column) == (lines[0], column)]
    assert len(hits) == 1, f"{len(hits)} links at {marked!r}"
    return brief(hits[0])
