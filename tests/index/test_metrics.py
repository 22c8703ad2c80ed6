"""Metrics on a little tree: where names are logged, whole or put together, and the lines behind their values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from annotator.index import Index
from annotator.index.metrics import Logged, measured, near
from tests.index.trees import indexed

TREE = {
    "job/__init__.py": "",
    "job/losses.py": (
        "def policy_loss(ratio, mask):\n"
        "    low = ratio < 0.8\n"
        "    loss = (ratio * mask).sum()\n"
        "    return loss, low\n"
        "def table(x):\n"
        "    spread = x - x.mean()\n"
        "    return {'data/spread': spread, 'other': spread}\n"
        "def unbalance(prefix, sizes):\n"
        "    most = max(sizes)\n"
        "    return {f'{prefix}/most': most}\n"
        "def renamed(metrics, prefix):\n"
        "    return {prefix + key: value for key, value in metrics.items()}\n"
    ),
    "job/stats.py": (
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Stats:\n"
        "    running: int = 0\n"
        "def collect(queue):\n"
        "    count = len(queue)\n"
        "    return Stats(running=count)\n"
        "class Other:\n"
        "    running: int = 0\n"
        "    def set(self):\n"
        "        self.running = 5\n"
    ),
    "job/trainer.py": (
        "from .losses import policy_loss, renamed, unbalance\n"
        "from .stats import Stats\n"
        "class Trainer:\n"
        "    def step(self, mode, ratio, mask, flag):\n"
        "        loss, low = policy_loss(ratio, mask)\n"
        "        gathered = self.gather(low)\n"
        "        self._metrics[mode]['clip/low'].append(gathered.float().mean().item())\n"
        "        metrics = {}\n"
        "        metrics['loss'] = loss.detach().item()\n"
        "        if flag:\n"
        "            scale = 2\n"
        "        else:\n"
        "            scale = 3\n"
        "        metrics['scale'] = scale\n"
        "        scale = 4\n"
        "        for name in ('a', 'b'):\n"
        "            metrics[f'rewards/{name}/mean'] = ratio[name].mean()\n"
        "        metrics['kept/speed'] = metrics.pop('speed')\n"
        "        kind = 'core' if flag else 'aux'\n"
        "        if flag:\n"
        "            part = 'val'\n"
        "        else:\n"
        "            part = 'test'\n"
        "        key = f'{part}/{kind}/score'\n"
        "        metrics[key] = ratio\n"
        "        return renamed(metrics, 'actor/')\n"
        "    def time(self, seconds):\n"
        "        metrics = {}\n"
        "        metrics['speed'] = 1 / seconds\n"
        "        metrics['empty/list'] = []\n"
        "        config = {'kl': 0.1, 'names/map': 'other'}\n"
        "        unbalance('sizes', [seconds])\n"
        "        return metrics\n"
        "    def log(self):\n"
        "        logs = {f'eval_{key}': value for key, value in self._metrics.items()}\n"
        "        self.report(seconds=3)\n"
        "        return logs.get('gone/metric')\n"
        "    def report(self, seconds):\n"
        "        self.log_metric('wall/seconds', seconds)\n"
        "class Prometheus:\n"
        "    def __init__(self, gauge):\n"
        "        made = self.gauge_cls(name='job:running', documentation='how many')\n"
        "        self.running = each_engine(made)\n"
        "    def record(self, stats: Stats):\n"
        "        self.running[0].set(stats.running)\n"
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("metrics"), job=TREE) as opened:
        yield opened


def place(path: str, line: int) -> str:
    return f"{path.rpartition('/')[2].removesuffix('.py')}:{line}"


def only(index: Index, name: str) -> Logged:
    (found,) = measured(index, name)
    return found


@pytest.mark.parametrize(
    ("name", "logged", "certainty", "behind"),
    [
        ("clip/low", "trainer:7", "exact", ["trainer:6", "trainer:5", "losses:4", "losses:2"]),
        ("loss", "trainer:9", "exact", ["trainer:5", "losses:4", "losses:3"]),
        ("scale", "trainer:14", "exact", ["trainer:11", "trainer:13"]),
        ("data/spread", "losses:7", "exact", ["losses:6"]),
        ("kept/speed", "trainer:18", "exact", ["trainer:29"]),
        ("rewards/b/mean", "trainer:17", "inferred", []),
        ("rewards/{which}/mean", "trainer:17", "inferred", []),
        ("val/core/score", "trainer:25", "inferred", []),
        ("sizes/most", "losses:10", "inferred", ["losses:9"]),
        ("actor/scale", "trainer:14", "inferred", ["trainer:11", "trainer:13"]),
        ("eval_clip/low", "trainer:35", "inferred", ["trainer:35", "trainer:7", "trainer:6"]),
        ("wall/seconds", "trainer:39", "exact", ["trainer:36"]),
        ("job:running", "trainer:42", "exact", ["trainer:45", "stats:7", "stats:6"]),
    ],
)
def test_where_a_metric_is_logged_and_computed(
    index: Index, name: str, logged: str, certainty: str, behind: list[str]
) -> None:
    found = only(index, name)
    assert (place(found.path, found.line), found.certainty) == (logged, certainty)
    hops = [place(hop.path, hop.line) for hop in found.hops]
    assert hops[: len(behind)] == behind


@pytest.mark.parametrize(
    "name",
    [
        "kl",
        "names/map",
        "empty/list",
        "gone/metric",
        "somewhere_else/most",
        "left/core/score",
        "speed/actor",
        "critic/loss",
    ],
)
def test_what_is_no_metric(index: Index, name: str) -> None:
    assert measured(index, name) == []


def test_a_later_assignment_is_not_behind_it(index: Index) -> None:
    assert "trainer:15" not in {place(hop.path, hop.line) for hop in only(index, "scale").hops}


def test_an_attribute_of_another_class_is_not_behind_it(index: Index) -> None:
    assert "stats:11" not in {place(hop.path, hop.line) for hop in only(index, "job:running").hops}


def test_certainty_of_the_way(index: Index) -> None:
    assert [hop.certainty for hop in only(index, "loss").hops] == ["exact"] * 3
    assert {hop.certainty for hop in only(index, "job:running").hops} == {"inferred"}


def test_near_names(index: Index) -> None:
    assert near(index, "clip/lou") == ("clip/low",)
    assert near(index, "zzz") == ()
