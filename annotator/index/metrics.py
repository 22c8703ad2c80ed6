"""Where a metric is logged, and from there back to the line that computes it: ``actor/pg_clipfrac``, ``kl``.

A name is logged where it is a key under which a value is put (``{"a/b": x}``, ``metrics["a/b"] = x``,
``metrics["a/b"].append(x)``), or where it is handed to something that records (``Gauge(name="vllm:…")``,
``log_metric("a", x)``). Names that are put together (f-strings, ``prefix + name``) match by pattern; so does a prefix
that a function puts before the names of a dictionary. ``following`` goes back from the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from annotator.errors import near_matches
from annotator.index.following import Follower, Hop, entry_value
from annotator.index.lookup import ASIDE
from annotator.index.parsed import Parsed, arguments, files_with, function_around, keyword, walk

if TYPE_CHECKING:
    from tree_sitter import Node

    from annotator.index.lookup import Index

RECORDS = re.compile(
    r"metric|(^|[._])logs?($|[._\[(])|logg|(^|[._])stats?($|[_\[])|stats$|record|report|summary|timing|scalar",
    re.IGNORECASE,
)
MEASURES = re.compile(r"gauge|counter|histogram|summary|metric|log|record|report|scalar|timer|track", re.IGNORECASE)
OBSERVES = ("set", "inc", "dec", "observe", "info", "set_to_current_time")
READS = frozenset(
    ("get", "pop", "setdefault", "startswith", "endswith", "replace", "split", "join", "len", "removeprefix")
)
WORDS = ("metrics", "_metrics", "metric", "metric_dict", "stats", "prefix")
"""What files speak of that put names of metrics together."""

JOINED = re.compile(rb"\bf\"([^\"\n]*)\"|\bf'([^'\n]*)'")
LEADING = re.compile(rb"f\"(\{[^\"\n]*)\"|f'(\{[^'\n]*)'")
"""Strings with holes; those that begin with one, so that no posting tells of them."""

HOLE = re.compile(r"(\{[^{}]*\})")
FEWEST, MUCH = 3, 0.6
"""How much of a name that is put together must be written out: so many characters, and a third of it; and so
much of what the best of such names writes out."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One place that logs a metric, with the way back to what computes it.

    ``name`` is written as in the source: ``rewards/{reward_func_name}/mean`` where it is put together.
    """

    name: str
    how: str
    into: str
    pin: str
    path: str
    line: int
    column: int
    text: str
    within: str
    certainty: str
    reason: str
    hops: tuple[Hop, ...] = ()


def measured(index: Index, name: str, pin: str | None = None) -> list[Logged]:
    """Where a metric is logged, whole names first; empty if nowhere."""
    question = _Question(index, name, pin)
    found = list(question.whole()) or list(question.joined()) or list(question.prefixed())
    once = {(one.pin, one.path, one.line, one.column): one for one in reversed(found)}
    return sorted(once.values(), key=lambda one: (bool(ASIDE.search(one.path)), one.pin, one.path, one.line))


def near(index: Index, name: str, pin: str | None = None) -> tuple[str, ...]:
    """Metrics that are spelt much like a name that none has."""
    head = re.split(r"[/:_]", name)[0][:3] or name[:1]
    query = "SELECT DISTINCT name FROM postings WHERE name >= ? AND name < ?"
    known = {text[1:] for (text,) in index.connection.execute(query, (f'"{head}', f'"{head}\U0010ffff'))}
    tail = name.rpartition("/")[2]
    if "/" in name:
        rest = index.connection.execute("SELECT DISTINCT name FROM postings WHERE name GLOB ?", (f'"*/{tail}',))
        known |= {text[1:] for (text,) in rest}
    question = _Question(index, name, pin)
    likely = near_matches(name, known, limit=12)
    return tuple(each for each in likely if any(True for _ in question.sites_of(each)))[:3]


@dataclass(frozen=True)
class _Site:
    """A key under which something is logged: its node, its written form, and what it is logged by."""

    parsed: Parsed
    key: Node
    name: str
    how: str
    into: str
    value: Node | None


class _Question:
    """One name asked for."""

    def __init__(self, index: Index, name: str, pin: str | None, follower: Follower | None = None) -> None:
        self.index, self.name, self.pin = index, name, pin
        self.follower = follower or Follower(index, self.places)

    # Ways a name may be written

    def whole(self) -> Iterator[Logged]:
        """Places that log just this name; a name with holes is compared as it is written."""
        if "{" in self.name:
            for site in self.assembled():
                if _holes(site.name) == _holes(self.name):
                    yield self.logged(site, "inferred", "its name is put together as asked")
            return
        for site in self.sites_of(self.name):
            yield self.logged(site, "exact", f"a key of {site.into}" if site.into else "")

    def joined(self) -> Iterator[Logged]:
        """Places whose name is put together and may be this one."""
        fitting = []
        for site in self.assembled():
            if (parts := self.parts(site)) is not None:
                known = {part for part in parts if part and any(True for _ in self.renamed(site.parsed, part))}
                fitting.append((site, known, len(self.name) - sum(len(part) for part in parts if part not in known)))
        most = max((written for _, _, written in fitting), default=0)
        for site, known, written in fitting:
            if written >= MUCH * most:
                made = self.logged(site, "inferred", f"its name is put together: {site.name}")
                behind = (
                    hop for part in known for inner in self.renamed(site.parsed, part) for hop in self.named(inner)
                )
                yield replace(made, hops=(*made.hops, *behind))

    def parts(self, site: _Site) -> list[str] | None:
        """What stands for the holes of a name that is put together, if it may be the one asked for."""
        match = re.fullmatch(_pattern(site), self.name)
        if match is None:
            return None
        written = len(self.name) - sum(map(len, match.groups()))
        likely = 3 * written >= len(self.name) or all(
            not part or self.index.resolver.posted(f'"{part}') for part in match.groups()
        )
        return list(match.groups()) if written >= FEWEST and likely else None

    def renamed(self, parsed: Parsed, name: str) -> Iterator[_Site]:
        """Where the same file logs the name that another one is made of."""
        for string in parsed.strings([name]):
            yield from sites(parsed, string, name)

    def named(self, site: _Site) -> Iterator[Hop]:
        """The way back from there."""
        yield from self.follower.hop(site.parsed, site.key, False, f"{site.name}, of which the name is made")
        yield from self.follower.follow(site.parsed, site.value, False)

    def prefixed(self) -> Iterator[Logged]:
        """Places that log the end of the name, where its beginning is a prefix that something is given."""
        for site, reason in self.behind_prefix():
            yield self.logged(site, "inferred", reason)

    def behind_prefix(self) -> Iterator[tuple[_Site, str]]:
        """``prefixed``, without the ways back."""
        for cut in (match.end() for match in re.finditer("/", self.name)):
            prefix, rest = self.name[:cut], self.name[cut:]
            given = dict(self.given(prefix)) if rest else {}
            for site in self.sites_of(rest) if given else ():
                if site.parsed.pin in given:
                    yield site, f"put together: {prefix} may be put before it by {given[site.parsed.pin]}"

    def given(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Pins, and places that hand a prefix over."""
        for parsed in self.files(f'"{prefix}'):
            for string in parsed.strings([prefix]):
                call = _call_with(string)
                called = parsed.text(call.child_by_field_name("function")) if call is not None else ""
                if call is not None and len(arguments(call)) > 1 and called.rpartition(".")[2] not in READS:
                    yield parsed.pin, f"{called} at {parsed.path}:{parsed.place(string)[0]}"

    # Places

    def files(self, *words: str) -> Iterator[Parsed]:
        """Files in which one of the words occurs."""
        for pin, path in files_with(self.index, *words, pin=self.pin):
            if (parsed := self.follower.parsed(pin, path)) is not None:
                yield parsed

    def sites_of(self, name: str) -> Iterator[_Site]:
        """Places that log a name that is written out."""
        for parsed in self.files(f'"{name}'):
            for string in parsed.strings([name]):
                yield from sites(parsed, string, name)

    def assembled(self) -> Iterator[_Site]:
        """Places that log a name that is put together and begins or goes on like the one asked for."""
        begins = {f'"{self.name[:end]}' for end in range(2, len(self.name) + 1)}
        alike = set(files_with(self.index, *begins, pin=self.pin))
        for pin, path in sorted(alike.union(files_with(self.index, *WORDS, pin=self.pin))):
            forms = JOINED if (pin, path) in alike else LEADING
            if not _may_join(self.index.resolver.read(pin, path), self.name, forms):
                continue
            parsed = self.follower.parsed(pin, path)
            for node in walk(parsed.tree.root_node, "interpolation", "binary_operator") if parsed is not None else ():
                key = node if node.type == "binary_operator" else node.parent
                if parsed is not None and key is not None and (written := spelt(parsed, key)):
                    yield from sites(parsed, key, written)

    def places(self, pin: str, name: str) -> Iterator[tuple[Parsed, Node, Node | None]]:
        """Where a pin logs a name, or else its end behind a prefix that is put before it, for the follower."""
        question = self if (pin, name) == (self.pin, self.name) else _Question(self.index, name, pin, self.follower)
        found = list(question.sites_of(name)) or [site for site, _ in question.behind_prefix()]
        for site in found:
            if not ASIDE.search(site.parsed.path):
                yield site.parsed, site.key, site.value

    def logged(self, site: _Site, certainty: str, reason: str) -> Logged:
        """A place with the way back from its value."""
        self.follower.start(site.parsed, site.key)
        hops = tuple(self.behind(site))
        where = (site.parsed.pin, site.parsed.path, *site.parsed.place(site.key))
        text, within = site.parsed.line(site.key), site.parsed.within(site.key)
        return Logged(site.name, site.how, site.into, *where, text, within, certainty, reason, hops)

    def behind(self, site: _Site) -> Iterator[Hop]:
        """The way back from what is logged."""
        if site.how != "instrument":
            yield from self.follower.follow(site.parsed, site.value)
            return
        for value in _observed(site.parsed, site.key):
            yield from self.follower.hop(site.parsed, value, False, "observed")
            yield from self.follower.follow(site.parsed, value, False)


