"""The process in which a user's function runs. Apart because that function may hang, print, leak or crash.

``python -m annotator.contracts.worker BACKEND`` reads messages from standard input and answers on what was standard
output; the real descriptors are moved aside first, so that nothing the user's code prints gets into the protocol. A
message is a length and an ``npz`` archive without pickles: JSON under ``_``, arrays under their names.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from annotator.contracts.model import Case, Input, Operation, Output
from annotator.contracts.running import Fault, Result, brief, eagerly, run
from annotator.contracts.tracing import driving
from annotator.errors import did_you_mean, near_matches

MODULE = "_annotator_user_code"


def pack(message: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """A message as bytes: eight of length, then the archive."""
    body = io.BytesIO()
    text = np.frombuffer(json.dumps(message).encode(), dtype=np.uint8)
    np.savez(body, allow_pickle=False, _=text, **dict(arrays or {}))
    data = body.getvalue()
    return len(data).to_bytes(8, "big") + data


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The message in ``data`` (without its length)."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    message: dict[str, Any] = json.loads(arrays.pop("_").tobytes())
    return message, arrays


class Refused(Exception):
    """The user's code cannot be run as asked; the parts of the `UserCodeError` that the parent raises."""

    def __init__(self, place: str, *, expected: str = "", found: str = "", remedy: str = "") -> None:
        super().__init__(found)
        self.parts = {"place": place, "expected": expected, "found": found, "remedy": remedy}


@dataclass(frozen=True)
class Signature:
    """The interface of a contract, as far as a run needs it."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    knobs: tuple[str, ...] = ()
    mapping: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[Output, ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def canonical(self) -> list[str]:
        """What a function may take."""
        return [*(item.name for item in self.inputs), *self.knobs]


class User:
    """The user's function, taking and returning canonical names."""

    def __init__(self, file: str, function: Callable[..., Any], signature: Signature, *, method: bool = False) -> None:
        self.file, self.function, self.signature, self.method = file, function, signature, method
        self.positional, self.named = plan(function, signature, place_of(file, function))
        self.returned: tuple[str, ...] = ()
        self.exposed: tuple[str, ...] = ()
        self.stages: dict[str, User] = {}

    @property
    def takes(self) -> list[str]:
        """The canonical names that it is given."""
        return [*self.positional, *self.named.values()]

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        """Calls it with what it takes, and names what it returns."""
        first = [arguments[name] for name in self.positional]
        rest = {theirs: arguments[ours] for theirs, ours in self.named.items()}
        outputs = self._named(self.function(*first, **rest))
        ends = [item.name for item in self.signature.outputs]
        self.returned = self.returned or tuple(name for name in outputs if name in ends)
        self.exposed = self.exposed or tuple(name for name in outputs if name not in ends)
        return outputs

    def _named(self, raw: Any) -> dict[str, Any]:
        names = [item.name for item in self.signature.outputs]
        if isinstance(raw, Mapping):
            named = {self.signature.mapping.get(str(k), str(k)): v for k, v in raw.items()}
            stages = {item.name: named[item.name] for item in self.signature.stages if item.name in named}
            return {**stages, **self._known(named, names)}
        if isinstance(raw, tuple):
            if len(raw) > len(names):
                raise self._refused(f"at most {len(names)} outputs ({', '.join(names)})", f"{len(raw)}")
            return dict(zip(names, raw, strict=False))
        if raw is None or isinstance(raw, (str, bytes)):
            raise self._refused(f"an array, or a mapping with {', '.join(names)}", type(raw).__name__)
        return {names[0]: raw}

    def _known(self, outputs: dict[str, Any], names: list[str]) -> dict[str, Any]:
        known = {name: outputs[name] for name in names if name in outputs}
        if not known:
            near = did_you_mean(near_matches(next(iter(outputs), ""), names)) or "rename with --map THEIRS=OURS"
            raise self._refused(f"outputs named {', '.join(names)}", ", ".join(outputs) or "none", near)
        return known

    def _refused(self, expected: str, found: str, remedy: str = "") -> Refused:
        return Refused(place_of(self.file, self.function), expected=expected, found=found, remedy=remedy)


