"""What was shown, on which device, and by which bytes: ``tests/proofs/<device>.json``.

An entry stands for contract x implementation x dtype x reference. It holds the digests of all code involved: the
minimal files, the source text of the pinned symbols, the adapters, the contract itself. Once one of them changes the
entry is stale. Apart from `conforming` so that checking proofs needs neither NumPy nor a backend.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from annotator.contracts.findings import Finding, plain
from annotator.contracts.model import Contract, Implementation
from annotator.errors import AnnotatorError, ContractError
from annotator.workspace import Workspace

SOURCE = Callable[[str], bytes]
"""Gives the source bytes of a symbol (``verl:verl.x.f``) or of a file (``minimal/x.py``)."""

_KEY = ("contract", "implementation", "reference", "dtype")


@dataclass(frozen=True)
class Stale:
    """A proof that no longer holds, or is not there. ``place`` names the file and the entry."""

    place: str
    message: str
    device: str = "cpu"


def record(
    workspace: Workspace, findings: Iterable[Finding], contracts: Iterable[Contract] | None = None, *, device: str = ""
) -> Path:
    """Writes what passed into the device's file, in place of earlier entries of the same contracts; returns the path.

    ``contracts`` are looked up in the catalogue unless given. An entry that failed or was not run is not written: it
    proves nothing.

    Raises:
        ContractError: there is no finding that passed.
    """
    known = _contracts(contracts)
    passed = [item for item in findings if item.passed]
    if not passed:
        raise ContractError("proofs", expected="at least one finding that passed", found="none")
    path = workspace.proofs / f"{device or device_name(passed[0].device)}.json"
    fresh = {_key(vars(item)): entry(workspace, item, known[item.contract]) for item in passed}
    old = {_key(item): item for item in (_read(path) if path.exists() else [])}
    entries = [value for _, value in sorted({**old, **fresh}.items())]
    write(path, json.dumps({"device": path.stem, "entries": entries}, indent=1, sort_keys=True) + "\n")
    return path


def _key(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(fields[name]) for name in _KEY)


def _contracts(given: Iterable[Contract] | None) -> dict[str, Contract]:
    """The contracts by name. The catalogue comes later in the chain, hence it is looked up by its own name."""
    if given is not None:
        return {item.name: item for item in given}
    catalog = importlib.import_module("annotator.catalog")
    return {name: catalog.contract(name) for name in catalog.names()}


def entry(workspace: Workspace, finding: Finding, contract: Contract) -> dict[str, Any]:
    """One finding as it is kept: numbers, versions, date, digests."""
    numbers = ("cases", "excluded", "error", "bound", "gradient_error", "gradient_bound", "p_value")
    implementation = contract.implementation(finding.implementation)
    return {
        **{name: getattr(finding, name) for name in _KEY},
        "device": finding.device,
        "role": implementation.role,
        "backend": implementation.backend,
        **{name: _short(getattr(finding, name)) for name in numbers},
        "probes": sorted(set(finding.probes) - set(finding.broken)),
        "breaks": sorted(finding.broken),
        "versions": versions(workspace, _symbols(contract, finding)),
        "date": datetime.now(UTC).date().isoformat(),
        "digests": digests(workspace, contract, finding.implementation, finding.reference),
    }


def _short(value: Any) -> Any:
    """Three digits of an error: more would differ from machine to machine."""
    return float(f"{value:.2e}") if isinstance(value, float) else plain(value)


def _symbols(contract: Contract, finding: Finding) -> set[str]:
    names = (finding.implementation, finding.reference)
    return {symbol for name in names for symbol in contract.implementation(name).symbols}


def versions(workspace: Workspace, symbols: Iterable[str]) -> dict[str, str]:
    """Python, the backends, and the pins of the symbols."""
    found = {"python": platform.python_version()}
    for name in ("torch", "jax", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    pins = {symbol.partition(":")[0] for symbol in symbols if ":" in symbol}
    return found | {name: version for name, version in _pinned(workspace).items() if name in pins}


def _pinned(workspace: Workspace) -> dict[str, str]:
    from annotator.pins import read_lock

    if not workspace.lock.exists():
        return {}
    return {name: pin.version for name, pin in read_lock(workspace.lock).items()}


def digests(
    workspace: Workspace, contract: Contract, implementation: str, reference: str, source: SOURCE | None = None
) -> dict[str, str]:
    """Digest of every piece of code that a proof rests on, by name; ``source`` reads symbols and files."""
    read = source or functools.partial(source_of, workspace)
    found = {"contract": contract_digest(contract)}
    for name in dict.fromkeys((implementation, reference)):
        item = contract.implementation(name)
        found |= {symbol: _sha(read(symbol)) for symbol in item.symbols}
        found[f"adapter of {name}"] = _sha(_code_of(item))
    return found


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


def _code_of(implementation: Implementation) -> bytes:
    """The file in which an adapter is written, and the catalogue's helpers that it uses (``_trl`` and so on)."""
    found: dict[Path, bytes] = {}
    waiting = [_file_of(implementation.call)]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found[file] = file.read_bytes()
            waiting += _helpers(file, found[file])
    return b"".join(found[file] for file in sorted(found))


