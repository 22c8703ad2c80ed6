"""Who calls what: the calls of a definition, and those to it.

In Python, everything that enters a function counts (``sites``): calls, but also properties, operators, ``with``, the
constructors of a class, the wrappers of a decorated function, what a registry or a parameter may hold, overrides. What
is guessed is ``inferred`` and says why. In C++ a call is an identifier that leads to a definition and is followed by
arguments. Callers are found by asking those definitions that may be some, so both directions agree.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from annotator.index.languages import decode
from annotator.index.model import Call, Definition, Link, Use
from annotator.index.resolver import is_called
from annotator.index.store import digest_of

if TYPE_CHECKING:
    from annotator.index.lookup import Index
    from annotator.index.names import Entry, Source
    from annotator.index.sites import Edge

CALLABLE = frozenset(("function", "method", "class", "struct", "macro"))
MADE_BY = ("__init__", "__new__", "__post_init__")
"""The methods that making an object runs."""

REGISTERED_WITH = ("register", "register_impl", "register_kernel")
REGISTERING = re.compile(r"\.(?:register|register_impl|register_kernel)\b")
"""What a function calls that registers others with it, to be called in its stead."""

LONGEST = 16
"""How many lines above a function its decorators may begin."""

MOST = 200
"""Indirect callers that are asked: those that use a class whose operator is meant, a base, a registry."""

CACHE = """
CREATE TABLE IF NOT EXISTS calls(
  file INTEGER, ordinal INTEGER, generation TEXT NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY(file, ordinal)) WITHOUT ROWID