def sites(parsed: Parsed, key: Node, name: str) -> Iterator[_Site]:
    """What the surroundings of a key log under it; through a variable, what its uses log."""
    value, into = entry_value(key), _container(parsed, key)
    if value is not None:
        if parsed.literal(value) is not None or (value.type in ("list", "dictionary") and not value.named_children):
            return
        if RECORDS.search(into) or re.search(r"[/:]", name):
            yield _Site(parsed, key, name, "entry", into, value)
        return
    above = key.parent
    if above is None:
        return
    if above.type == "assignment" and above.child_by_field_name("right") == key:
        target, function = above.child_by_field_name("left"), function_around(key)
        if target is not None and target.type == "identifier" and function is not None:
            for use in parsed.words(parsed.text(target), function):
                if use.start_byte > key.end_byte and entry_value(use) is not None:
                    yield _Site(parsed, use, name, "entry", _container(parsed, use), entry_value(use))
        return
    call = _call_with(key)
    called = parsed.text(call.child_by_field_name("function")) if call is not None else ""
    if call is None or not MEASURES.search(called) or called.rpartition(".")[2] in READS:
        return
    given = arguments(call)
    if keyword(parsed, call, "name") == key or (given[:1] == [key] and "documentation" in parsed.text(call)):
        yield _Site(parsed, key, name, "instrument", called, None)
    elif given[:1] == [key]:
        value = given[1] if len(given) > 1 else keyword(parsed, call, "value")
        yield _Site(parsed, key, name, "argument", called, value)


