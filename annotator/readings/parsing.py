"""From the text of a reading to its steps. Apart from rendering, so that anchors and checks need no Markdown engine.

The grammar is that of `pymdownx.blocks`, which renders the same text later: a block opens with three or more slashes
and a name, closes at the first line with as many slashes, takes its options from the lines that follow the head at
once and are indented by four spaces or more (YAML), and is not seen inside a code fence. What that engine would leave
in the page as plain text without a word (an option with a misspelt name, say) is an error here, with the line it
stands in.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from annotator.errors import ReadingError, did_you_mean, near_matches
from annotator.workspace import Workspace

BLOCKS = ("step", "contract", "concepts")
"""The blocks that are ours: an anchor with its note, the page of a contract, and the map of all contracts."""
OPTIONS = ("from", "to", "contract", "minimal", "id", "title", "runs", "fold")
"""What a step may say about itself beside its symbol. ``runs`` names the process that executes it (driver, worker,
engine); ``fold: none`` keeps its plumbing in sight, because the note is about it."""

_HEAD = re.compile(r"[ ]{0,3}(/{3,})[ ]*([\w-]+)[ ]*(?:\|[ ]*(.*?)[ ]*)?")
_CLOSE = re.compile(r"[ ]{0,3}(/{3,})[ ]*")
_OPTION = re.compile(r"[ ]{4,}(?!\s).+")
_FENCE = re.compile(r"[ ]*(`{3,}|~{3,})[^`]*")
_SYMBOL = re.compile(r"[\w-]+:[^\s:][^\s]*")
_ID = re.compile(r"[A-Za-z][\w-]*")
_TITLE = re.compile(r"#[ ]+(.+?)[ ]*#*")


@dataclass(frozen=True)
class Step:
    """An anchor asked for, and a note.

    Attributes:
        reading: the reading's path, as `Reading.path`.
        line: the line of the block's head; ``last`` that of its closing slashes.
        symbol: ``pin:qualified.name``.
        begin, end: the quotes of the options ``from`` and ``to``.
        options: all options as written; ``places`` holds the line of each.
        note: Markdown.
        id: stable within the reading; the page has ``#step-<id>``.
    """

    reading: str
    line: int
    symbol: str
    begin: str | None
    end: str | None
    options: Mapping[str, str]
    note: str
    id: str
    last: int = 0
    places: Mapping[str, int] = field(default_factory=dict)

    @property
    def pin(self) -> str:
        """The name of the pin that the symbol lies in."""
        return self.symbol.partition(":")[0]

    @property
    def key(self) -> str:
        """What the step is called in ``anchors.lock``: ``verl/grpo-advantage#the-id``."""
        return f"{self.reading.removeprefix('walkthroughs/').removesuffix('.md')}#{self.id}"

    def place(self, option: str = "") -> str:
        """``walkthroughs/verl/x.md:41``, the line of the option if it is given, else of the head."""
        return f"{self.reading}:{self.places.get(option, self.line)}"


@dataclass(frozen=True)
class Reading:
    """One Markdown page; a sequence of steps. ``path`` is relative to the workspace, with forward slashes."""

    path: str
    title: str
    steps: tuple[Step, ...]
    text: str

    @property
    def name(self) -> str:
        """``verl/grpo-advantage``: the path within ``walkthroughs/``, without the suffix."""
        return self.path.removeprefix("walkthroughs/").removesuffix(".md")


@dataclass(frozen=True)
class _Block:
    line: int
    last: int
    name: str
    argument: str
    body: tuple[str, ...]


def parse(text: str, path: str) -> Reading:
    """The reading that ``text`` is; ``path`` names it in errors.

    Raises:
        ReadingError: no title; a block that is not closed, or closed without being open; a step without symbol or
            note; an
            option that is unknown, given twice, or not text; YAML that cannot be read; an id given twice.
    """
    lines = lines_of(text)
    live = [not fenced for fenced in fences(lines)]
    steps = _named([_step(block, path) for block in _blocks(lines, live, path) if block.name == "step"])
    return Reading(path, _title(lines, live, path), steps, text)