"""
KINDS = ("module", "class", "function", "method")


def callees(index: Index, definition: Definition) -> list[Call]:
    """The calls in the body of a definition that lead into the pins, in the order of the source."""
    return [call for call, _ in called(index, definition)]


def callers(index: Index, definition: Definition, limit: int | None = None) -> list[Call]:
    """Where a definition is called, in all pins, its own file first; a constructor is called where its class is."""
    found: dict[tuple[str, str, int, int], Call] = {}
    for call in _calls_to(index, definition):
        found.setdefault((call.pin, call.path, call.line, call.column), call)
        if limit is not None and len(found) >= limit:
            break
    return list(found.values())


def called(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition]]:
    """Calls of a definition, with what is called; a class calls what makes its objects."""
    if definition.kind in ("class", "struct"):
        yield from _constructors(index, definition)
    if definition.language == "python":
        yield from _entered(index, definition)
        yield from _registered_with(index, definition)
    elif definition.kind not in ("class", "struct"):
        for call, target, made in mentioned(index, definition):
            if made and target.kind in CALLABLE:
                yield call, target


def _entered(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition]]:
    """What a definition of Python enters."""
    if definition.kind not in KINDS:
        return
    resolver = index.resolver
    lines: list[str] | None = None
    for edge in _edges(index, definition):
        target = resolver.target(edge.file, edge.ordinal)
        if target is None or (target.kind not in CALLABLE and edge.certainty == "exact"):
            continue
        lines = lines or _lines(index, definition.pin, definition.path)
        text = lines[edge.line - 1].strip() if edge.line <= len(lines) else ""
        where = (definition.pin, definition.path, edge.line, edge.column)
        facts = (text, edge.certainty, edge.reason, (edge.first, edge.last))
        yield Call(definition.symbol, target.symbol, *where, *facts), target


def _edges(index: Index, definition: Definition) -> list[Edge]:
    """The edges of a definition of Python, found once and kept until the index changes, unless some were left out."""
    from annotator.index.sites import Edge, Sites

    resolver = index.resolver
    number = resolver.file(definition.pin, definition.path)[0]
    entry = _entry(resolver.program.source(number), definition)
    if entry is None:
        return []
    cache, digest = resolver.cache, digest_of(resolver.read(definition.pin, definition.path))
    key = (number, entry.ordinal, resolver.generation, digest)
    with suppress(sqlite3.OperationalError):
        cache.execute(CACHE)
    query = "SELECT body FROM calls WHERE file=? AND ordinal=? AND generation=? AND digest=?"
    if kept := cache.execute(query, key).fetchone():
        return [Edge(*one) for one in json.loads(zlib.decompress(kept[0]))]
    flow = resolver.flows.of(resolver.program.source(number))
    sites = Sites(resolver.flows, flow) if flow else None
    found = sites.of(entry) if sites else []
    if sites and not sites.complete:
        return found
    body = zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)
    with suppress(sqlite3.OperationalError):
        cache.execute("INSERT OR REPLACE INTO calls VALUES(?,?,?,?,?)", (*key, body))
    return found


def _entry(source: Source, definition: Definition) -> Entry | None:
    """A definition as the store has it."""
    return next((e for e in source.entries.get(definition.qualname, ()) if e.line == definition.line), None)


def _calls_to(index: Index, definition: Definition) -> Iterator[Call]:
    """Calls to a definition, from each definition that may call it."""
    asked: set[tuple[str, int]] = set()
    for candidate in candidates(index, definition):
        if (candidate.symbol, candidate.line) in asked:
            continue
        asked.add((candidate.symbol, candidate.line))
        for call in callees(index, candidate):
            if call.callee == definition.symbol:
                around = _around(index, call.pin, call.path, call.line)
                yield replace(call, caller=around.symbol) if around and candidate.kind != "class" else call


def candidates(index: Index, definition: Definition) -> Iterator[Definition]:
    """Definitions that may call one: around its uses and those of what leads to it, and its wrappers."""
    if definition.language != "python":
        yield from (around for use in index.resolver.each_use(definition) if (around := _user(index, use)))
        return
    yield from _using(index, definition)
    yield from _wrapping(index, definition)
    yield from itertools.islice(_indirect(index, definition), MOST)


def partial(index: Index, definition: Definition) -> bool:
    """Whether more places may call a definition indirectly than are asked, so that its callers may not be all."""
    return definition.language == "python" and any(itertools.islice(_indirect(index, definition), MOST, None))


def _indirect(index: Index, definition: Definition) -> Iterator[Definition]:
    """Definitions that use what leads to another one."""
    return itertools.chain.from_iterable(_using(index, other) for other in _leading(index, definition))


def _using(index: Index, definition: Definition) -> Iterator[Definition]:
    """Definitions around the uses of one, and what they hand it over to."""
    for use in index.resolver.each_use(definition):
        around = _user(index, use)
        if around is None:
            continue
        yield around
        if not use.called:
            for call, target in called(index, around):
                if call.lines[0] <= use.line <= call.lines[1] and target.symbol != definition.symbol:
                    yield target


def _user(index: Index, use: Use) -> Definition | None:
    return _around(index, use.pin, use.path, use.line)


def _around(index: Index, pin: str, path: str, line: int) -> Definition | None:
    """The innermost function, class or module around a line."""
    found = None
    for item in index.definitions(pin, path):
        if item.kind == "module" or (item.kind in KINDS and item.line <= line <= item.end_line):
            found = item
    return found


def _leading(index: Index, definition: Definition) -> Iterator[Definition]:
    """Definitions whose use may enter another one: its class, the methods that it overrides, its registry's readers."""
    resolver = index.resolver
    number = resolver.file(definition.pin, definition.path)[0]
    source = resolver.program.source(number)
    entry = _entry(source, definition)
    if entry is None:
        return
    owner = resolver.program.owner(source, definition.qualname.rpartition(".")[0])
    if owner is not None and owner.entry is not None:
        yield source.definition(owner.entry)
        for place, base in resolver.program.order(source, owner.entry)[0][1:]:
            for same in place.entries.get(f"{base.qualname}.{definition.name}", ())[:1]:
                yield place.definition(same)
        if definition.name in MADE_BY:
            for place, child in resolver.flows.hierarchy.subclasses(source, owner.entry):
                yield place.definition(child)
    yield from _readers(index, source, entry)
    for outer in definition.qualname.split(".")[:-1]:
        for place, item, _ in resolver.flows.hierarchy.decorated(outer):
            yield place.definition(item)


