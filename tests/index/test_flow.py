"""Which object a name holds where it is used: flow, containers, narrowing, bodies. A table of marked lines each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.index import Index
from tests.index.trees import indexed, meaning

LIB = """
from __future__ import annotations
import asyncio
import contextlib
import typing as t
from dataclasses import dataclass, field
from typing import Callable, Generic, Iterator, Optional, Self, TypeVar, Union, cast
T = TypeVar("T")
class Red:
    def go(self): pass
    def red(self): pass
class Blue:
    def go(self): pass
    def blue(self): pass
class DarkBlue(Blue):
    def blue(self): pass
Either = Union[Red, None]
@dataclass
class Point:
    left: Red
    many: list[Blue] = field(default_factory=list)
    named: dict[str, Blue] = field(default_factory=dict)
    kept: Optional[Red] = None
    def moved(self, by: int = 0, *, turn: bool = False) -> Self: return self
class Turned(Point):
    def turn(self): pass
class Bag:
    def __init__(self, *args, size: int = 1, **kwargs): pass
    def __iter__(self) -> Iterator[Red]: ...
    def __getitem__(self, index: int) -> Blue: ...
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def __call__(self, speed: int) -> Red: ...
    def put(self): pass
class Holder:
    def __init__(self):
        self.late = None
        self.loop = asyncio.new_event_loop()
        self.other = None
        self.made, self.rest = Red(), 1
        with contextlib.suppress(Exception):
            self.odd = unheard_of()
    def fill(self):
        self.late = Red()
    def change(self, colour: Blue):
        self.other = colour
        self.other = Red()
def bare(): return Red()
def maybe(flag):
    if flag:
        return None
    return Blue()
def both(flag): return Red() if flag else Blue()
def untold(x): return x
def numbers():
    yield Red()
def endless(): return endless()
class Sum:
    def __add__(self, other) -> Red: ...
    def __rsub__(self, other) -> Blue: ...
    def __eq__(self, other) -> Blue: ...
    def __neg__(self): return self
    @t.overload
    def __getitem__(self, at: int) -> Red: ...
    @t.overload
    def __getitem__(self, at: slice) -> Blue: ...
    def __getitem__(self, at): return at
    def low(self): pass
def pair() -> tuple[Red, Blue]: ...
def lists() -> list[Red]: ...
def maker() -> Callable[[int], Blue]: ...
@contextlib.contextmanager
def opened() -> Iterator[Blue]: yield Blue()
@contextlib.contextmanager
def plain():
    yield Red()
def typed(cls: type[Blue]): return cls
"""

USE = """
import copy
import lib
from lib import (
    Bag, Blue, DarkBlue, Either, Holder, Point, Red, Turned, bare, both, endless, lists, maker, maybe, numbers, opened,
    Sum, pair, plain, untold,
)
from typing import TYPE_CHECKING, Any, cast
if TYPE_CHECKING:
    from lib import Red as Crimson
def flow(flag, given: Red):
    a = Red()
    a.go()  # the first
    a = Blue()
    a.go()  # the second
    if flag:
        b = Red()
    else:
        b = Blue()
    b.red()
    b.go()  # of both
    if flag:
        c = Red()
        c.go()  # inside
    else:
        c = Red()
    c.red()
    d = Blue()
    if flag:
        d = Red()
        return
    d.blue()
    e = None
    for _ in range(3):
        if e is not None:
            e.red()  # in a loop
        e = Red()
    given = given or untold(1)
    given.red()  # still
    f = untold(1)
    f.go()  # nobody knows
    try:
        g = Red()
    except ValueError:
        g = None
    g.red()
    h: Blue = DarkBlue()
    h.blue()  # below
    i: Blue = untold(2)
    i.blue()  # as annotated
    while j := bare():
        j.red()
    k = l = Red()
    l.red()  # chained
