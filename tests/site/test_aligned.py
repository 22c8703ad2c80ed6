"""What stands under a minimal line is the reference's statement that does its work, and what has none is listed.

Over the real readings, the real pins and the real minimal versions.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from annotator.readings import essence
from annotator.site import aligned, minimal, step
from annotator.site import atlas as maps
from annotator.site.atlas import Place
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def atlas() -> maps.Atlas:
    workspace = Workspace.find(ROOT)
    if not workspace.index.is_file() or not all(
        workspace.tree(pin).exists() for pin in ("verl", "trl", "vllm", "torch")
    ):
        pytest.skip("the pins are not fetched and indexed here: annotator fetch; annotator index")
    return maps.current(workspace)


def places(atlas: maps.Atlas) -> list[Place]:
    """The steps that have a minimal version."""
    return [p for found in atlas.places.values() for p in found if "minimal" in p.step.options]


def one(atlas: maps.Atlas, key: str) -> Place:
    return next(place for place in places(atlas) if place.step.key == key)


def function(atlas: maps.Atlas, place: Place, backend: str = "torch") -> minimal.Function:
    return minimal.function(atlas.workspace, str(place.step.options["minimal"]), backend, "here")


def texts(atlas: maps.Atlas, place: Place, backend: str = "torch") -> dict[str, str]:
    """The first line of each aligned minimal statement, and all that stands under it."""
    shown, source = function(atlas, place, backend), atlas.source(place.anchor.pin, place.anchor.path)
    found = aligned.align(atlas, place, shown)
    assert found is not None
    return {
        shown.lines[first - shown.first].strip(): " ".join(
            line.strip() for start, end in theirs for line in source.lines[start - 1 : end]
        )
        for (first, _), theirs in found.pairs.items()
    }


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize(
    ("key", "ours", "theirs"),
    [
        ("verl/grpo-advantage#scores", "return token_level_rewards.sum(", "scores = token_level_rewards.sum(dim=-1)"),
        ("verl/grpo-advantage#yardstick", "centred = scores - group_means(", "id2mean[idx] = torch.mean("),
        ("verl/grpo-advantage#yardstick", "group_sums(centred**2", "id2std[idx] = torch.std("),
        ("verl/grpo-advantage#divide", "return scaled_scores(", "/ (id2std[index[i]] + epsilon)"),
        ("trl/dpo-loss#ipo", "p.margin_per_token - 1 / (2 * o.beta)", "ipo_delta - 1 / (2 * self.beta)"),
        ("vllm/token-sampling#min-p", "probabilities = ", "probability_values = torch.nn.functional.softmax("),
        (
            "pytorch/adamw-step#decay",
            "parameters = parameters * (1 - lr * weight_decay)",
            "param.mul_(1 - lr * weight_",
        ),
        ("pytorch/adamw-step#first-moment", "m = state.exp_avg + (1 - beta1)", "exp_avg.lerp_(grad, 1 - "),
        ("pytorch/adamw-step#update", "denominator = ", "denom = (exp_avg_sq.sqrt()"),
    ],
)
def test_a_line_stands_over_what_does_its_work(
    key: str, ours: str, theirs: str, backend: str, atlas: maps.Atlas
) -> None:
    found = texts(atlas, one(atlas, key), backend)
    assert any(ours in mine and theirs in other for mine, other in found.items()), found


def test_where_nothing_is_alike_nothing_is_claimed(atlas: maps.Atlas) -> None:
    assert texts(atlas, one(atlas, "pytorch/adamw-step#subclass")) == {}
    place = one(atlas, "vllm/token-sampling#min-p")
    stranger = function(atlas, one(atlas, "trl/dpo-loss#sigmoid"))
    found = aligned.align(atlas, place, stranger)
    assert found is not None
    assert found.pairs == {}


def test_every_statement_of_a_step_is_beside_a_line_or_told_to_have_none(atlas: maps.Atlas) -> None:
    seen = set()
    for place in places(atlas):
        lines = "\n".join(atlas.source(place.anchor.pin, place.anchor.path).lines)
        every = essence.statements(lines, place.anchor.first, place.anchor.last)
        found = aligned.align(atlas, place, function(atlas, place))
        assert found is not None
        beside = {n for theirs in found.pairs.values() for start, end in theirs for n in range(start, end + 1)}
        left = {extent: kind for kind, extents in found.left.items() for extent in extents}
        for start, end, kind in every:
            there = not beside.isdisjoint(range(start, end + 1))
            assert there != ((start, end) in left), (place.step.key, start)
            assert there or left[start, end] == (kind or aligned.OTHER)
        assert not [extent for extent in left if extent not in {(start, end) for start, end, _ in every}]
        seen |= set(found.left)
    assert {"checks", aligned.OTHER} <= seen


def test_a_step_that_is_not_python_is_not_aligned(atlas: maps.Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    place = one(atlas, "verl/grpo-advantage#scores")
    source = atlas.source(place.anchor.pin, place.anchor.path)
    assert aligned.align(atlas, place, function(atlas, place)) is not None
    monkeypatch.setitem(
        atlas.sources, (place.anchor.pin, place.anchor.path), type(source)(**{**vars(source), "language": "cpp"})
    )
    assert aligned.align(atlas, place, function(atlas, place)) is None


# As it is shown -------------------------------------------------------------------------------------------------------


def panel(atlas: maps.Atlas, key: str, backend: str = "torch") -> str:
    body = step.body(atlas, one(atlas, key))
    return body.partition(f'<div class="ann-view ann-{backend}">')[2].partition('<div class="ann-view')[0]


def test_both_sides_stand_in_one_element_with_links_to_the_source(atlas: maps.Atlas) -> None:
    html = panel(atlas, "verl/grpo-advantage#scores")
    (group,) = re.findall(r'<span class="w">(.*?</code></span>)</span>', html, re.DOTALL)
    assert group.count('<span class="l">') == group.count('<span class="b">') == 1
    number = re.search(r'<span class="b"><a class="n" href="([^"]+)">(\d+)</a>', group)
    assert number
    assert number[1] == f"../source/verl/verl/trainer/ppo/core_algos.py.html#L{number[2]}"
    assert "Every statement of verl 0.9.1 in this step has a counterpart here." in html


def test_every_line_of_the_minimal_function_is_there_once_and_in_order(atlas: maps.Atlas) -> None:
    for place in places(atlas):
        for backend in minimal.BACKENDS:
            shown = function(atlas, place, backend)
            numbers = re.findall(r'<span class="l"><span class="n">(\d+)</span>', panel(atlas, place.step.key, backend))
            assert [int(n) for n in numbers] == list(range(shown.first, shown.first + len(shown.lines)))


def test_what_has_no_counterpart_is_listed_by_kind(atlas: maps.Atlas) -> None:
    html = re.sub(r"<[^>]+>", "", panel(atlas, "verl/grpo-advantage#yardstick"))
    assert re.search(r"Left out, checks: line \d+\.", html)
    assert "No counterpart was found for lines " in html
    assert "Every statement" not in html
    assert "No statement of torch 2.13.0 in this step was found" in panel(atlas, "pytorch/adamw-step#subclass")
    assert "indented under a line" not in panel(atlas, "pytorch/adamw-step#subclass")
