"""Contracts in several processes, of this machine or of a Ray cluster, with the findings of a run in one.

A contract's work is cut into units of one reference and one dtype: a reference's own errors bound those that are held
against it, so they stay together. A unit travels as names, since contracts hold functions that cannot be sent; whoever
takes it looks the contract up in the catalogue again. Apart from `conforming`, which knows of no process but its own.
"""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import multiprocessing
import os
import queue
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from annotator.contracts.conforming import conform, references
from annotator.contracts.findings import Finding
from annotator.contracts.model import Contract
from annotator.contracts.proofs import plan
from annotator.errors import ContractError
from annotator.pins.progress import Progress, Silent

CATALOG = "annotator.catalog"
"""Where contracts are looked up. The catalogue comes later in the chain, hence it goes by its own name."""


@dataclass(frozen=True)
class Unit:
    """What one worker does at a time. ``home`` is the module whose ``contract(name)`` gives the contract."""

    contract: str
    reference: str
    dtype: str
    names: tuple[str, ...] = ()
    device: str = "cpu"
    examples: int = 40
    home: str = CATALOG

    def __str__(self) -> str:
        return f"{self.contract}, {self.reference}, {self.dtype}"

    def found(self) -> Contract:
        """The contract itself."""
        made: Contract = importlib.import_module(self.home).contract(self.contract)
        return made

    def keys(self) -> list[tuple[str, str, str]]:
        """Reference, implementation and dtype of the findings to expect."""
        return [
            (reference.name, item.name, dtype)
            for reference, item, dtype in plan(self.found(), self.device, (self.dtype,))
            if reference.name == self.reference and (not self.names or item.name in self.names)
        ]


Workers = Callable[[Sequence[Unit]], Iterator[tuple[Unit, list[Finding]]]]
"""Does all units, and gives each with its findings as soon as it is done, in whatever order."""


def work(unit: Unit) -> list[Finding]:
    """The findings of one unit, in the order of the contract's plan. What a worker runs."""
    return conform(
        unit.found(),
        names=unit.names or None,
        device=unit.device,
        dtypes=(unit.dtype,),
        examples=unit.examples,
        reference=unit.reference,
    )


def conform_all(
    contracts: Iterable[Contract],
    *,
    jobs: int = 1,
    ray: str | None = None,
    names: Sequence[str] | None = None,
    device: str = "cpu",
    dtypes: Sequence[str] | None = None,
    examples: int = 40,
    progress: Progress | None = None,
) -> Iterator[tuple[Contract, list[Finding]]]:
    """Each contract of the catalogue with its findings, one after the other, as soon as they are there.

    In this process, in ``jobs`` of them, or on the Ray cluster at address ``ray``; the findings are the same. The other
    arguments are those of `conform`.

    Raises:
        ContractError: what `conform` raises, or the workers could not be had.
    """
    if ray or jobs > 1:
        workers = ray_cluster(ray) if ray else processes(jobs)
        yield from spread(contracts, workers, names, device, dtypes, examples, progress)
        return
    for item in contracts:
        yield item, conform(item, names, device, dtypes, examples, progress)


def spread(
    contracts: Iterable[Contract],
    workers: Workers,
    names: Sequence[str] | None = None,
    device: str = "cpu",
    dtypes: Sequence[str] | None = None,
    examples: int = 40,
    progress: Progress | None = None,
    home: str = CATALOG,
) -> Iterator[tuple[Contract, list[Finding]]]:
    """Each contract with the findings that `conform` gives for it, in the order of ``contracts``.

    Arguments as of `conform`; ``workers`` are those of `processes` or `ray_cluster`. A worker that dies leaves
    findings that were not run, with that reason.

    Raises:
        ContractError: what `conform` raises, or the workers could not be had.
    """
    watcher = progress or Silent()
    chosen = list(contracts)
    template = functools.partial(Unit, names=tuple(names or ()), device=device, examples=examples, home=home)
    units = {item.name: _units(item, template, dtypes) for item in chosen}
    for name, own in units.items():
        watcher.start(name, sum(len(unit.keys()) for unit in own))
    done: dict[Unit, list[Finding]] = {}
    waiting = list(chosen)
    for unit, found in workers([unit for own in units.values() for unit in own]):
        done[unit] = found
        watcher.advance(unit.contract, len(found))
        while waiting and all(unit in done for unit in units[waiting[0].name]):
            first = waiting.pop(0)
            watcher.finish(first.name)
            yield first, _ordered(first, device, dtypes, [f for unit in units[first.name] for f in done[unit]])
    yield from ((item, []) for item in waiting)


def _units(contract: Contract, template: Callable[..., Unit], dtypes: Sequence[str] | None) -> list[Unit]:
    """The units of a contract that have anything to do."""
    probe = template(contract.name, "", "")
    wanted = dict.fromkeys(dtype for _, _, dtype in plan(contract, probe.device, dtypes))
    units = [template(contract.name, item.name, dtype) for item in references(contract) for dtype in wanted]
    return [unit for unit in units if unit.keys()]


