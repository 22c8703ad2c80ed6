"""PyTorch's own operators, from the YAML files that its code is generated from: schemas, kernels, derivatives.

These files are no sources to the index and lie in the pin's tree; they are large, so an entry is found by its line and
only that is parsed. The kernels' bodies are not in the wheel, but their generated declarations are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FUNCTIONS = "torchgen/packaged/ATen/native/native_functions.yaml"
DERIVATIVES = "torchgen/packaged/autograd/derivatives.yaml"
NAME = re.compile(rb"^- (?:func|name): ([\w.]+)\(", re.M)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of such a file: its schema, and what it says, each with its line."""

    schema: str
    line: int
    fields: dict[str, tuple[str, int]] = field(default_factory=dict)
    dispatch: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``name.overload``."""
        return self.schema.partition("(")[0]


@cache
def text(path: Path) -> bytes:
    """The bytes of a file; empty where there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def entries(path: Path, name: str, overload: str | None = None) -> Iterator[Entry]:
    """The entries of an operator: of one overload, or of all."""
    data = text(path)
    last = rb"(?:\.\w+)?" if overload is None else re.escape(f".{overload}").encode() if overload else b""
    for match in re.finditer(rb"^- (?:func|name): " + re.escape(name).encode() + last + rb"\(", data, re.M):
        end = data.find(b"\n- ", match.end())
        yield parsed(data[match.start() : end if end >= 0 else len(data)], data.count(b"\n", 0, match.start()) + 1)


def parsed(entry: bytes, line: int) -> Entry:
    """One entry, by its nodes, which know their lines."""
    import yaml

    root = yaml.compose(entry.decode("utf-8", "replace"), yaml.SafeLoader)
    assert root is not None, "an entry is a list of one mapping"
    node = root.value[0]
    schema, fields, dispatch = "", {}, {}
    for key, value in node.value:
        at = line + key.start_mark.line
        if key.value in ("func", "name"):
            schema = value.value
        elif key.value == "dispatch":
            dispatch = {keys.value: (kernel.value, line + keys.start_mark.line) for keys, kernel in value.value}
        elif isinstance(value, yaml.ScalarNode):
            fields[key.value] = (" ".join(value.value.split()), at)
        elif isinstance(value, yaml.SequenceNode):
            fields[key.value] = (", ".join(str(one.value) for one in value.value), at)
    return Entry(schema, line, fields, dispatch)


def generated_from(path: Path, name: str) -> Entry | None:
    """The entry that has an operator generated besides: its ``autogen`` names it."""
    data = text(path)
    match = re.search(rb"^  autogen:.*[ ,]" + re.escape(name).encode() + rb"(?=[,\s])", data, re.M)
    if match is None:
        return None
    begin = data.rfind(b"\n- ", 0, match.start()) + 1
    end = data.find(b"\n- ", match.end())
    return parsed(data[begin : end if end >= 0 else len(data)], data.count(b"\n", 0, begin) + 1)


def names(path: Path) -> set[str]:
    """The names of all operators of the file, without overloads."""
    return {name.decode().partition(".")[0] for name in NAME.findall(text(path))}