def place_of(file: str, function: Callable[..., Any]) -> str:
    """``file:line`` of a function, or the file alone."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{file}:{code.co_firstlineno}" if code is not None and same(code.co_filename, file) else file


def same(a: str, b: str) -> bool:
    """Whether two names are one file."""
    return os.path.realpath(a) == os.path.realpath(b)


def plan(function: Callable[..., Any], signature: Signature, place: str) -> tuple[list[str], dict[str, str]]:
    """What to hand over by position, and what by name (theirs to ours).

    Raises:
        Refused: a parameter without a default is no canonical name, or none of the parameters is.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [], {name: name for name in signature.canonical}
    positional: list[str] = []
    named: dict[str, str] = {}
    for item in parameters:
        ours = signature.mapping.get(item.name, item.name)
        if item.kind is item.VAR_POSITIONAL:
            continue
        if item.kind is item.VAR_KEYWORD:
            named |= {n: n for n in signature.canonical if n not in (*positional, *named.values())}
        elif ours in signature.canonical:
            positional.append(ours) if item.kind is item.POSITIONAL_ONLY else named.update({item.name: ours})
        elif item.default is item.empty:
            raise _unknown(item.name, signature, place)
    if not positional and not named:
        raise Refused(place, expected=f"a function of some of {', '.join(signature.canonical)}", found="none of them")
    return positional, named


def _unknown(name: str, signature: Signature, place: str) -> Refused:
    near = did_you_mean(near_matches(name, signature.canonical))
    remedy = f"{near} Rename with --map {name}=OURS" if near else f"rename with --map {name}=OURS"
    return Refused(
        place, expected=f"parameters among {', '.join(signature.canonical)}", found=f"{name!r}", remedy=remedy
    )


def load(file: str, name: str, signature: Signature, init: Mapping[str, Any] | None = None) -> User:
    """Imports the user's file and finds the function in it; a class on the way is made into an object with ``init``.

    Raises:
        Refused: the file does not import, there is no such function, or the object cannot be made.
    """
    module = _imported(file)
    found: Any = module
    made = False
    for part in name.split("."):
        found = getattr(found, part, None)
        if inspect.isclass(found) and signature.operations:
            found, made = _traced(found, signature, init or {}, file), True
        elif inspect.isclass(found):
            found, made = _object(found, init or {}, file), True
    if made and not inspect.isroutine(found):
        found = getattr(found, "forward", found)
    if init and not made:
        raise Refused(file, expected="a class to make with --init", found=f"{name!r}, which is none")
    if not callable(found):
        known = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == MODULE]
        remedy = did_you_mean(near_matches(name, known)) or f"it has {', '.join(known) or 'no functions'}"
        raise Refused(file, expected=f"a function {name!r}", found="none of that name", remedy=remedy)
    user = User(file, found, signature, method=made)
    user.stages = _stages(file, module, found, signature)
    return user


def _stages(file: str, module: ModuleType, function: Any, signature: Signature) -> dict[str, User]:
    """The functions of a file that are named after stages of the contract and take what comes before them."""
    found: dict[str, User] = {}
    before = signature.inputs
    for stage in signature.stages:
        theirs = next((name for name, ours in signature.mapping.items() if ours == stage.name), stage.name)
        named = getattr(module, theirs, None)
        if callable(named) and named is not function:
            with suppress(Refused):
                found[stage.name] = User(file, named, Signature(before, (stage,), signature.knobs, signature.mapping))
        before = (*before, Input(stage.name, stage.shape, "float", stage.doc, differentiable=True))
    return found