def _helpers(file: Path, data: bytes) -> Iterator[Path]:
    """The private files beside a file that its imports name: ``from annotator.catalog import _trl``."""
    for node in ast.walk(ast.Module([*_statements(data)], [])):
        if isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            places = (file.with_name(f"{name}.py") for name in names if name.startswith("_"))
            yield from (place for place in places if place.is_file())


def _file_of(call: Any) -> Path:
    while isinstance(call, functools.partial):
        call = call.func
    path = inspect.getsourcefile(inspect.unwrap(call))
    assert path is not None
    return Path(path)


def calls_digest(calls: Iterable[Any]) -> str:
    """Digest of the files in which some functions are written."""
    return _sha(b"".join(path.read_bytes() for path in sorted({_file_of(call) for call in calls})))


def contract_digest(contract: Contract) -> str:
    """Digest of what a contract states, and of the file that draws its cases."""
    stated = [contract.name, contract.kind, contract.inputs, contract.outputs, contract.knobs]
    stated += [(item.name, sorted(item.dialect.items())) for item in contract.implementations]
    return _sha(repr(stated).encode() + _file_of(contract.cases).read_bytes())


def source_of(workspace: Workspace, symbol: str) -> bytes:
    """The source text of a pinned symbol, or the bytes of a file of the checkout.

    Raises:
        ContractError: there is no such file or symbol.
    """
    if ":" not in symbol:
        path = workspace.root / symbol
        if not path.is_file():
            path = Path(__file__).parents[2] / symbol  # A wheel carries minimal beside annotator, not in its root.
        if not path.is_file():
            raise ContractError(symbol, expected="a file", found="none")
        return path.read_bytes()
    return located(workspace, symbol)[2]


def located(workspace: Workspace, symbol: str) -> tuple[Path, int, bytes]:
    """The file of a pinned symbol, its first line there, and its source text.

    Raises:
        ContractError: there is no such symbol, or its pin's tree is not there.
    """
    pin, _, name = symbol.partition(":")
    tree = workspace.tree(pin)
    if not tree.exists():
        raise ContractError(symbol, expected="its pin's tree", found="none", remedy=f"run annotator fetch {pin}")
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        base = tree.joinpath(*parts[:length])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path, *_slice(path, parts[length:], symbol)
    raise ContractError(symbol, expected="a module of the pin", found="none")


def _slice(path: Path, names: Sequence[str], symbol: str) -> tuple[int, bytes]:
    """First line and lines of a definition, decorators included; the whole file for a module."""
    data = path.read_bytes()
    body = _statements(data)
    node: ast.AST | None = None
    for name in names:
        node = next((item for item in _defined(body) if _is_named(item, name)), None)
        if node is None:
            raise ContractError(symbol, expected=f"{name!r} in {path.name}", found="none of that name")
        body = getattr(node, "body", [])
    return (1, data) if node is None else _lines(data, node)


@functools.lru_cache(maxsize=128)
def _statements(data: bytes) -> Sequence[ast.stmt]:
    """The statements of a file; kept, because many proofs rest on few files."""
    return ast.parse(data).body


