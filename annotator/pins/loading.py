"""Import of references such that the code that is read is the code that is run.

Two ways, by the lock's ``run``. ``tree``: Python reads the pinned tree itself, and a loader compares each file with the
manifest before a line of it runs, lazy imports included. ``installed`` (compiled parts): the installed distribution is
imported and every file of it that was loaded is compared with the tree afterwards.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from annotator.errors import DigestError, PinError, did_you_mean, near_matches
from annotator.pins import trees
from annotator.pins.fetching import pin_of
from annotator.pins.lock import Pin
from annotator.workspace import Workspace


@dataclass(frozen=True)
class _Tree:
    """A tree that this process imports from, or compares with. ``compared`` holds files already found equal."""

    pin: Pin
    root: Path
    digests: trees.Manifest
    compared: set[str] = field(default_factory=set)

    def module(self, dotted: str) -> str:
        """The longest leading part of a qualified name that is a module of the tree; its package by default."""
        parts = (dotted or self.pin.name).split(".")
        for count in range(len(parts), 0, -1):
            stem = "/".join(parts[:count])
            if f"{stem}/__init__.py" in self.digests or f"{stem}.py" in self.digests:
                return ".".join(parts[:count])
        remedy = did_you_mean(near_matches(parts[0], self.packages)) or f"it has {', '.join(sorted(self.packages))}"
        raise PinError(
            f"{self.pin.name}:{dotted}", expected="a module of the pin", found="none of that name", remedy=remedy
        )

    @property
    def packages(self) -> set[str]:
        """The top-level packages of the tree."""
        return {path.split("/")[0] for path in self.digests if path.count("/") == 1 and path.endswith("/__init__.py")}

    def compare(self, path: str, data: bytes, where: str) -> None:
        """Compare one file with the manifest.

        Raises:
            DigestError: the pin has no such file, or other bytes.
        """
        wanted, found = self.digests.get(path), hashlib.sha256(data).hexdigest()
        if wanted != found:
            pinned = f"{self.pin.name} {self.pin.version}"
            expected = f"the bytes of {pinned} (sha256 {wanted[:12]}…)" if wanted else f"a file of {pinned}"
            raise DigestError(where, expected=expected, found=f"sha256 {found[:12]}…", remedy=self.remedy)

    @property
    def remedy(self) -> str:
        """How to get the pinned bytes where others are found."""
        if self.pin.run == "installed":
            return f"pip install --force-reinstall --no-deps {self.pin.distribution}=={self.pin.version}"
        return f"run `annotator fetch {self.pin.name} --verify`, or remove your own copy first"


_OPEN: dict[tuple[Path, str], _Tree] = {}
"""Trees of this process by place and digest: a second `load` reads no manifest and compares no file again."""


def load(symbol: str, workspace: Workspace | None = None) -> ModuleType:
    """Import a reference, or a module of it, from its pinned bytes.

    Args:
        symbol: ``"verl"`` or ``"verl:verl.trainer.ppo.core_algos"``; of a longer symbol its module is imported.
        workspace: whose lock and trees; the one of the working folder by default.

    Raises:
        PinError: no such pin or module, nothing fetched or installed, another version, or the import fails.
        DigestError: a file that was about to run, or did, has other bytes than the lock.
    """
    workspace = workspace or Workspace.find()
    name, _, dotted = symbol.partition(":")
    pin = pin_of(workspace, name)
    if pin.run == "none":
        raise PinError(name, expected="a pin that can be imported", found="one that is only read")
    opened = _open(workspace, pin)
    module = opened.module(dotted)
    return _from_tree(opened, module) if opened.pin.run == "tree" else _installed(opened, module)


def _open(workspace: Workspace, pin: Pin) -> _Tree:
    root = trees.locate(workspace, pin)
    key = (root, pin.tree)
    if key not in _OPEN:
        _OPEN[key] = _Tree(pin, root, trees.manifest(workspace, pin))
    return _OPEN[key]


def _from_tree(opened: _Tree, module: str) -> ModuleType:
    """Import from the tree, which goes first on the import path with its metadata."""
    top = module.split(".")[0]
    _refuse_foreign(opened, top)
    if str(opened.root) not in sys.path:
        sys.path_hooks.insert(0, _hook(opened))
        sys.path.insert(0, str(opened.root))
        for path in [path for path in sys.path_importer_cache if Path(path).is_relative_to(opened.root)]:
            del sys.path_importer_cache[path]
    found = _import(opened, module)
    _refuse_foreign(opened, top)
    return found


def _refuse_foreign(opened: _Tree, top: str) -> None:
    """Refuse a package of that name that was imported from elsewhere."""
    module = sys.modules.get(top)
    origin = module and (module.__file__ or next(iter(getattr(module, "__path__", ())), None))
    if module is not None and (origin is None or not Path(origin).resolve().is_relative_to(opened.root)):
        remedy = f"load it before anything imports {top}, in a fresh process"
        raise PinError(
            opened.pin.name, expected=f"{top} from vendored_refs/{opened.pin.name}", found=str(origin), remedy=remedy
        )


def _hook(opened: _Tree) -> Callable[[str], FileFinder]:
    """A path hook for the folders of one tree."""
    inside = (str(opened.root), str(opened.root) + os.sep)

    class Loader(_ComparingLoader):
        tree = opened

    def hook(path: str) -> FileFinder:
        if path != inside[0] and not path.startswith(inside[1]):
            raise ImportError(f"{path} is not in the tree of {opened.pin.name}")
        return FileFinder(path, (Loader, [".py"]))

    return hook


class _ComparingLoader(SourceFileLoader):
    """Runs a source file only once its bytes are known to be the lock's. Byte-code caches are not used."""

    tree: _Tree

    def get_code(self, fullname: str) -> CodeType:
        """Compiled source of a module.

        Raises:
            DigestError: other bytes than the lock's.
        """
        path = self.get_filename(fullname)
        source = self.get_data(path)
        inner = Path(path).relative_to(self.tree.root).as_posix()
        self.tree.compare(inner, source, f"vendored_refs/{self.tree.pin.name}/{inner}")
        return self.source_to_code(source, path)