def _traced(kind: type, signature: Signature, init: Mapping[str, Any], file: str) -> Callable[..., Any]:
    """A class as the function that drives its objects.

    Raises:
        Refused: it lacks a method.
    """
    names = {ours: theirs for theirs, ours in signature.mapping.items()}
    try:
        return driving(kind, signature.operations, signature.outputs, names, init)
    except LookupError as error:
        wanted = ", ".join(item.name for item in signature.operations)
        known = [name for name in vars(kind) if not name.startswith("_")]
        remedy = did_you_mean(near_matches(str(error.args[0]), known)) or "rename with --map THEIRS=OURS"
        found = f"no {error.args[0]!r} in {kind.__name__}"
        raise Refused(file, expected=f"the methods {wanted}", found=found, remedy=remedy) from error


def _object(kind: Any, init: Mapping[str, Any], file: str) -> Any:
    """An object of the user's class.

    Raises:
        Refused: its constructor raised.
    """
    try:
        return kind(**init)
    except BaseException as error:
        given = ", ".join(f"{name}={value!r}" for name, value in init.items())
        expected = f"{kind.__name__}({given}) to make an object"
        raise Refused(
            where(error, file), expected=expected, found=brief(error), remedy="--init NAME=VALUE gives arguments"
        ) from error


def _imported(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise Refused(file, expected="a Python file", found=Path(file).suffix or "no suffix")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise Refused(where(error, file), expected="a file that imports", found=brief(error)) from error
    return module


def where(error: BaseException, file: str) -> str:
    """``file:line`` of the last frame of an error that lies in the user's file."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    chain = [error, *([error.__cause__] if error.__cause__ else [])]
    for item in reversed(chain):
        frames = [f for f in traceback.extract_tb(item.__traceback__) if same(f.filename, file)]
        if frames:
            return f"{file}:{frames[-1].lineno}"
    return file


def answer(user: User, backend: Any, message: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Runs one case and packs what came out."""
    case = Case(arrays, message["knobs"])
    dropped = ""
    try:
        result = _run(user, backend, case, message, gradient=message["gradient"])
    except Fault as fault:
        if not message["gradient"] or fault.rule not in ("raises", "gradient"):
            raise
        result = _run(user, backend, case, message, gradient=False)
        dropped = fault.found if hasattr(fault, "found") else str(fault)
    return _packed(result, undifferentiated=dropped, exposed=user.exposed)


def _run(user: User, backend: Any, case: Case, message: Mapping[str, Any], *, gradient: bool) -> Result:
    """Runs with the outputs that the first call returned; a first call finds out."""
    asked = {"dtype": message["dtype"], "device": message["device"]}
    if not user.returned:
        _discover(user, backend, case, asked)
    outputs = tuple(item for item in user.signature.outputs if item.name in user.returned)
    return run(Signature(user.signature.inputs, outputs), user, backend, case, gradient=gradient, **asked)


def answer_stage(user: User, backend: Any, message: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Runs one of the user's stages on right values of all that comes before it."""
    stage = user.stages[message["stage"]]
    taken = tuple(item for item in stage.signature.inputs if item.name in stage.takes)
    interface = Signature(taken, stage.signature.outputs)
    case = Case(arrays, {name: value for name, value in message["knobs"].items() if name in stage.takes})
    result = run(interface, stage, backend, case, dtype=message["dtype"], device=message["device"])
    return _packed(result)


def answer_exposed(user: User, backend: Any, message: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Runs one case for the stages that the function returns beside its outputs."""
    outputs = tuple(item for item in user.signature.stages if item.name in user.exposed)
    asked = {"dtype": message["dtype"], "device": message["device"], "gradient": False}
    return _packed(
        run(Signature(user.signature.inputs, outputs), user, backend, Case(arrays, message["knobs"]), **asked)
    )


def _packed(result: Result, **more: Any) -> bytes:
    out = {f"out:{n}": a for n, a in result.outputs.items()} | {f"grad:{n}": a for n, a in result.gradients.items()}
    return pack({"ok": True, "carried": sorted(result.carried), "dtypes": result.dtypes, **more}, out)


def _discover(user: User, backend: Any, case: Case, asked: dict[str, Any]) -> None:
    with suppress(Fault):
        run(Signature(user.signature.inputs, ()), user, backend, case, gradient=False, **asked)


def described(user: User) -> dict[str, Any]:
    """What the parent has to know of the function: where it is and how it is called."""
    return {
        "takes": user.takes,
        "place": place_of(user.file, user.function),
        "positional": user.positional,
        "named": user.named,
        "method": user.method,
        "stages": list(user.stages),
    }


def limit_memory(allowed: int) -> None:
    """Caps the address space at what is in use now plus ``allowed`` bytes, where the system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + allowed, used + allowed))


def refusal(error: BaseException, file: str) -> dict[str, Any]:
    """An error as the parts of one line."""
    if isinstance(error, Refused):
        return {"error": error.parts}
    if isinstance(error, Fault):
        inner = error.__cause__
        if isinstance(inner, Refused):
            return {"error": inner.parts}
        if inner is not None and _is_memory(inner):
            return {"memory": where(inner, file)}
        return {"error": {"place": where(error, file), "rule": error.rule, **_parts(error)}}
    if _is_memory(error):
        return {"memory": where(error, file)}
    return {"error": {"place": where(error, file), "expected": "a result", "found": brief(error), "remedy": ""}}


def _is_memory(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in text or "RESOURCE_EXHAUSTED" in text


def _parts(error: Fault) -> dict[str, str]:
    """What was expected and found; the name of the input or output goes with what was expected."""
    named = error.place not in ("call", "result", "backward")
    expected = f"{error.expected} of {error.place!r}" if named and error.rule == "shape" else error.expected
    found = f"{error.place!r} changed in place" if error.rule == "in place" else error.found
    return {"expected": expected, "found": found, "remedy": error.remedy}


def _signature(message: Mapping[str, Any]) -> Signature:
    def shaped(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [{**item, "shape": tuple(item["shape"])} for item in items]

    inputs, outputs = shaped(message["inputs"]), shaped(message["outputs"])
    return Signature(
        tuple(Input(**i) for i in inputs),
        tuple(Output(**o) for o in outputs),
        tuple(message["knobs"]),
        message["mapping"],
        tuple(Output(**o) for o in shaped(message["stages"])),
        tuple(Operation(o["name"], tuple(o["arguments"]), o["doc"]) for o in message["operations"]),
    )


def _descriptors() -> tuple[BinaryIO, BinaryIO]:
    """The protocol's ends; what the user's code sees as standard streams leads nowhere."""
    reading, writing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    return reading, writing


def serve(backend: Any, reading: BinaryIO, writing: BinaryIO) -> None:
    """Answers messages until the parent closes the pipe."""
    user: User | None = None
    file = ""
    while head := reading.read(8):
        message, arrays = unpack(reading.read(int.from_bytes(head, "big")))
        try:
            if message["op"] == "load":
                file = message["file"]
                limit_memory(message["memory"])
                user = load(file, message["function"], _signature(message), message["init"])
                reply = pack({"ok": True, **described(user)})
            else:
                assert user is not None
                with eagerly(user, message["eager"]):
                    reply = _ANSWERS[message["op"]](user, backend, message, arrays)
        except BaseException as error:
            reply = pack(refusal(error, file))
        writing.write(reply)
        writing.flush()


_ANSWERS = {"run": answer, "stage": answer_stage, "exposed": answer_exposed}


def main() -> None:
    """Starts serving once the backend is imported, so that its import does not count as the user's time."""
    reading, writing = _descriptors()
    backend = sys.argv[1]
    try:
        importlib.import_module(backend)
        hello = pack({"ok": True})
    except ImportError as error:
        hello = pack({"error": {"place": backend, "expected": "to import it", "found": brief(error), "remedy": ""}})
    writing.write(hello)
    writing.flush()
    serve(backend, reading, writing)


if __name__ == "__main__":
    main()