def containers(p: Point, xs: "list[Red]", d: dict[str, Blue], n: dict[str, list[Red]], u: Red | list[Blue]):
    for x in xs:
        x.red()  # of a list
    for i, y in enumerate(xs):
        y.red()  # enumerated
    for key, z in d.items():
        z.blue()  # items
        key.red()  # a string
    for m, q in zip(xs, p.many):
        q.blue()  # zipped
    [r.red() for r in xs if r]
    {s: s2.blue() for s, s2 in d.items()}
    d["a"].blue()  # a key
    d.get("b").blue()  # got
    n["c"][0].red()  # nested
    xs[1:].append(xs[0])
    xs[1:][0].red()  # sliced
    sorted(xs)[0].red()  # sorted
    min(xs).red()  # least
    next(iter(xs)).red()  # next
    first, second = pair()
    second.blue()  # unpacked
    first.blue()  # no such
    one, *rest = lists()
    one.red()  # starred
    [Red(), Red()][0].red()  # written
    (Red(), Blue())[1].blue()  # a tuple
    [Red(), Blue()][0].red()  # mixed
    p.named["x"].blue()  # a field
    p.kept.red()  # optional
    for w in Bag():
        w.red()  # iterated
    Bag()[0].blue()  # subscribed
    for v in numbers():
        v.red()  # generated
    untold(xs)[0].red()  # lost
def narrowing(a, b: Any, c: Red | Blue, d):
    if isinstance(a, Red):
        a.red()  # is
    else:
        a.red()  # is not
    assert isinstance(b, (Red, Blue))
    b.blue()  # one of two
    if not isinstance(c, Blue):
        return
    c.blue()  # after leaving
    isinstance(d, Red) and d.red()
    isinstance(d, Red) or d.blue()
    d.red()  # outside
    if isinstance(d, Red):
        d = untold(3)
        d.red()  # bound between
def results(h: Holder, t: Turned, cls: type[Blue], e: Either, s: "Crimson", x=Red()):
    bare().red()
    maybe(1).blue()
    both(1).blue()
    both(1).go()
    endless().red()
    h.late.red()
    h.other.red()
    h.made.red()
    h.odd.red()
    t.moved().turn()
    maker()(1).blue()
    Bag()(speed=1).red()
    cls().blue()
    e.red()
    s.red()
    x.red()
    cast(Blue, x).blue()
    cast("Blue", s).blue()  # quoted
    copy.deepcopy(t).turn()
    (lambda: Blue())().blue()
    sorted(lists(), key=lambda it: it.red())
    list(map(lambda it, at: at.blue(), lists(), t.many))
    untold(lambda it: it.go())
    type(t)(left=1).turn()
    getattr(t, "turn")()
    getattr(t, "gone")()
    hasattr(lib, "Bag")
    getattr(t, "left").red()
    Point(left=1, many=[])
    t.moved(by=1, turn=True)
    Bag(size=2, other=3)
    untold(y=1)
    (Sum() + 1).red()
    (1 - Sum()).blue()
    (Sum() == 2).blue()
    (Sum() is None).red()
    (-Sum()).low()
    (untold(1) + 1).red()
    (untold(1) == 1).any()
    (1 + 2).bit_length()
    Sum()[0].red()
    Sum()[1:].blue()
    h.loop.run_in_executor(None, lambda: Red()).red()
    with Bag() as bag:
        bag.put()
    with opened() as o, plain() as q:
        o.blue()
        q.red()
    with open("x") as f:
        f.read()
    "text".nosuch()
    "a,b".split(",")[0].upper()
    len("a").nosuch()
def late(flag):
    if flag:
        from lib import Red as colour
        colour.red
    else:
        from lib import Blue as colour
        colour.blue
    colour.go
class Low(Point):
    def moved(self, by: int = 0) -> "Low":
        super().moved(by=2)
        super(Low, self).moved(by=3)
        return self
def deep(p: "lib.Point") -> "dict[str, Red]":
    p.left