def _defined(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those under ``if`` and ``try`` included."""
    for item in body:
        yield item
        if isinstance(item, (ast.If, ast.Try)):
            yield from _defined([*item.body, *item.orelse])


def _is_named(item: ast.stmt, name: str) -> bool:
    targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
    return getattr(item, "name", None) == name or any(isinstance(t, ast.Name) and t.id == name for t in targets)


def _lines(data: bytes, node: Any) -> tuple[int, bytes]:
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    return first, b"\n".join(data.splitlines()[first - 1 : node.end_lineno])


def device_name(device: str) -> str:
    """The name of a device's file: ``cpu``, or the GPU's own name in small letters.

    Raises:
        ContractError: this machine has no such device.
    """
    if device == "cpu":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        remedy = "record where the device is"
        raise ContractError("proofs", expected=f"a {device} to name the file by", found="none here", remedy=remedy)
    return re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(device).lower()).strip("-")


def load(workspace: Workspace) -> dict[str, list[dict[str, Any]]]:
    """Every recorded entry, by device.

    Raises:
        ContractError: a file cannot be read.
    """
    return {path.stem: _read(path) for path in sorted(workspace.proofs.glob("*.json"))}


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["entries"]
        for item in entries:
            _key(item)
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "record it anew with annotator conform --record"
        raise ContractError(str(path), expected="recorded proofs", found=type(error).__name__, remedy=remedy) from error
    return entries


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.chmod(name, 0o644)
    os.replace(name, path)


def stale(workspace: Workspace, contract: Contract, proof: Mapping[str, Any]) -> str:
    """Why an entry no longer holds, or an empty string."""
    names = {item.name for item in contract.implementations}
    for role in ("implementation", "reference"):
        if proof[role] not in names:
            return f"the contract has no {role} {proof[role]!r} any more"
    try:
        now = digests(workspace, contract, proof["implementation"], proof["reference"])
    except AnnotatorError as error:
        return f"cannot be checked: {error}"
    kept = proof.get("digests", {})
    changed = sorted({*now, *kept} - {name for name in now if kept.get(name) == now[name]})
    return f"{', '.join(changed)} changed since it was recorded" if changed else ""


def check(
    workspace: Workspace,
    contracts: Iterable[Contract] | None = None,
    of: Literal["all", "cpu", "others"] = "all",
) -> list[Stale]:
    """Stale entries of all devices, of the CPU or of the others; entries of unknown contracts; what the CPU lacks.

    Of another device nothing is missing: which references can run there is for that machine to say.
    """
    known = _contracts(contracts)
    recorded = {name: held for name, held in load(workspace).items() if of == "all" or (of == "cpu") == (name == "cpu")}
    found = [item for device, entries in recorded.items() for item in _unsound(workspace, device, entries, known)]
    have = {_key(item) for item in recorded.get("cpu", [])}
    for contract in known.values() if of != "others" else ():
        for key in expected(contract):
            if key not in have:
                found.append(Stale(_place(workspace, "cpu", key), f"no proof; {_REMEDY}"))
    return found


_REMEDY = "run annotator conform --record"
_ELSEWHERE = "run make proofs-cuda on a machine that has this device"


def _unsound(
    workspace: Workspace, device: str, entries: Iterable[Mapping[str, Any]], known: Mapping[str, Contract]
) -> Iterator[Stale]:
    for item in entries:
        contract = known.get(item["contract"])
        reason = stale(workspace, contract, item) if contract else "the catalogue has no such contract"
        if reason:
            remedy = _REMEDY if device == "cpu" else _ELSEWHERE
            yield Stale(_place(workspace, device, _key(item)), f"{reason}; {remedy}", device)


def _place(workspace: Workspace, device: str, key: tuple[str, ...]) -> str:
    contract, implementation, reference, dtype = key
    return f"tests/proofs/{device}.json: {contract}, {implementation} at {reference}, {dtype}"


def expected(contract: Contract) -> Iterator[tuple[str, ...]]:
    """The keys of all entries that a full run of a contract makes."""
    for reference, implementation, dtype in plan(contract):
        yield contract.name, implementation.name, reference.name, dtype


def plan(
    contract: Contract, device: str = "cpu", dtypes: Sequence[str] | None = None
) -> Iterator[tuple[Implementation, Implementation, str]]:
    """Which reference meets which implementation in which dtype: the reference first, then what is minimal.

    Dtypes below float32 belong to a run on a GPU, and to one on the CPU that asks for them in ``dtypes``.
    """
    minimal = [item for item in contract.implementations if item.role == "minimal"]
    for reference in (item for item in contract.implementations if item.role == "reference"):
        for item in [reference, *minimal]:
            for dtype in item.dtypes if device == "cpu" and not dtypes else item.all_dtypes:
                if (not dtypes or dtype in dtypes) and (dtype in reference.all_dtypes or dtype == "float64"):
                    yield reference, item, dtype
