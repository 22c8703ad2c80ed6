"""The near end of `worker`: starts it, asks it under a time limit, kills it when it hangs, says what went wrong."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from annotator.contracts.model import Backend, Case, Contract, Output
from annotator.contracts.running import Result
from annotator.contracts.verdicts import Usage
from annotator.contracts.worker import pack, unpack
from annotator.errors import UserCodeError

START = 180.0
"""Seconds that a worker may take to import its backend; not the user's doing, hence not the user's limit."""

LOAD = 60.0
"""Seconds that a user's file may take to import, unless the limit of one call is longer."""


class Sandbox:
    """A user's function in a process of its own. A context manager: the process ends with it."""

    def __init__(
        self,
        file: str | Path,
        function: str,
        contract: Contract,
        backend: Backend,
        *,
        mapping: Mapping[str, str],
        init: Mapping[str, Any] | None = None,
        timeout: float,
        memory: int,
    ) -> None:
        self.file, self.function, self.contract, self.backend = str(file), function, contract, backend
        self.mapping, self.timeout, self.memory = dict(mapping), timeout, memory
        self.place = f"{self.file}:{function}"
        self.init = dict(init or {})
        self.takes: tuple[str, ...] = ()
        self.usage = Usage()
        self.calls = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sandbox:
        command = [sys.executable, "-m", "annotator.contracts.worker", self.backend]
        # The worker finds this very package even where it is neither installed nor in the working folder.
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "JAX_ENABLE_X64": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether its process can still be asked."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    _quietly_close(pipe)
            self._process.wait()
            self._process = None

    def run(self, case: Case, *, dtype: str, device: str = "cpu", gradient: bool = True, eager: bool = False) -> Result:
        """Runs the function on a case.

        Raises:
            UserCodeError: it raised, broke a rule, took too long, or its process ended.
        """
        self.calls += 1
        knobs = {name: value for name, value in case.knobs.items() if name in self.takes}
        message = {"op": "run", "knobs": knobs, "dtype": dtype, "device": device, "gradient": gradient, "eager": eager}
        arrays = {name: np.asarray(array) for name, array in case.inputs.items()}
        reply, out = self._ask(pack(message, arrays), self.timeout, "running", case)
        self.undifferentiated = reply["undifferentiated"]
        self.exposed = tuple(reply["exposed"])
        return _result(reply, out)

    def stage(self, name: str, case: Case, dtype: str, device: str = "cpu") -> Result:
        """Runs the user's function for a stage on a case that holds right values of the stages before it too.

        Raises:
            UserCodeError: as `run` does.
        """
        return self._part("stage", name, case, dtype, device)

    def exposing(self, case: Case, dtype: str, device: str = "cpu") -> Result:
        """Runs the function for the stages that it returns beside its outputs.

        Raises:
            UserCodeError: as `run` does.
        """
        return self._part("exposed", "", case, dtype, device)

    def _part(self, op: str, stage: str, case: Case, dtype: str, device: str) -> Result:
        message = {"op": op, "stage": stage, "knobs": dict(case.knobs), "dtype": dtype, "device": device, "eager": True}
        if op == "exposed":
            message["knobs"] = {name: value for name, value in case.knobs.items() if name in self.takes}
        arrays = {name: np.asarray(array) for name, array in case.inputs.items()}
        return _result(*self._ask(pack(message, arrays), self.timeout, "running", case))

    undifferentiated = ""
    """Why the last run could not be differentiated, if it could not."""

    exposed: tuple[str, ...] = ()
    """The stages that the function returns beside its outputs."""

    stages: tuple[str, ...] = ()
    """The stages for which its file has a function."""

    def load(self) -> None:
        """Waits for the worker to be up, and has it import the user's file.

        Raises:
            UserCodeError: the file does not import, or the function takes what the contract does not have.
        """
        self._receive(START, "importing " + self.backend)
        contract = self.contract
        message = {
            "op": "load",
            "file": self.file,
            "function": self.function,
            "memory": self.memory,
            "mapping": self.mapping,
            "init": self.init,
            "inputs": [vars(item) for item in contract.inputs],
            "outputs": [vars(item) for item in contract.outputs],
            "knobs": [knob.name for knob in contract.knobs],
            "operations": [vars(item) for item in contract.operations],
            "stages": [vars(Output(item.name, item.shape, item.doc)) for item in contract.stages],
        }
        reply, _ = self._ask(pack(message), max(self.timeout, LOAD), "importing the file")
        self.takes, self.place, self.stages = tuple(reply["takes"]), reply["place"], tuple(reply["stages"])
        self.usage = Usage(tuple(reply["positional"]), reply["named"], self.mapping, self.init, reply["method"])

    def _ask(
        self, data: bytes, limit: float, doing: str, case: Case | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(doing) from None
        return self._receive(limit, doing, case)

    def _receive(
        self, limit: float, doing: str, case: Case | None = None
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        end = time.monotonic() + limit
        size = int.from_bytes(self._read(8, end, doing, limit), "big")
        message, arrays = unpack(self._read(size, end, doing, limit))
        if "memory" in message:
            allowed = f"at most {self.memory / 2**30:.3g} GiB of memory"
            raise UserCodeError(message["memory"], expected=allowed, found="more", remedy="--memory allows more")
        if "error" in message:
            raise self._told(message["error"], case)
        return message, arrays

    def _told(self, parts: Mapping[str, str], case: Case | None) -> UserCodeError:
        label = f" on case {case.label!r}" if case is not None and case.label else ""
        place = self.place if parts["place"] == self.file else parts["place"]
        return UserCodeError(place, expected=parts["expected"], found=parts["found"] + label, remedy=parts["remedy"])

    def _read(self, count: int, end: float, doing: str, limit: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor, data = self._process.stdout.fileno(), b""
        while len(data) < count:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise self._hung(doing, limit)
            piece = os.read(descriptor, min(count - len(data), 2**20))
            if not piece:
                raise self._ended(doing)
            data += piece
        return data

    def _hung(self, doing: str, limit: float) -> UserCodeError:
        self.close()
        return UserCodeError(
            self.place,
            expected=f"an end within {limit:g} s",
            found=f"none while {doing}",
            remedy="--timeout allows longer",
        )

    def _ended(self, doing: str) -> UserCodeError:
        assert self._process is not None
        code = self._process.wait()
        return UserCodeError(self.place, expected="a result", found=f"its process ended with code {code} while {doing}")


def _result(reply: Mapping[str, Any], out: Mapping[str, np.ndarray]) -> Result:
    """What a worker sent, as a result."""
    outputs, gradients = (
        {name.partition(":")[2]: array for name, array in out.items() if name.startswith(kind)}
        for kind in ("out:", "grad:")
    )
    return Result(outputs, gradients, frozenset(reply["carried"]), reply["dtypes"])


def _quietly_close(pipe: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.close()