def spelt(parsed: Parsed, key: Node) -> str:
    """A name that is put together, with what is not written out in braces; empty if nothing is written out."""
    if key.type == "string":
        parts = [parsed.text(kid) for kid in key.named_children if kid.type in ("string_content", "interpolation")]
        return "".join(parts) if any(not part.startswith("{") for part in parts) else ""
    if key.type == "binary_operator" and any(kid.type == "+" for kid in key.children):
        sides = [key.child_by_field_name(side) for side in ("left", "right")]
        texts = [_side(parsed, side) for side in sides if side is not None]
        return "".join(texts) if any(not text.startswith("{") for text in texts) else ""
    return ""


def _side(parsed: Parsed, node: Node) -> str:
    return (parsed.literal(node) or spelt(parsed, node)) or "{" + parsed.text(node) + "}"


def _pattern(site: _Site) -> str:
    """What a name that is put together may be; a part that is a variable of plain strings is one of these."""
    options = {f"{{{name}}}": values for name, values in _literals(site).items()}
    made = []
    for part in HOLE.split(site.name):
        known = options.get(part)
        hole = "(.*)" if known is None else f"(?:{'|'.join(map(re.escape, known))})"
        made.append(hole if part.startswith("{") else re.escape(part))
    return "".join(made)


def _literals(site: _Site) -> dict[str, list[str]]:
    """The variables of a name that is put together whose bindings are all plain strings, with these."""
    found = {}
    for name in set(re.findall(r"\{(\w+)\}", site.name)):
        function = function_around(site.key)
        uses = site.parsed.words(name, function) if function is not None else ()
        use = next((node for node in uses if node.parent is not None and node.parent.type == "interpolation"), None)
        bound = site.parsed.bindings(use) if use is not None else []
        texts = [site.parsed.literal(one.value) if one.part is None else None for one in bound]
        if texts and all(text is not None for text in texts):
            found[name] = [text for text in texts if text is not None]
    return found


