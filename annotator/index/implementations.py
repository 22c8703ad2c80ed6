"""What derives from a class, and what stands in for a method of it: over all pins, the nearest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from annotator.errors import IndexFileError
from annotator.index.model import Definition

if TYPE_CHECKING:
    from annotator.index.lookup import Index


@dataclass(frozen=True)
class Implementation:
    """A class below another one, ``steps`` away, and what it has for the member that was asked for.

    ``definition`` is its own method where it ``overrides``, else what it inherits; of a class that was asked for, the
    class itself. ``of`` is the class that derives.
    """

    of: Definition
    definition: Definition
    steps: int
    overrides: bool


def implementations(index: Index, definition: Definition) -> list[Implementation]:
    """The classes that derive from a class (or from that of a method), with what each has for the method.

    Nearest first: fewest steps, then the pin of what was asked for, then by symbol.

    Raises:
        IndexFileError: neither a class nor a method of Python.
    """
    if definition.language != "python" or definition.kind not in ("class", "method", "attribute"):
        found = f"a {definition.kind} of {definition.language}"
        raise IndexFileError(definition.symbol, expected="a class or a method of Python", found=found)
    program, hierarchy = index.resolver.program, index.resolver.flows.hierarchy
    source = program.source(index.resolver.file(definition.pin, definition.path)[0])
    whole = definition.kind == "class"
    owner = definition.qualname if whole else definition.qualname.rpartition(".")[0]
    classes = [entry for entry in source.entries.get(owner, ()) if entry.kind == "class"]
    made = []
    for depth, place, child in hierarchy.levels(source, classes[0]) if classes else ():
        if whole:
            made.append(Implementation(place.definition(child), place.definition(child), depth, False))
            continue
        value = program.class_member(place, child, definition.name)
        if value.file is not None and value.entry is not None:
            own = value.file is place and value.entry.qualname == f"{child.qualname}.{definition.name}"
            made.append(Implementation(place.definition(child), value.file.definition(value.entry), depth, own))
    return sorted(made, key=lambda one: (one.steps, one.of.pin != definition.pin, one.of.symbol))