def said(kind: "t.Literal['Red']"): pass
"""

ONLY = 'import lib\ngetattr(lib.Turned, "turn")\nprint("turn")\n'
RED, BLUE = "lib:lib.Red.red", "lib:lib.Blue.blue"
MANY = "? it is bound to objects of several classes: b"
CASES = [
    ("a.^go()  # the first", "lib:lib.Red.go"),
    ("a.^go()  # the second", "lib:lib.Blue.go"),
    ("b.^red()", f"~{RED}"),
    ("b.^go()  # of both", "~lib:lib.Red.go"),
    ("c.^go()  # inside", "lib:lib.Red.go"),
    ("c.^red()", RED),
    ("d.^blue()", BLUE),
    ("e.^red()  # in a loop", RED),
    ("given.^red()  # still", f"~{RED}"),
    ("f.^go()  # nobody knows", "? what it returns is not annotated: untold"),
    ("g.^red()", RED),
    ("h.^blue()  # below", "lib:lib.DarkBlue.blue"),
    ("i.^blue()  # as annotated", BLUE),
    ("j.^red()", f"~{RED}"),
    ("l.^red()  # chained", RED),
    ("x.^red()  # of a list", RED),
    ("y.^red()  # enumerated", RED),
    ("z.^blue()  # items", BLUE),
    ("key.^red()  # a string", "? the class of the language has no such member: str.red"),
    ("q.^blue()  # zipped", BLUE),
    ("[r.^red() for r in xs if r]", RED),
    ("{s: s2.^blue() for s, s2 in d.items()}", BLUE),
    ('d["a"].^blue()  # a key', BLUE),
    ('d.get("b").^blue()  # got', BLUE),
    ('n["c"][0].^red()  # nested', RED),
    ("xs[1:].^append(xs[0])", "~external builtins.list.append"),
    ("xs[1:][0].^red()  # sliced", RED),
    ("sorted(xs)[0].^red()  # sorted", RED),
    ("min(xs).^red()  # least", RED),
    ("next(iter(xs)).^red()  # next", RED),
    ("second.^blue()  # unpacked", f"~{BLUE}"),
    ("first.^blue()  # no such", "? neither the class nor its bases define such a member: Red.blue"),
    ("one.^red()  # starred", f"~{RED}"),
    ("[Red(), Red()][0].^red()  # written", RED),
    ("(Red(), Blue())[1].^blue()  # a tuple", BLUE),
    ("[Red(), Blue()][0].^red()  # mixed", f"~{RED}"),
    ('p.named["x"].^blue()  # a field', BLUE),
    ("p.kept.^red()  # optional", RED),
    ("w.^red()  # iterated", f"~{RED}"),
    ("Bag()[0].^blue()  # subscribed", f"~{BLUE}"),
    ("v.^red()  # generated", f"~{RED}"),
    ("untold(xs)[0].^red()  # lost", "? what it returns is not annotated: untold"),
    ("a.^red()  # is", RED),
    ("a.^red()  # is not", "? a parameter without annotation"),
    ("b.^blue()  # one of two", f"~{BLUE}"),
    ("c.^blue()  # after leaving", BLUE),
    ("isinstance(d, Red) and d.^red()", RED),
    ("isinstance(d, Red) or d.^blue()", "? a parameter without annotation"),
    ("d.^red()  # outside", "? a parameter without annotation"),
    ("d.^red()  # bound between", "? what it returns is not annotated: untold"),
    ("bare().^red()", f"~{RED}"),
    ("maybe(1).^blue()", f"~{BLUE}"),
    ("both(1).^blue()", f"~{BLUE}"),
    ("both(1).^go()", "~lib:lib.Red.go"),
    ("endless().^red()", "? what it returns is not annotated: endless"),
    ("h.late.^red()", f"~{RED}"),
    ("h.other.^red()", f"~{RED}"),
    ("h.made.^red()", f"~{RED}"),
    ("h.odd.^red()", "? nothing in the sources binds it: unheard_of"),
    ("t.moved().^turn()", "~lib:lib.Turned.turn"),
    ("maker()(1).^blue()", f"~{BLUE}"),
    ("Bag()(^speed=1).red()", "lib:lib.Bag.__call__.speed"),
    ("Bag()(speed=1).^red()", f"~{RED}"),
    ("cls().^blue()", f"~{BLUE}"),
    ("e.^red()", f"~{RED}"),
    ("s.^red()", RED),
    ("x.^red()", f"~{RED}"),
    ("cast(Blue, x).^blue()", BLUE),
    ('cast("Blue", s).^blue()  # quoted', BLUE),
    ("copy.deepcopy(t).^turn()", "lib:lib.Turned.turn"),
    ("(lambda: Blue())().^blue()", BLUE),
    ("sorted(lists(), key=lambda it: it.^red())", f"~{RED}"),
    ("list(map(lambda it, at: at.^blue(), lists(), t.many))", BLUE),
    ("untold(lambda it: it.^go())", "? a parameter of a lambda"),
    ("type(t)(left=1).^turn()", "lib:lib.Turned.turn"),
    ('getattr(t, "^turn")()', "~lib:lib.Turned.turn"),
    ('hasattr(lib, "^Bag")', "~lib:lib.Bag"),
    ('getattr(t, "left").^red()', RED),
    ("Point(^left=1, many=[])", "lib:lib.Point.left"),
    ("t.moved(^by=1, turn=True)", "lib:lib.Point.moved.by"),
    ("t.moved(by=1, ^turn=True)", "lib:lib.Point.moved.turn"),
    ("Bag(^size=2, other=3)", "lib:lib.Bag.__init__.size"),
    ("Bag(size=2, ^other=3)", "keyword"),
    ("untold(^y=1)", "keyword"),
    ("(Sum() + 1).^red()", f"~{RED}"),
    ("(1 - Sum()).^blue()", f"~{BLUE}"),
    ("(Sum() == 2).^blue()", f"~{BLUE}"),
    ("(Sum() is None).^red()", "? the class of the language has no such member: bool.red"),
    ("(-Sum()).^low()", "~lib:lib.Sum.low"),
    ("(untold(1) + 1).^red()", "? a sum or the like"),
    ("(untold(1) == 1).^any()", "? a comparison"),
    ("(1 + 2).^bit_length()", "~external builtins.int.bit_length"),
    ("Sum()[0].^red()", f"~{RED}"),
    ("Sum()[1:].^blue()", f"~{BLUE}"),
    ("h.loop.run_in_executor(None, lambda: Red()).^red()", f"~{RED}"),
    ("bag.^put()", "~lib:lib.Bag.put"),
    ("o.^blue()", f"~{BLUE}"),
    ("q.^red()", f"~{RED}"),
    ("f.^read()", "~external io.TextIOWrapper.read"),
    ('"a,b".split(",")[0].^upper()', "~external builtins.str.upper"),
    ('len("a").^nosuch()', "? the class of the language has no such member: int.nosuch"),
    ('"text".^nosuch()', "? the class of the language has no such member: str.nosuch"),
    ("^colour.red", "lib:lib.Red"),
    ("^colour.blue", "lib:lib.Blue"),
    ("^colour.go", "~lib:lib.Red"),
    ("super().moved(^by=2)", "lib:lib.Point.moved.by"),
    ("super(Low, self).^moved(by=3)", "lib:lib.Point.moved"),
    ('def moved(self, by: int = 0) -> "^Low":', "use:use.Low"),
    ('def deep(p: "^lib.Point") -> "dict[str, Red]":', "lib:lib"),
    ('def deep(p: "lib.^Point") -> "dict[str, Red]":', "lib:lib.Point"),
    ('def deep(p: "lib.Point") -> "dict[str, ^Red]":', "lib:lib.Red"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("flow"), lib={"lib.py": LIB}, use={"use.py": USE, "only.py": ONLY}) as opened:
        yield opened


@pytest.mark.parametrize(("marked", "expected"), CASES)
def test_meaning(index: Index, marked: str, expected: str) -> None:
    assert meaning(index, "use", "use.py", marked) == expected


@pytest.mark.parametrize("text", ["gone", "Red'"])
def test_a_string_that_names_nothing_is_no_link(index: Index, text: str) -> None:
    lines = (index.workspace.tree("use") / "use.py").read_text().split("\n")
    (line,) = [number for number, line in enumerate(lines, 1) if f'"{text}' in line or f"'{text}]" in line]
    column = lines[line - 1].index(text)
    assert not [link for link in index.links("use", "use.py") if (link.line, link.column) == (line, column)]


def test_uses_in_strings_are_found(index: Index) -> None:
    uses = index.uses(index.definition("lib:lib.Turned.turn"))
    assert {(use.path, use.text) for use in uses if "getattr" in use.text} == {
        ("use.py", 'getattr(t, "turn")()'),
        ("only.py", 'getattr(lib.Turned, "turn")'),
    }
    uses = index.uses(index.definition("lib:lib.Red"))
    assert 'def deep(p: "lib.Point") -> "dict[str, Red]":' in {use.text for use in uses}


def test_a_parameter_is_found_behind_comments_and_defaults(tmp_path: Path) -> None:
    lib = "def far(\n    a: str = 'b, c=(',  # d, e\n    # f, g\n    *, h: int = 1, i=[1, 2],\n) -> None: ...\n"
    use = "from lib import far\nfar(a=1)\nfar(h=1, i=2)\nfar(b=3)\n"
    with indexed(tmp_path, lib={"lib.py": lib}, use={"use.py": use}) as opened:
        found = {link.name: link.target for link in opened.links("use", "use.py") if link.line > 1}
        places = {name: (to.line, to.column) for name, to in found.items() if to and to.kind == "parameter"}
    assert places == {"a": (2, 4), "h": (4, 7), "i": (4, 19)}
