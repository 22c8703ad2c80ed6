"""The YAML files of a Hydra application put together: every key with its full dotted name, file, line and value.

Follows Hydra's rules for the defaults list as far as applications in the pins use them: groups relative to the file,
``group@package: option``, ``override``, ``optional``, ``_self_``, ``# @package``, ``${group}`` inside an option,
``hydra.searchpath``. Hydra itself would tell the values but not the lines. Nothing is imported or run; the files are
read when a question needs them, because the index holds none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING

from annotator.index.parsed import Parsed, files_with, keyword, parse_each, walk

if TYPE_CHECKING:
    import yaml

    from annotator.index.lookup import Index

    Key = tuple[str, ...]

PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.M)
CHOICE = re.compile(r"\$\{([\w/.]+)\}")
REFERENCE = re.compile(r"\$\{(?:oc\.select:|oc\.deprecated:)?\s*(\.*[A-Za-z_][\w.]*)\s*[,}]")
DEEPEST = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a composed configuration, set in one place.

    Attributes:
        key: its full name. path, line, column: the YAML file in the pin, and where the key stands there.
        value: as written, on one line; of a section nothing, of a mounted file its path.
        kind: ``value``, ``section``, or ``mount`` (an item of a defaults list that puts a file there).
        primary: the file that the application names, through which this one is reached.
        choice: what has to be chosen for it to be in effect (``model_engine=veomni``); empty if nothing.
        overridden: whether a later setting of the same key takes its place.
    """

    key: Key
    path: str
    line: int
    column: int
    value: str
    kind: str
    primary: str
    choice: str = ""
    overridden: bool = False

    @property
    def dotted(self) -> str:
        """The full name as it is written."""
        return ".".join(self.key)


class Document:
    """One YAML file: its tree, its defaults list and its package header."""

    def __init__(self, text: str) -> None:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            self.root = yaml.compose(text, Loader=loader)
        except yaml.YAMLError:
            self.root = None
        header = PACKAGE.search(text.split("\n\n", 1)[0])
        self.package = header[1] if header else None

    @property
    def items(self) -> list[tuple[yaml.Node, yaml.Node]]:
        """The top level, without what is for Hydra alone."""
        return [(key, value) for key, value in _pairs(self.root) if key.value not in ("defaults", "hydra")]

    def top(self, name: str) -> yaml.Node | None:
        """A value of the top level."""
        return next((value for key, value in _pairs(self.root) if key.value == name), None)

    @cached_property
    def defaults(self) -> list[Default]:
        """The defaults list; ``_self_`` comes last where it is not mentioned."""
        node = self.top("defaults")
        listed = [Default.of(item) for item in _items(node)]
        if all(item.option != "_self_" for item in listed):
            listed.append(Default("", "", "_self_", "", 0, 0))
        return listed

    @property
    def search_path(self) -> list[str]:
        """Folders of ``hydra.searchpath``, as paths from the pin's root."""
        hydra = self.top("hydra")
        listed = next((value for key, value in _pairs(hydra) if key.value == "searchpath"), None)
        found = []
        for item in _items(listed):
            scheme, _, where = str(item.value).partition("://")
            found.append(where.replace(".", "/") if scheme == "pkg" else where.strip("/"))
        return found


@dataclass(frozen=True, slots=True)
class Default:
    """One item of a defaults list: ``[override|optional] group@package: option``; ``group`` is empty for a file."""

    mark: str
    group: str
    option: str
    package: str
    line: int
    column: int

    @property
    def name(self) -> str:
        """What an override calls it."""
        return f"{self.group}@{self.package}" if self.package else self.group

    @classmethod
    def of(cls, node: yaml.Node) -> Default:
        """The item that a node writes."""
        line, column = node.start_mark.line + 1, node.start_mark.column
        pairs = _pairs(node)
        if not pairs:
            option, _, package = str(node.value).partition("@")
            return cls("", "", option, package, line, column)
        key, value = pairs[0]
        *marks, named = str(key.value).split()
        group, _, package = named.partition("@")
        return cls(" ".join(marks), group, str(value.value), package, line, column)