def _may_join(data: bytes, name: str, forms: re.Pattern[bytes]) -> bool:
    """Whether the text of a file puts a name together that may be this one: worth a parse."""
    for match in forms.finditer(data):
        written = (match[1] or match[2] or b"").decode("utf-8", "replace")
        if "{" in written and (_holes(written) == _holes(name) or _fits(written, name)):
            return True
    cuts = [match.start() for match in re.finditer(r"(?<=[/_:.-])", name[:-1])]
    parts = {part for cut in cuts for part in (name[:cut], name[cut:], name[cut - 1 :]) if len(part) >= FEWEST}
    return any(f"{quote}{part}{quote}".encode() in data for part in parts for quote in "\"'")


def _fits(written: str, name: str) -> bool:
    """Whether the written parts of a name with holes occur in a name in that order."""
    first, *parts = HOLE.split(written)
    at, letters = len(first), len(first)
    if not name.startswith(first):
        return False
    for part in parts[1::2]:
        found = name.find(part, at)
        if found < 0:
            return False
        at, letters = found + len(part), letters + len(part)
    return letters >= FEWEST and (not parts or name.endswith(parts[-1]))


def _holes(written: str) -> str:
    return HOLE.sub("{}", written)


def _container(parsed: Parsed, key: Node) -> str:
    """What the dictionary is called that a key is put into, or the call or function that it is handed to."""
    above = key.parent
    if above is not None and above.type == "subscript":
        return parsed.text(above.child_by_field_name("value"))
    node = above.parent if above is not None else None
    while node is not None:
        above = node.parent
        if above is None or above.type == "block":
            return ""
        if above.type == "assignment":
            return parsed.text(above.child_by_field_name("left"))
        if above.type == "call" and above.child_by_field_name("function") != node:
            return parsed.text(above.child_by_field_name("function"))
        if above.type == "return_statement":
            function = function_around(above)
            return parsed.text(function.child_by_field_name("name")) if function is not None else ""
        node = above
    return ""


def _call_with(key: Node) -> Node | None:
    """The call that a key is an argument of."""
    node = key.parent
    if node is not None and node.type == "keyword_argument":
        node = node.parent
    return node.parent if node is not None and node.type == "argument_list" else None


def _observed(parsed: Parsed, key: Node) -> Iterator[Node]:
    """The values that an instrument is given in its file: it is followed through variables to ``.set(x)``."""
    names, waiting = set(), [key]
    while waiting:
        target = _target(waiting.pop())
        name = target.text.decode() if target is not None and target.text is not None else ""
        if target is None or not name or name in names:
            continue
        names.add(name)
        for use in parsed.words(name.rpartition(".")[2]):
            holder = use.parent if use.parent is not None and use.parent.type == "attribute" and "." in name else use
            if holder.start_byte <= target.end_byte or parsed.text(holder) != name:
                continue
            call = _observing(holder)
            if call is not None:
                yield (arguments(call) or [call])[0]
            elif "." not in name and _target(holder) is not None and function_around(holder) == function_around(key):
                waiting.append(holder)


def _target(node: Node) -> Node | None:
    """What the statement around a node assigns to."""
    above = node.parent
    while above is not None and above.type not in ("block", "module"):
        if above.type == "assignment":
            left = above.child_by_field_name("left")
            while left is not None and left.type == "subscript":
                left = left.child_by_field_name("value")
            return left if left is not None and left.end_byte < node.start_byte else None
        above = above.parent
    return None


def _observing(holder: Node) -> Node | None:
    """The call that gives an instrument its value: ``x.set(v)``, ``x[i].labels(a).inc(v)``."""
    node = holder
    while node.parent is not None:
        above = node.parent
        if above.type == "call" and above.child_by_field_name("function") == node and node.type == "attribute":
            method = node.child_by_field_name("attribute")
            if method is not None and method.text is not None and method.text.decode() in OBSERVES:
                return above
        elif above.type not in ("attribute", "subscript") or above.named_children[0] != node:
            return None
        node = above
    return None