def _ordered(
    contract: Contract, device: str, dtypes: Sequence[str] | None, findings: Sequence[Finding]
) -> list[Finding]:
    """Findings in the order of a run in one process."""
    by_key = {(item.reference, item.implementation, item.dtype): item for item in findings}
    keys = [(reference.name, item.name, dtype) for reference, item, dtype in plan(contract, device, dtypes)]
    return [by_key[key] for key in keys if key in by_key]


def _died(unit: Unit, how: str) -> list[Finding]:
    """What there is to say of a unit whose worker is gone."""
    reason = f"the worker that ran {unit} died ({how}); alone: annotator conform {unit.contract}"
    keys = unit.keys()
    return [
        Finding(unit.contract, name, ref, dtype, unit.device, "not run", reason=reason) for ref, name, dtype in keys
    ]


# Processes of this machine --------------------------------------------------------------------------------------------


def processes(jobs: int) -> Workers:
    """Workers that are ``jobs`` processes of this machine."""
    return functools.partial(_by_processes, jobs)


def _by_processes(jobs: int, units: Sequence[Unit]) -> Iterator[tuple[Unit, list[Finding]]]:
    """A thread a process, each process in a pool of its own: so it is known which unit a dead one was at."""
    count = max(1, min(jobs, len(units)))
    pools: queue.SimpleQueue[ProcessPoolExecutor] = queue.SimpleQueue()
    for _ in range(count):
        pools.put(_pool())
    threads = ThreadPoolExecutor(count)
    try:
        futures = {threads.submit(_attempt, pools, unit): unit for unit in units}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        threads.shutdown(cancel_futures=True)
        for _ in range(count):
            pools.get().shutdown()


def _pool() -> ProcessPoolExecutor:
    """One process. Spawned, since a forked one would share the state of torch's and JAX's threads."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def _attempt(pools: queue.SimpleQueue[ProcessPoolExecutor], unit: Unit) -> list[Finding]:
    pool = pools.get()
    try:
        future: Future[list[Finding]] = pool.submit(work, unit)
        return future.result()
    except BrokenProcessPool:
        pool.shutdown()
        pool = _pool()
        return _died(unit, "killed, or out of memory")
    finally:
        pools.put(pool)


# A Ray cluster --------------------------------------------------------------------------------------------------------


def ray_cluster(address: str) -> Workers:
    """Workers that are tasks on the Ray cluster at ``address``; ``local`` starts one here for the time of the run.

    Every machine of a cluster needs the same installation of this tool, with its pins fetched.
    """
    return functools.partial(_by_ray, address)


def _by_ray(address: str, units: Sequence[Unit]) -> Iterator[tuple[Unit, list[Finding]]]:
    """Tasks of one CPU each, and of one GPU where the run is on one and the cluster has any.

    Raises:
        ContractError: Ray is not installed, or nobody answers at ``address``.
    """
    with _connected(address) as ray:
        asks_gpu = any(unit.device != "cpu" for unit in units) and ray.cluster_resources().get("GPU", 0) >= 1
        task = ray.remote(num_cpus=1, num_gpus=int(asks_gpu), max_retries=0)(work)
        running = {task.remote(unit): unit for unit in units}
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            unit = running.pop(ready[0])
            yield unit, _taken(ray, ready[0], unit)


def _taken(ray: Any, reference: Any, unit: Unit) -> list[Finding]:
    """What a task gave, or raised."""
    try:
        found: list[Finding] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # The work itself raised: as if it had been run here.
        raise error.cause from None
    except ray.exceptions.RayError as error:
        return _died(unit, type(error).__name__)
    return found


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        import ray
    except ModuleNotFoundError as error:
        remedy = "pip install ray, or use --jobs"
        raise ContractError("--ray", expected="ray installed", found="none", remedy=remedy) from error
    try:
        _start(ray, address)
        yield ray
    finally:
        with warnings.catch_warnings():  # Ray does not wait for the processes that it ended.
            warnings.simplefilter("ignore", ResourceWarning)
            ray.shutdown()
            gc.collect()


def _start(ray: Any, address: str) -> None:
    """Connect, or start a cluster here. Asks Ray to keep its own words to itself.

    Raises:
        ContractError: it did not work.
    """
    own: dict[str, Any] = {"num_cpus": os.cpu_count(), "include_dashboard": False} if address == "local" else {}
    environment = {"env_vars": _environment(address)}
    try:
        with warnings.catch_warnings():  # JAX warns of forks; Ray forks only to start another program.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment, **own)
    except Exception as error:  # Ray has no class of its own for what may go wrong here.
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        remedy = "ray start --head starts one; --ray local needs none"
        raise ContractError(f"--ray {address}", expected="a Ray cluster", found=found, remedy=remedy) from error


def _environment(address: str) -> dict[str, str]:
    """What tasks inherit: on this machine, the workspace too."""
    kept = ("ANNOTATOR_ROOT", "ANNOTATOR_CACHE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")
    given = {name: os.environ[name] for name in kept if name in os.environ}
    if address != "local":
        return given
    from annotator.workspace import Workspace

    found = Workspace.find()
    return given if found.is_carried else {"ANNOTATOR_ROOT": str(found.root), **given}
