"""What an expression stands for, as far as it is plain: the values that resolution computes with.

Apart from resolution because these are plain data and rules of the language; nothing here knows the store. Reasons are
written ``general: particular``, so that they can be counted by what stands before the colon.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotator.index.resolution import Entry, Source

KEYED = frozenset(
    ("dict", "Dict", "defaultdict", "DefaultDict", "OrderedDict", "Mapping", "MutableMapping", "WeakValueDictionary")
)
"""Containers whose items are found by keys: their type arguments are the key's and the item's."""

GENERIC = KEYED | frozenset(
    (
        "list", "List", "set", "Set", "frozenset", "FrozenSet", "tuple", "Tuple", "deque", "Deque", "Sequence",
        "MutableSequence", "Iterable", "Iterator", "Collection", "AbstractSet", "MutableSet", "Generator",
        "AsyncIterator", "AsyncIterable", "AsyncGenerator", "ContextManager", "AbstractContextManager",
        "AbstractAsyncContextManager", "AsyncContextManager", "ValuesView", "KeysView", "Container", "Reversible",
        "Counter", "WeakSet", "Queue",
    )
)  # fmt: skip
"""Containers whose type arguments say what is inside."""

AWAITED = {"Awaitable": 0, "Future": 0, "Task": 0, "Coroutine": 2}
"""What an ``await`` gives: which of the type arguments."""

BUILT_IN = {
    "List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "FrozenSet": "frozenset", "Type": "type",
    "Text": "str",
}  # fmt: skip
WRAPPERS = frozenset(
    ("Optional", "Annotated", "ClassVar", "Final", "Required", "NotRequired", "InitVar", "ReadOnly", "Unpack", "Ref")
)
"""Annotations that mean what their first argument means."""


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression stands for, as far as it is plain.

    ``kind``: ``entry`` (a definition), ``instance`` (of the class ``entry``), ``super`` (the bases of the class
    ``entry``), ``module`` (``name`` in ``pin``), ``external`` and ``external instance`` (``name``), ``callable`` (what
    a call gives is its one item), ``union`` (one of its items), ``none``, ``parameter`` (the one called ``name`` of
    ``entry``), ``unknown``.
    ``items`` are what a container holds: of a tuple each, of a dictionary keys and items, else the one kind of item.
    ``owner`` is the object or class that a method was taken from. ``sure`` is false once a step was inferred rather
    than followed; ``why`` is the reason of an unknown or unsure one.
    """

    kind: str
    file: Source | None = None
    entry: Entry | None = None
    name: str = ""
    pin: str = ""
    sure: bool = True
    why: str = ""
    items: tuple[Value, ...] = ()
    owner: Value | None = None

    def unsure(self, why: str) -> Value:
        """The same, marked as inferred."""
        return replace(self, sure=False, why=self.why or why)

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


NONE = Value("none")
MANY = 8
"""How many classes an object is remembered to be one of."""


def unknown(why: str) -> Value:
    """A value of which nothing is known, and why."""
    return Value("unknown", why=why, sure=False)


def made(name: str, *items: Value) -> Value:
    """An object of a class of the language or of its library."""
    return Value("external instance", name=name, items=items)


STRING = made("builtins.str")
GIVEN = {
    "builtins.str": "capitalize casefold center expandtabs format join ljust lower lstrip removeprefix removesuffix "
    "replace rjust rstrip strip swapcase title translate upper zfill bytes.decode input repr chr hex ascii "
    "os.getenv os.getcwd os.path.join os.path.dirname os.path.basename os.path.abspath os.path.expanduser json.dumps",
    "builtins.int": "len ord hash id str.count str.find str.index str.rfind list.count list.index os.getpid "
    "time.time_ns",
    "builtins.float": "time.time time.perf_counter time.monotonic",
    "builtins.bool": "str.startswith str.endswith str.isdigit str.isidentifier isinstance issubclass callable hasattr "
    "any all os.path.exists os.path.isfile os.path.isdir",
    "builtins.bytes": "str.encode",
    "re.Pattern": "re.compile",
    "re.Match": "re.match re.search re.fullmatch re.Pattern.match re.Pattern.search re.Pattern.fullmatch",
    "logging.Logger": "logging.getLogger",
    "io.TextIOWrapper": "open",
    "asyncio.AbstractEventLoop": "asyncio.get_event_loop asyncio.get_running_loop asyncio.new_event_loop",
}
"""What functions of the language and its library give, by the class; those without a module are built in."""

SPLIT = "split rsplit splitlines partition rpartition"


def results() -> dict[str, Value]:
    """``GIVEN`` the other way round, with the methods of strings."""
    found = {f"builtins.str.{name}": made("builtins.list", STRING) for name in SPLIT.split()}
    for kind, names in GIVEN.items():
        for name in names.split():
            whole = name
            if hasattr(str, name) and kind == "builtins.str":
                whole = f"builtins.str.{name}"
            elif "." not in name or name.partition(".")[0] in ("str", "list", "bytes"):
                whole = f"builtins.{name}"
            found[whole] = made(kind)
    return found


RESULTS = results()


def is_class(value: Value) -> bool:
    """Whether a value is a class."""
    return value.kind == "entry" and value.entry is not None and value.entry.kind == "class"


def place(value: Value) -> tuple[object, ...]:
    """What tells two values apart by where they lead."""
    if value.entry is not None and value.file is not None:
        return value.kind, value.file.number, value.entry.ordinal, value.name
    return value.kind, value.pin, value.name


def either(values: Iterable[Value], why: str) -> Value:
    """One of several values: ``None`` and what is unknown are left out, and make it unsure; ``why`` it is not plain."""
    flat = [item for value in values for item in (value.items if value.kind == "union" else (value,))]
    known = {place(value): value for value in flat if value.kind not in ("unknown", "none")}
    if not known:
        return next((value for value in flat if value.kind == "unknown"), NONE if flat else unknown(why))
    sure = all(value.kind != "unknown" for value in flat)
    if len(known) == 1:
        (one,) = known.values()
        rich = next((value for value in flat if value.items and place(value) == place(one)), one)
        return rich if sure else rich.unsure(why)
    return Value("union", items=tuple(known.values())[:MANY], sure=False, why=why)


def out_of(value: Value, item: Value) -> Value:
    """An item of a container; it is no surer than the container."""
    return item if value.sure or item.kind in ("unknown", "none") else item.unsure(value.why)


def inside(value: Value) -> Value:
    """What iterating over a container of the language gives."""
    if value.kind == "external instance" and value.items:
        plain = value.last not in ("tuple", "Tuple")
        return out_of(value, value.items[0] if plain else either(value.items, "an item of a tuple"))
    return unknown("an item of a container")


def part(value: Value, index: int, count: int) -> Value:
    """What the target at ``index`` of ``count`` gets when a value is unpacked."""
    if value.kind == "external instance" and value.last in ("tuple", "Tuple") and len(value.items) == count:
        return out_of(value, value.items[index])
    if value.kind == "external instance" and value.last in ("tuple", "Tuple") and len(value.items) != 1:
        return unknown("it is unpacked from a tuple whose items are not plain")
    return inside(value)


def top_level(text: str, separator: str) -> list[str]:
    """Parts of ``text`` between separators that no bracket or string encloses."""
    if separator not in text:
        return [text.strip()] if text.strip() else []
    parts, depth, quote, last = [], 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[last:index].strip())
            last = index + 1
    parts.append(text[last:].strip())
    return [part for part in parts if part]
