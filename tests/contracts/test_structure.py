"""Code aligned by role: names, order, casts and helpers do not matter; operations, axes and constants do."""

import pytest

from annotator import catalog
from annotator.contracts.structure import align, counterparts, entry_of, lines, read, similarity
from tests.contracts import toy

KNOWN = {name: name for name in ("rewards", "mask", "eps", "scale")}
SPINE = """
def advantages(rewards, mask, eps, scale):
    scores = rewards.sum(dim=-1)
    centred = scores - scores.mean()
    if scale == "none":
        return centred * mask
    return centred / (scores.std() + eps) * mask
"""


def steps(source, function="advantages", **settings):
    return read(source, function, "mine.py", KNOWN, settings=settings)


def statuses(source, **settings):
    return [row.status for row in align(steps(source, **settings), steps(SPINE, **settings))]


SAME = {
    "other names": """
def advantages(rewards, mask, eps, scale):
    r = rewards.sum(axis=1)
    c = r - r.mean()
    return c / (r.std() + eps) * mask
""",
    "helpers, read where they are called": """
def total(x):
    return x.sum(-1)

def advantages(rewards, mask, eps, scale):
    s = total(rewards)
    c = s - s.mean()
    return c / (s.std() + eps) * mask
""",
    "casts and reshapes": """
def advantages(rewards, mask, eps, scale):
    s = rewards.float().sum(dim=-1).view(-1)
    c = s - s.mean().reshape(())
    return (c / (s.std() + eps)).unsqueeze(-1).squeeze(-1) * mask.to(s.dtype)
""",
    "a method": """
class Advantage:
    def advantages(self, rewards, mask, eps, scale):
        s = rewards.sum(-1)
        c = s - s.mean()
        return c / (s.std() + eps) * mask
""",
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_change_the_role(name):
    assert statuses(SAME[name], scale="group") == ["same", "same", "same"]


def test_a_step_written_in_two_statements_is_one_row():
    split = SAME["other names"].replace("    c = r - r.mean()\n", "    m = r.mean()\n    c = r - m\n")
    rows = align(steps(split, scale="group"), steps(SPINE, scale="group"))
    assert [row.status for row in rows] == ["same", "same", "same"]
    assert [item.text.strip() for item in rows[1].yours] == ["m = r.mean()", "c = r - m"]


def test_independent_statements_may_change_places():
    spine = steps("def advantages(rewards, mask):\n    a = rewards.exp()\n    b = mask.cumsum(-1)\n    return a / b\n")
    other = steps("def advantages(rewards, mask):\n    y = mask.cumsum(-1)\n    x = rewards.exp()\n    return x / y\n")
    assert [(row.status, row.yours[0].first) for row in align(other, spine)] == [("same", 3), ("same", 2), ("same", 4)]


DIFFERENT = {
    "population": (("r.std()", "r.std(correction=0)"), "with population"),
    "axis": (("sum(axis=1)", "sum(axis=0)"), "without along -1, with along 0"),
    "epsilon": (("+ eps", "+ 1e-8"), "with 1e-08"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_does_change_it_is_said_in_operations(name):
    (old, new), note = DIFFERENT[name]
    rows = align(steps(SAME["other names"].replace(old, new), scale="group"), steps(SPINE, scale="group"))
    assert [row.note for row in rows if row.status != "same"] == [note]


def test_what_is_missing_and_what_is_added_have_rows_of_their_own():
    added = SAME["other names"].replace("    c = r - r.mean()\n", "    c = r\n    z = mask.cumsum(-1)\n")
    found = {row.status for row in align(steps(added, scale="group"), steps(SPINE, scale="group"))}
    assert found == {"same", "missing", "yours only"}


def test_of_a_branch_that_the_knobs_decide_one_side_is_read():
    assert len(steps(SPINE, scale="none")) == 3
    assert len(steps(SPINE, scale="group")) == 3
    assert len(steps(SPINE)) == 4


def test_a_table_of_functions_is_followed():
    source = """
def hinge(margin):
    return 1 - margin.relu()

def sigmoid(margin):
    return -margin.logsigmoid()

LOSSES = {"hinge": hinge, "sigmoid": sigmoid}

def advantages(rewards, scale):
    return LOSSES[scale](rewards).mean()
"""
    assert "logsigmoid" in steps(source, scale="sigmoid")[0].roles
    assert "relu" in steps(source, scale="hinge")[0].roles


HELPED = """
def total(x):
    return x.sum(-1)

def spread(x):
    d = x - total(x)
    return (d**2).sum().sqrt()

def advantages(rewards, mask, eps, scale):
    s = total(rewards)
    d = spread(s)
    return total(s) / (d + eps)
"""


def test_a_helper_may_count_as_done_by_the_statement_that_calls_it():
    apart = steps(HELPED)
    within = read(HELPED, "advantages", "mine.py", KNOWN, inline=True)
    assert [item.first for item in within] == [10, 11, 12]
    assert {3, 6, 7} < {item.first for item in apart}
    assert within[1].operations["sqrt"] == 1
    assert within[1].operations["sub"] == 1
    assert within[0].operations["sum"] == within[2].operations["sum"] == 1  # a helper that is called twice counts twice


def pairs(left, right):
    given = [read(source, "advantages", "mine.py", KNOWN, inline=True) for source in (left, right)]
    found = counterparts(*given)
    return {given[0][i].first: [given[1][j].first for j in items] for i, items in found.items()}


def test_counterparts_go_both_ways():
    other = """
def advantages(r, m):
    total = r.sum(1)
    mean = total.mean()
    c = total - mean
    s = c.std()
    return c / (s + 1e-6) * m
"""
    found = pairs(SPINE, other)
    assert found[3] == [3]
    assert set(found[4]) == {4, 5}
    assert 7 in found[7]
    assert pairs(SPINE, "def advantages(a):\n    return a.cumprod(0).argsort()\n") == {}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("m.lerp_(g, 1 - b)", "m + (1 - b) * (g - m)"),
        ("p.addcdiv_(m, d, value=-s)", "p + s * (m / d)"),
        ("torch._foreach_sqrt(v)", "v.sqrt()"),
        ("torch._foreach_add_(v, e)", "v + e"),
    ],
)
def test_what_is_done_in_place_or_to_a_list_is_what_it_computes(left, right):
    sides = [read(f"def f(a):\n    x = {text}\n", "f", "mine.py", {})[0] for text in (left, right)]
    assert similarity(*sides) > 0.5


def test_statements_without_a_common_operation_are_strangers():
    one, other = (
        steps("def advantages(rewards):\n    return rewards.exp()\n"),
        steps("def advantages(rewards):\n    return rewards.log()\n"),
    )
    assert similarity(one[0], other[0]) == 0
    assert similarity(one[0], one[0]) == 1


def test_the_text_shows_places_and_marks():
    told = lines(
        align(
            steps(SAME["other names"].replace("r.std()", "r.std(correction=0)"), scale="group"),
            steps(SPINE, scale="group"),
        )
    )
    assert "≠ differs: with population" in told
    assert any(line.split()[:2] == ["yours", "5"] for line in told)


def test_a_minimal_implementation_is_traced_to_its_function():
    item = catalog.contract("grpo-advantage").implementation("minimal-torch")
    assert entry_of(item) == ("minimal/post_training/grpo_torch.py", "grpo_advantages")
    assert entry_of(toy.MINIMAL[0]) is None