class Application:
    """What a Hydra application composes: the folder of its files, and the file that it starts with."""

    def __init__(self, tree: Path, folder: str, primary: str, documents: dict[str, Document | None]) -> None:
        self.tree, self.primary, self.documents = tree, primary, documents
        self.folders = [folder]
        document = self.document(primary)
        if document is not None:
            self.folders += document.search_path
        self.choices: dict[str, str] = {}
        self.overridden: dict[str, str] = {}
        self.files: set[str] = set()

    @cached_property
    def extends(self) -> bool:
        """Whether it builds on another application, which then tells what other choices there are."""
        document = self.document(self.primary)
        named = [item.option for item in document.defaults if not item.group] if document is not None else []
        files = [self.find(option, self.primary) for option in named if option != "_self_"]
        return any((inner := self.document(file)) and inner.top("defaults") for file in files if file)

    def document(self, path: str) -> Document | None:
        """A file of the application, read once."""
        if path not in self.documents:
            try:
                self.documents[path] = Document((self.tree / path).read_text("utf-8", "replace"))
            except OSError:
                self.documents[path] = None
        return self.documents[path]

    def settings(self) -> list[Setting]:
        """All settings in the order in which they take effect; those of files not chosen come with their ``choice``."""
        self.overridden = self.overrides(self.primary)
        return _marked(list(self.load(self.primary, (), "", 0)))

    def overrides(self, path: str, depth: int = 0) -> dict[str, str]:
        """Group → option of the ``override`` items, the outermost file's last."""
        document = self.document(path)
        found: dict[str, str] = {}
        for item in document.defaults if document is not None and depth < DEEPEST else ():
            if not item.group and item.option != "_self_" and (inner := self.find(item.option, path)):
                found |= self.overrides(inner, depth + 1)
            if item.mark.startswith("override"):
                found[item.name] = item.option
        return found

    def load(self, path: str, package: Key, choice: str, depth: int) -> Iterator[Setting]:
        """Settings of one file and of those that its defaults list names, below ``package``."""
        document = self.document(path)
        if document is None or depth > DEEPEST:
            return
        self.files.add(path)
        for item in document.defaults:
            if item.option == "_self_":
                yield from self.written(document.items, path, package, choice)
            elif not item.mark.startswith("override") and item.option not in ("null", "~", ""):
                yield from self.mounted(item, path, package, choice, depth)

    def mounted(self, item: Default, path: str, package: Key, choice: str, depth: int) -> Iterator[Setting]:
        """Settings of the files that an item of a defaults list stands for: the one in effect, then the others."""
        if item.group and not item.package:
            self.choices.setdefault(item.group, self.overridden.get(item.name, item.option))
        for option, extra in self.options(item, path):
            inner = self.find(f"{item.group}/{option}" if item.group else option, path)
            document = self.document(inner) if inner else None
            if inner is None or document is None:
                continue
            below = self.package(item, document, package)
            both = " ".join(filter(None, (choice, extra)))
            if below != package:
                yield Setting(below, path, item.line, item.column, inner, "mount", self.primary, both)
            yield from self.load(inner, below, both, depth + 1)

    def options(self, item: Default, path: str) -> Iterator[tuple[str, str]]:
        """The option of an item, and where another choice is part of its name, those for the other choices."""
        chosen = self.overridden.get(item.name, item.option) if item.group else item.option
        names = CHOICE.findall(chosen)
        known = {name: self.choices.get(name, "") for name in names}
        yield CHOICE.sub(lambda match: known[match[1]], chosen), ""
        for name in () if self.extends else names[:1]:
            for other in self.siblings(name, path):
                if other != known[name]:
                    yield CHOICE.sub(lambda match, other=other: other, chosen), f"{name}={other}"  # type: ignore[misc]

    def siblings(self, group: str, path: str) -> list[str]:
        """The options of a group: its files."""
        folders = [self.tree / folder / group for folder in (str(PurePosixPath(path).parent), *self.folders)]
        return sorted({file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.y*ml")})

    def package(self, item: Default, document: Document, above: Key) -> Key:
        """Where the contents of a file go."""
        named = item.package or document.package
        if named is None:
            parts = [part for part in item.group.split("/") if part not in ("", ".", "..")]
            return (*above, *parts)
        if named.startswith("_global_"):
            return tuple(part for part in named.removeprefix("_global_").split(".") if part)
        if named == "_here_":
            return above
        return (*above, *named.split("."))

    def find(self, option: str, path: str) -> str | None:
        """The file that an option names, from the folder of the file that names it, else from the search path."""
        name = option if option.endswith((".yaml", ".yml")) else f"{option}.yaml"
        near = [] if option.startswith("/") else [str(PurePosixPath(path).parent)]
        for folder in (*near, *self.folders):
            found = normpath(f"{folder}/{name.lstrip('/')}")
            if not found.startswith("..") and self.document(found) is not None:
                return found
        return None

    def written(
        self, pairs: list[tuple[yaml.Node, yaml.Node]], path: str, package: Key, choice: str
    ) -> Iterator[Setting]:
        """Settings that a file writes itself."""
        waiting = [(package, pair) for pair in pairs]
        while waiting:
            above, (key, value) = waiting.pop(0)
            full, inner = (*above, str(key.value)), _pairs(value)
            line, column = key.start_mark.line + 1, key.start_mark.column
            kind = "section" if inner else "value"
            yield Setting(full, path, line, column, "" if inner else _brief(value), kind, self.primary, choice)
            waiting[:0] = [(full, pair) for pair in inner]


def settings(index: Index, pin: str) -> list[Setting]:
    """All settings of the applications of a pin; an application that another one builds on comes before it."""
    tree = index.workspace.tree(pin)
    composed: list[tuple[list[Setting], set[str], str]] = []
    documents: dict[str, Document | None] = {}
    for folder, primary in _starts(index, pin):
        application = Application(tree, folder, primary, documents)
        composed.append((application.settings(), application.files, primary))
    built_on = {one[2]: sum(primary in one[1] for _, _, primary in composed) for one in composed}
    composed.sort(key=lambda one: (built_on[one[2]], one[2]))
    return [setting for settings_of_one, _, _ in composed for setting in settings_of_one]


def refers(setting: Setting) -> list[Key]:
    """The full keys that a value takes its own from: ``${a.b}``, ``${oc.select:a.b,default}``, ``${.sibling}``."""
    found = []
    for name in REFERENCE.findall(setting.value):
        plain = name.lstrip(".")
        dots = len(name) - len(plain)
        above = setting.key[: len(setting.key) - dots] if dots else ()
        found.append((*above, *plain.split(".")))
    return found


def _starts(index: Index, pin: str) -> list[tuple[str, str]]:
    """Folder and first file of each application: what ``@hydra.main`` names, and neighbours with a defaults list."""
    folders: dict[str, set[str]] = {}
    files = files_with(index, "config_path", pin=pin)
    started = [file for file in files if b"hydra.main" in index.resolver.read(*file)]
    for parsed in parse_each(index, started):
        for folder, name in _mains(parsed):
            folders.setdefault(folder, set()).add(f"{folder}/{name}.yaml")
    for folder, named in folders.items():
        where = index.workspace.tree(pin) / folder
        for file in sorted(where.glob("*.yaml")) if where.is_dir() else ():
            if re.search(r"^defaults:", file.read_text("utf-8", "replace"), re.M):
                named.add(f"{folder}/{file.name}")
    return sorted((folder, primary) for folder, named in folders.items() for primary in named)


def _mains(parsed: Parsed) -> Iterator[tuple[str, str]]:
    """Folder and name of what the ``@hydra.main`` of a file starts with."""
    for call in walk(parsed.tree.root_node, "call"):
        if not parsed.text(call.child_by_field_name("function")).endswith("hydra.main"):
            continue
        folder, name = (parsed.literal(keyword(parsed, call, which)) for which in ("config_path", "config_name"))
        if folder is not None and name is not None:
            yield normpath(f"{PurePosixPath(parsed.path).parent}/{folder}"), name.removesuffix(".yaml")


def _marked(found: list[Setting]) -> list[Setting]:
    """Settings with a mark on those whose place a later one takes: of the same key, or a plain value for a section."""
    later: set[tuple[Key, str]] = set()
    marked = []
    for setting in reversed(found):
        above = ((setting.key[:depth], setting.choice) for depth in range(1, len(setting.key) + 1))
        if setting.kind != "mount" and any(where in later for where in above):
            setting = replace(setting, overridden=True)
        if setting.kind == "value" and setting.value != "{}":
            later.add((setting.key, setting.choice))
        marked.append(setting)
    return marked[::-1]


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    """Keys and values of a mapping with plain keys; nothing of anything else."""
    from yaml import MappingNode, ScalarNode

    if not isinstance(node, MappingNode):
        return []
    return [(key, value) for key, value in node.value if isinstance(key, ScalarNode)]


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    from yaml import SequenceNode

    return list(node.value) if isinstance(node, SequenceNode) else []


def _brief(node: yaml.Node) -> str:
    """A value as it is written, on one line."""
    from yaml import MappingNode, ScalarNode

    if isinstance(node, ScalarNode):
        text = " ".join(str(node.value).split())
        quoted = node.style in ("'", '"')
        return f'"{text}"' if quoted and "${" not in text else text or "null"
    if isinstance(node, MappingNode):
        return f"{{{', '.join(f'{_brief(key)}: {_brief(value)}' for key, value in node.value)}}}"
    return f"[{', '.join(_brief(item) for item in _items(node))}]"
