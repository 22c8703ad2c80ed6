"""Plumbing is told from what is computed, by syntax alone; where it is what the step is about, nothing is folded."""

import ast
from pathlib import Path

import pytest

from annotator.readings.essence import folds, statements

ROOT = Path(__file__).resolve().parents[2]

CODE = """\
def loss(self, logits, metrics):
    # only this shape
    assert logits.ndim == 2
    if logits.shape[0] == 0:
        raise ValueError("empty")
    logits = logits.to(self.device)
    value = logits.mean()
    metrics["loss"] = value.item()

    # two more
    self._metrics["train"]["max"].append(logits.max().item())
    if self.rank == 0:
        logger.info("loss %s", value)
    value = value.to(torch.float64)
    other = value.to(self.device)
    metrics = {}
    metrics.update(super().evaluate())
    if value > 0:
        raise ValueError
    else:
        value = -value
    print(value)
    return value
"""


def found(first: int = 1, last: int = 23, code: str = CODE) -> list[tuple[int, int, str]]:
    return [(one.first, one.last, one.title) for one in folds(code, first, last)]


def test_four_kinds_and_nothing_else() -> None:
    assert found() == [
        (2, 6, "5 lines: checks, device moves"),  # with the comment right above
        (8, 13, "6 lines: logging, metrics"),  # over a blank line and a comment
    ]  # but no cast, no copy under another name, no evaluation, no branch with a computation, no single line


def test_every_statement_is_given_once_with_its_kind() -> None:
    given = statements(CODE, 1, 23)
    assert given[:5] == [(3, 3, "checks"), (4, 5, "checks"), (6, 6, "device moves"), (7, 7, ""), (8, 8, "metrics")]
    assert [(first, kind) for first, _, kind in given[-4:]] == [(19, "checks"), (21, ""), (22, "logging"), (23, "")]
    inside = statements(CODE, 12, 18)
    assert inside == [one for one in given if one[0] >= 12 and one[1] <= 18]
    assert statements("def f(:\n", 1, 1) == []
    assert statements('def f():\n    """A text."""\n    return 1\n', 1, 3) == [(3, 3, "")]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (4, 7, [(4, 6, "3 lines: checks, device moves")]),
        (5, 7, [(5, 6, "2 lines: checks, device moves")]),  # the guard begins before the step
        (3, 6, []),  # nothing but plumbing: that is the step
        (14, 16, []),
    ],
)
def test_only_the_lines_of_the_step(first: int, last: int, expected: list[tuple[int, int, str]]) -> None:
    assert found(first, last) == expected


def test_what_is_not_python_is_left_whole() -> None:
    assert found(code="void f() {\n  assert(a);\n  assert(b);\n  g();\n}\n", last=5) == []


@pytest.mark.parametrize(
    "file", ["verl/verl/trainer/ppo/core_algos.py", "trl/trl/trainer/grpo_trainer.py", "trl/trl/trainer/dpo_trainer.py"]
)
def test_in_the_libraries_no_fold_hides_a_result(file: str) -> None:
    path = ROOT / "vendored_refs" / file
    if not path.is_file():
        pytest.skip("the pins are not fetched: run annotator fetch")
    source = path.read_text(encoding="utf-8")
    hidden = {n for one in folds(source, 1, source.count("\n")) for n in range(one.first, one.last + 1)}
    assert len(hidden) > 20
    results = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Return, ast.Yield, ast.FunctionDef))
    ]
    assert not [node.lineno for node in results if node.lineno in hidden]