def _readers(index: Index, source: Source, entry: Entry) -> Iterator[Definition]:
    """What gives a definition out of a container that it stands in: a variable, or a function beside the registry."""
    from annotator.index.resolution import NAME

    flows = index.resolver.flows
    files = {source.number: source}
    for mark in entry.decorators.split("\n") if entry.decorators else ():
        head = NAME.match(mark)
        found = flows.program.dotted(source, entry.qualname.rpartition(".")[0], head[0]) if head else None
        if found is not None and found.file is not None:
            files[found.file.number] = found.file
    for file in files.values():
        flow = flows.of(file)
        for name in flow.stores if flow else ():
            for variable in file.entries.get(name, ()):
                yield file.definition(variable)
        for item in file.rows if file is not source or entry.decorators else ():
            if item.kind == "function" and item.qualname == item.name and flow and flow.gives(item, source, entry):
                yield file.definition(item)
    for variable in source.rows:
        if variable.kind in ("variable", "constant") and re.search(rf"\b{re.escape(entry.name)}\b", variable.signature):
            yield source.definition(variable)


def _wrapping(index: Index, definition: Definition) -> Iterator[Definition]:
    """The wrappers that the decorators of a definition make."""
    from annotator.index.values import Value

    resolver = index.resolver
    source = resolver.program.source(resolver.file(definition.pin, definition.path)[0])
    entry = _entry(source, definition)
    if entry is not None:
        for value in resolver.flows.wrappers(Value("entry", source, entry)):
            if value.file is not None and value.entry is not None:
                yield value.file.definition(value.entry)


def _registered_with(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition]]:
    """What is registered with a decorated function by its own decorators, so that calling it may call that.

    ``@op.register_impl("fast")`` over a function, where ``op`` is the definition; so does ``functools.singledispatch``.
    """
    if not definition.decorators or definition.kind != "function" or definition.language != "python":
        return
    for pin, path in index.resolver.files_with(definition.name, REGISTERED_WITH):
        for item in index.definitions(pin, path):
            written = next((text for text in item.decorators if f"{definition.name}.register" in text), None)
            if written is None or item.kind not in CALLABLE or not REGISTERING.search(written):
                continue
            links = [link for link in index.links(pin, path) if item.line - LONGEST < link.line < item.line]
            above = next((link for link in reversed(links) if link.name == definition.name), None)
            if above is not None and above.target == definition:
                where = (pin, path, above.line, above.column)
                why = "by what is registered with it, one of which is called"
                yield Call(definition.symbol, item.symbol, *where, f"@{written}", "inferred", why), item


def mentioned(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition, bool]]:
    """All that a definition names, as calls, and whether each is one."""
    lines = _lines(index, definition.pin, definition.path)
    for link in _links(index, definition):
        target, where = link.target, (definition.pin, definition.path, link.line, link.column)
        if target is None or where == (target.pin, target.path, target.line, target.column):
            continue  # a parameter list follows a definition's own name too
        call = Call(definition.symbol, target.symbol, *where, lines[link.line - 1].strip(), link.certainty, link.reason)
        yield call, target, is_called(lines, link, definition.language)


def _constructors(index: Index, definition: Definition) -> Iterator[tuple[Call, Definition]]:
    wanted = {f"{definition.qualname}.{name}" for name in MADE_BY}
    for item in index.definitions(definition.pin, definition.path):
        if item.qualname in wanted:
            where = (item.pin, item.path, item.line, item.column)
            yield Call(definition.symbol, item.symbol, *where, item.signature, "exact", "by making an object"), item


def _links(index: Index, definition: Definition) -> list[Link]:
    """Links in the body of a definition."""
    links = index.links(definition.pin, definition.path)
    return [link for link in links if definition.line <= link.line <= definition.end_line]


def _lines(index: Index, pin: str, path: str) -> list[str]:
    return decode(index.resolver.read(pin, path)).split("\n")
