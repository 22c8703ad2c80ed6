"""The measure of the links itself: what it reads, what it counts as agreement, and which causes it tells apart."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.protobuf")

from annotator.console import Bar
from benchmarks import resolution, scip
from tests.index.trees import indexed

PIN = {
    "p/a.py": "class A:\n    def go(self): pass\n    def stop(self): pass\ndef far(x): return A()\n",
    "p/b.py": "class A:\n    def go(self): pass\n",
    "p/use.py": "from p import a\nfrom p.a import A, far\nfar(x=1).go()\nuntold().go()\nlen([])\n",
}
SYMBOL = "scip-python python p 0 `p.{}`/{}"


def encoded(*documents: tuple[str, list[tuple[list[int], str, int]]]) -> Any:
    """An index in the format that is read, made of (path, [(range, symbol, roles)])."""
    made = scip.message()()
    for path, occurrences in documents:
        document = made.documents.add(path=path)
        for range_, symbol, roles in occurrences:
            document.occurrences.add(range=range_, symbol=symbol, roles=roles)
    again = scip.message()()
    again.ParseFromString(made.SerializeToString())
    return again


def peer() -> Any:
    """What a peer may say of the pin: some of it right, some of it wrong."""
    module, a, far = SYMBOL.format("p.a", "__init__:"), SYMBOL.format("p.a", "A#"), SYMBOL.format("p.a", "far().")
    x, go = SYMBOL.format("p.a", "far().(x)"), SYMBOL.format("p.a", "A#go().")
    go_b, length = SYMBOL.format("p.b", "A#go()."), SYMBOL.format("p.b", "len().")
    return encoded(
        ("p/a.py", [([0, 0, 0], module, 1), ([0, 6, 7], a, 1), ([1, 8, 10], go, 1), ([3, 4, 7], far, 1)]),
        ("p/b.py", [([1, 8, 10], go_b, 1), ([0, 0, 0], length, 1), ([3, 8, 9], x, 1)]),
        (
            "p/use.py",
            [
                ([0, 14, 15], module, 8),
                ([1, 16, 17], a, 8),
                ([1, 19, 22], far, 8),
                ([2, 4, 5], x, 8),
                ([2, 9, 11], go_b, 8),
                ([3, 9, 11], go, 8),
                ([4, 0, 3], length, 8),
                ([4, 4, 4], length, 8),
                ([3, 0, 6], "local 3", 8),
            ],
        ),
    )


@pytest.fixture
def measured(tmp_path: Path) -> resolution.Measure:
    with indexed(tmp_path, p=PIN) as index, Bar() as bar:
        tree = index.workspace.tree("p")
        return resolution.measure(index, "p", "peer", scip.references(peer(), tree), bar)


def test_references_agree_or_have_a_cause(measured: resolution.Measure) -> None:
    found = {(one.reference.line, one.reference.name): one.cause for one in measured.verdicts}
    assert found == {
        (1, "a"): "agreed",
        (2, "A"): "agreed",
        (2, "far"): "agreed",
        (3, "x"): "we, exact: parameter of that name in another file; they: parameter",
        (3, "go"): "we, inferred: method of that name in another file; they: function",
        (4, "go"): "we: unresolved, nothing in the sources binds this name",
        (5, "len"): "we: outside the pins",
        (5, ""): "we: no identifier stands there",
    }
    assert (measured.agreed, measured.share) == (3, 3 / 8)
    assert measured.beyond == {"exact": 2}, "the module in the second import, and the function where it is called"


def test_the_tables_add_up(measured: resolution.Measure) -> None:
    text = "\n".join(resolution.tables([measured]))
    assert "| p | peer | 8 | 3 | 37.5% |" in text
    counts = re.findall(r"^\| we.*? \| (\d+) \|", text, re.M)
    assert sum(map(int, counts)) == 5
    assert "p: who is right: nobody looked 5" in text
    assert resolution.plain(measured)["agreed"] == 3


def test_columns_are_counted_in_characters() -> None:
    assert scip.characters("plain text", 6) == 6
    assert scip.characters("'\N{GRINNING FACE}' x", 5) == 4
    assert scip.characters("'\N{LATIN SMALL LETTER E WITH ACUTE}' x", 4) == 4


def test_every_review_names_what_it_is_about() -> None:
    for review in resolution.reviews():
        assert review["pin"] in resolution.PINS
        assert review["right"] in ("we", "they", "both", "neither")
        assert review["names"]
        assert review["why"]


def test_progress_of_the_peer_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", said := Terminal())
    code = "print('(01:02:03)   31 / 133'); import sys; sys.exit(int(sys.argv[1]))"
    run = [sys.executable, "-c", code]
    scip.tell(subprocess.Popen([*run, "0"], stdout=subprocess.PIPE), "p")
    assert "scip-python on p: 31 / 133" in said.getvalue()
    with pytest.raises(SystemExit, match="failed on p"):
        scip.tell(subprocess.Popen([*run, "1"], stdout=subprocess.PIPE), "p")
