"""The same findings from one process, from several, and from a Ray cluster; a worker that dies says so."""

from __future__ import annotations

import dataclasses
import os
import sys
from unittest import mock

import pytest

from annotator import catalog
from annotator.contracts import Finding, conform, conform_all
from annotator.contracts.spreading import Unit, processes, ray_cluster, spread
from annotator.errors import ContractError
from tests.contracts import toy

pytestmark = pytest.mark.slow

HOME = __name__


def _dies(values, mask, eps):
    """Right in float32; in float64 the process that runs it is gone."""
    if "float64" in str(values.dtype):
        os._exit(9)
    return toy.mean_torch(values, mask, eps)


MINE = dataclasses.replace(toy.MINIMAL[0], name="mine", backend="torch", call=toy.mean_torch)


def _other(name, **changes):
    return dataclasses.replace(toy.REFERENCE, name=name, dialect={"eps": 1e-4}, **changes)


def contract(name):
    """Looked up by workers, as the catalogue is."""
    made = {
        "right": (toy.REFERENCE, _other("other"), toy.MINIMAL[1]),
        "wrong": (toy.REFERENCE, MINE, dataclasses.replace(MINE, name="padded", call=toy.padded)),
        "deadly": (toy.REFERENCE, _other("other"), dataclasses.replace(MINE, call=_dies)),
        "without oracle": (dataclasses.replace(toy.REFERENCE, dtypes=("float32",)),),
    }
    return dataclasses.replace(toy.contract(implementations=made[name]), name=name)


class Watcher:
    """Counts what progress is told."""

    def __init__(self) -> None:
        self.total: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.finished: list[str] = []

    def start(self, task: str, total: int | None) -> None:
        self.total[task], self.done[task] = total or 0, 0

    def advance(self, task: str, amount: int) -> None:
        self.done[task] += amount

    def finish(self, task: str) -> None:
        self.finished.append(task)


def plain(findings: list[Finding]) -> list[dict[str, object]]:
    """All of a finding but how long it took."""
    return [{**finding.to_json(), "seconds": 0} for finding in findings]


def serial(*names: str, **options) -> list[tuple[str, list[dict[str, object]]]]:
    return [(name, plain(conform(contract(name), **options))) for name in names]


def spreaded(workers, *names: str, **options) -> list[tuple[str, list[dict[str, object]]]]:
    chosen = [contract(name) for name in names]
    return [(item.name, plain(found)) for item, found in spread(chosen, workers, home=HOME, **options)]


@pytest.fixture(scope="module")
def anywhere() -> None:
    """Workers import this module by its name; the root of the checkout must be on their path."""
    os.environ["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])


ALL = ["bfloat16", "float32", "float64"]


@pytest.fixture(scope="module")
def by_processes() -> tuple[Watcher, dict[str, list[dict[str, object]]]]:
    """What two processes found, and told of it; in the one of them another dies."""
    watcher = Watcher()
    names = ("right", "deadly", "wrong")
    return watcher, dict(spreaded(processes(2), *names, examples=4, dtypes=ALL, progress=watcher))


def test_processes_find_what_one_finds(by_processes):
    expected = serial("right", "wrong", examples=4, dtypes=ALL)
    assert [(name, by_processes[1][name]) for name, _ in expected] == expected
    assert expected != serial("right", "wrong", examples=5, dtypes=ALL), "the comparison can tell"


def test_the_order_is_that_of_the_contracts_and_of_the_plan(by_processes):
    assert list(by_processes[1]) == ["right", "deadly", "wrong"]
    keys = [(row["implementation"], row["reference"], row["dtype"]) for row in by_processes[1]["wrong"]]
    assert keys == [
        (name, "ref", dtype) for name in ("ref", "mine", "padded") for dtype in ("float64", "float32", "bfloat16")
    ]


def test_progress_is_told(by_processes):
    watcher = by_processes[0]
    assert watcher.total == watcher.done == {"right": 12, "deadly": 12, "wrong": 9}
    assert watcher.finished == ["right", "deadly", "wrong"]


def test_a_worker_that_dies_is_said_and_the_rest_is_done(by_processes):
    found = by_processes[1]["deadly"]
    gone = [row for row in found if row["dtype"] == "float64"]
    assert {row["status"] for row in gone} == {"not run"}
    assert {row["reason"] for row in gone} == {
        f"the worker that ran deadly, {name}, float64 died (killed, or out of memory); alone: annotator conform deadly"
        for name in ("ref", "other")
    }
    assert {row["status"] for row in found if row["dtype"] != "float64"} == {"passed"}


def test_what_a_worker_raises_is_raised():
    with pytest.raises(ContractError, match="expected an oracle"):
        spreaded(processes(1), "without oracle", examples=2)


def test_two_contracts_of_the_catalogue():
    chosen = [catalog.contract(name) for name in ("adamw-step", "grpo-advantage")]
    options = {"examples": 2, "dtypes": ["float64"], "names": ["minimal-torch"]}
    expected = [(item.name, plain(found)) for item, found in conform_all(chosen, **options)]
    assert [(item.name, plain(found)) for item, found in conform_all(chosen, jobs=2, **options)] == expected
    assert all(row["status"] == "passed" for _, rows in expected for row in rows)


def test_a_unit_knows_what_it_will_find():
    assert Unit("right", "other", "float32", home=HOME).keys() == [
        ("other", name, "float32") for name in ("other", "minimal-numpy")
    ]


# On a Ray cluster, a local one ----------------------------------------------------------------------------------------


def test_a_cluster_finds_what_one_process_finds(anywhere):
    pytest.importorskip("ray")
    found = dict(spreaded(ray_cluster("local"), "right", "wrong", "deadly", examples=4))
    assert [found["right"], found["wrong"]] == [rows for _, rows in serial("right", "wrong", examples=4)]
    assert {row["status"] for row in found["deadly"] if row["dtype"] == "float64"} == {"not run"}
    assert {row["status"] for row in found["deadly"] if row["dtype"] == "float32"} == {"passed"}


def test_a_cluster_that_is_not_there_is_one_line():
    ray = pytest.importorskip("ray")
    with (
        mock.patch.object(ray, "init", side_effect=ConnectionError("nobody\nanswers")),
        pytest.raises(
            ContractError, match=r"^--ray far:1: expected a Ray cluster, found ConnectionError: nobody answers"
        ),
    ):
        spreaded(ray_cluster("far:1"), "right")


def test_without_ray_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ContractError, match="expected ray installed, found none; pip install ray, or use --jobs"):
        spreaded(ray_cluster("local"), "right")