def load(workspace: Workspace) -> list[Reading]:
    """All readings of the workspace, by path. A page without a step (an index, a comparison) is a reading too.

    Raises:
        ReadingError: as `parse`, or a file is not UTF-8.
    """
    return [read_page(workspace, name) for name in paths(workspace)]


def paths(workspace: Workspace) -> list[str]:
    """The paths of all readings, relative to the workspace, sorted."""
    return sorted(file.relative_to(workspace.root).as_posix() for file in workspace.readings.rglob("*.md"))


def read_page(workspace: Workspace, path: str) -> Reading:
    """One page. Raises `ReadingError` as `load` does."""
    try:
        return parse((workspace.root / path).read_text(encoding="utf-8"), path)
    except UnicodeDecodeError as error:
        raise ReadingError(path, expected="UTF-8", found=f"a wrong byte at {error.start}") from error


def lines_of(text: str) -> list[str]:
    """The lines of a page as Python-Markdown and editors count them; `str.splitlines` would also cut at form feeds."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def fences(lines: list[str]) -> list[bool]:
    """For each line, whether it lies in a code fence. A fence that never closes is none, as in pymdownx."""
    inside = [False] * len(lines)
    at = 0
    while at < len(lines):
        match = _FENCE.fullmatch(lines[at])
        end = _fence_end(lines, at, match.group(1)) if match else None
        if end is not None:
            inside[at : end + 1] = [True] * (end + 1 - at)
        at = at + 1 if end is None else end + 1
    return inside


def _fence_end(lines: list[str], start: int, fence: str) -> int | None:
    return next((n for n in range(start + 1, len(lines)) if lines[n].strip() == fence), None)


def _title(lines: list[str], live: list[bool], path: str) -> str:
    for line, alive in zip(lines, live, strict=True):
        match = _TITLE.fullmatch(line) if alive else None
        if match:
            return match.group(1)
    raise ReadingError(f"{path}:1", expected="a title, '# …'", found="none")


def _blocks(lines: list[str], live: list[bool], path: str) -> Iterator[_Block]:
    """The blocks of the page in order. Blocks inside a step belong to its note, and are not looked into."""
    at = 0
    while at < len(lines):
        head = _HEAD.fullmatch(lines[at]) if live[at] else None
        if head:
            _known(head.group(2), f"{path}:{at + 1}")
            end = _close(lines, live, at, len(head.group(1)), path)
            yield _Block(at + 1, end + 1, head.group(2).lower(), head.group(3) or "", tuple(lines[at + 1 : end]))
            at = end
        elif live[at] and _CLOSE.fullmatch(lines[at]):
            raise ReadingError(
                f"{path}:{at + 1}", expected="text or the head of a block", found="slashes that close nothing"
            )
        at += 1


def _close(lines: list[str], live: list[bool], start: int, slashes: int, path: str) -> int:
    for number in range(start + 1, len(lines)):
        match = _CLOSE.fullmatch(lines[number]) if live[number] else None
        if match and len(match.group(1)) == slashes:
            return number
        head = _HEAD.fullmatch(lines[number]) if live[number] else None
        if head and len(head.group(1)) == slashes:
            remedy = f"close it with {'/' * slashes}, or give the inner block another number of slashes"
            raise ReadingError(
                f"{path}:{start + 1}",
                expected="the block to close",
                found=f"another one at line {number + 1}",
                remedy=remedy,
            )
    raise ReadingError(
        f"{path}:{start + 1}",
        expected="the block to close",
        found="the end of the page",
        remedy=f"close it with {'/' * slashes}",
    )


def _known(name: str, place: str) -> None:
    near = near_matches(name.lower(), BLOCKS)
    if near and name.lower() not in BLOCKS:
        raise ReadingError(place, expected="a block's name", found=repr(name), remedy=did_you_mean(near))


def _step(block: _Block, path: str) -> Step:
    place = f"{path}:{block.line}"
    if not _SYMBOL.fullmatch(block.argument):
        found = repr(block.argument) if block.argument else "none"
        raise ReadingError(place, expected="a symbol, 'step | pin:qualified.name'", found=found)
    count = next((n for n, line in enumerate(block.body) if not _OPTION.fullmatch(line)), len(block.body))
    options, places = _options(block.body[:count], block.line, path)
    note = "\n".join(block.body[count:]).strip("\n")
    if not note.strip():
        raise ReadingError(
            place, expected="a note", found="none", remedy="say why here, why so, and what breaks otherwise"
        )
    if "to" in options and "from" not in options:
        raise ReadingError(f"{path}:{places['to']}", expected="'from' beside 'to'", found="only 'to'")
    return Step(
        path,
        block.line,
        block.argument,
        options.get("from"),
        options.get("to"),
        options,
        note,
        options.get("id", ""),
        block.last,
        places,
    )


def _options(lines: tuple[str, ...], head: int, path: str) -> tuple[dict[str, str], dict[str, int]]:
    """Options and the line of each. ``yaml.compose`` instead of a load, for its marks."""
    try:
        node = yaml.compose(textwrap.dedent("\n".join(lines)), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = head + 1 + (min(mark.line, len(lines) - 1) if mark else 0)
        raise ReadingError(
            f"{path}:{line}", expected="options as YAML", found=_plain(error), remedy="quote the value"
        ) from error
    if node is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode):
        raise ReadingError(f"{path}:{head + 1}", expected="options as 'name: value'", found="no mapping")
    options: dict[str, str] = {}
    places: dict[str, int] = {}
    for key, value in node.value:
        place = head + 1 + key.start_mark.line
        _one_option(key.value, value, options, f"{path}:{place}")
        options[key.value], places[key.value] = value.value, place
    return options, places


def _one_option(name: object, value: yaml.Node, seen: Mapping[str, str], place: str) -> None:
    if not isinstance(name, str) or name not in OPTIONS:
        remedy = did_you_mean(near_matches(str(name), OPTIONS)) or f"a step may have {', '.join(OPTIONS)}"
        raise ReadingError(place, expected="an option of a step", found=repr(name), remedy=remedy)
    if name in seen:
        raise ReadingError(place, expected=f"{name!r} once", found="it twice")
    if not isinstance(value, yaml.ScalarNode) or not value.value.strip():
        found = "none" if isinstance(value, yaml.ScalarNode) else "a list or mapping"
        raise ReadingError(place, expected=f"text for {name!r}", found=found)
    if value.tag != "tag:yaml.org,2002:str":
        raise ReadingError(place, expected=f"text for {name!r}", found=value.value, remedy="put it in quotes")
    if name == "fold" and value.value != "none":
        raise ReadingError(
            place, expected="'none' for 'fold'", found=repr(value.value), remedy="leave it out to fold plumbing"
        )
    if name == "id" and not _ID.fullmatch(value.value):
        raise ReadingError(place, expected="an id of letters, digits, '-' and '_'", found=repr(value.value))


def _plain(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).replace("\n", " ")


def _named(steps: list[Step]) -> tuple[Step, ...]:
    """The steps with an id each: the one they ask for, else made from the last part of the symbol."""
    taken: dict[str, int] = {}
    for step in steps:
        if step.id in taken:
            raise ReadingError(
                step.place("id"), expected="an id of its own", found=f"{step.id!r}, which line {taken[step.id]} has"
            )
        if step.id:
            taken[step.id] = step.line
    return tuple(step if step.id else _with_id(step, taken) for step in steps)


def _with_id(step: Step, taken: dict[str, int]) -> Step:
    last = re.split(r"[.:]+", step.symbol)[-1]
    slug = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-") or "step"
    names = (slug if n == 1 else f"{slug}-{n}" for n in range(1, len(taken) + 3))
    name = next(candidate for candidate in names if candidate not in taken)
    taken[name] = step.line
    return Step(**{**step.__dict__, "id": name})