def _installed(opened: _Tree, module: str) -> ModuleType:
    """Import the installed distribution, then compare every loaded file of it."""
    _check_version(opened.pin)
    found = _import(opened, module)
    base = Path(sys.modules[module.split(".")[0]].__file__ or "").resolve().parents[1]
    differs = trees.keeper(opened.pin.differs)
    for origin in _loaded_files(opened.packages) - opened.compared:
        path = Path(origin).resolve()
        inner = path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)
        if not differs(inner):
            opened.compare(inner, path.read_bytes(), f"installed {inner}")
        opened.compared.add(origin)
    return found


def _loaded_files(packages: set[str]) -> set[str]:
    """The source files of all loaded modules of some packages. Module attributes are not asked for: some are lazy."""
    files = set()
    for name, module in list(sys.modules.items()):
        origin = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if (
            name.split(".")[0] in packages
            and isinstance(origin, str)
            and origin.endswith(".py")
            and os.path.isabs(origin)
        ):
            files.add(origin)
    return files


def _check_version(pin: Pin) -> None:
    """Compare the installed version; a local part (``+cpu``) may follow.

    Raises:
        PinError: not installed, or another version.
    """
    wanted = f"{pin.distribution} {pin.version} installed"
    remedy = f"pip install {pin.distribution}=={pin.version}"
    found = [version for name in (pin.distribution, pin.project) if name and (version := _version(name)) is not None]
    if not found:
        raise PinError(pin.name, expected=wanted, found="none", remedy=remedy)
    if all(version.split("+")[0] != pin.version for version in found):
        raise PinError(pin.name, expected=wanted, found=found[0], remedy=remedy)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _import(opened: _Tree, module: str) -> ModuleType:
    """Import, and say which pin could not be imported and why."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or "").split(".")[0]
        remedy = "" if not missing or missing in opened.packages else f"install what provides {missing}"
        found = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PinError(f"{opened.pin.name}:{module}", expected="it to import", found=found, remedy=remedy) from error
